"""Guards of the dispatch: what is created, committed to, released and deleted."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from clusters.drivers import NotThere, Refused
from devtools.simulation.clusters.driver import SimulatedClusterDriver
from devtools.simulation.clusters.objects import Job
from devtools.simulation.core.swarm import only
from federation import locks
from federation.models import ATTEMPT_LIFECYCLE, Attempt, DatabaseHistory
from federation.operations import calls, dispatch, endings, histories, last_looks, transitions
from federation.operations.evidence import Standing, standing_of
from federation.operations.observation import record_observations
from federation.queries import due_clusters
from federation.queries.standstill import circumstances

from . import Change, mutant

TAKEN = {"name_taken": 0.3, "reply_lost": 0.1}
LONG = (900,)
WHILE_RESTORED = (150,)


def _cut_commitments(change: Change, part: str, instead: str = "") -> None:
    """Replaces a part of the commitment, with and without regard to windows."""
    for what in ("COMMIT_TO_START", "COMMIT_BESIDE_WINDOWS"):
        change.cut(transitions, what, part, instead)


@mutant(only({"lost": 0.05, "reply_lost": 0.1, "death": 0.001}), guard="write_ahead")
def _released_before_it_is_committed(change: Change) -> None:
    """`starting` is not written before the release."""
    _cut_commitments(change, "AND state = 'created'", "AND state = 'created' AND false")
    _cut_commitments(change, "state IN ('starting',", "state IN ('created', 'starting',")


@mutant(only({"slow": 0.4, "lost": 0.05}, cancels=1, cancelled_within=12), guard="commit_checks_stop")
def _start_wins_over_cancel(change: Change) -> None:
    """The commitment to start does not look for a stop that was requested."""
    _cut_commitments(change, "AND stop_requested_at IS NULL AND state = 'created'", "AND state = 'created'")


@mutant(only({"slow": 0.3}, cancels=1, cancelled_within=10, run_seconds=LONG), guard="cancel_wakes_dispatch")
def _cancel_forgets_its_wake_up(change: Change) -> None:
    """The release of an attempt forgets the visit of a stop that was requested meanwhile."""
    guard = "CASE WHEN attempt.stop_requested_at IS NOT NULL THEN now()\n                             WHEN EXISTS"
    change.cut(dispatch, "MARK_RELEASED", guard, "CASE WHEN EXISTS")


@mutant(only({"unavailable": 0.2, "throttled": 0.2, "lost": 0.05}, gangs=1))
def _a_started_gang_is_not_released_on(change: Change) -> None:
    """Only attempts without a started pod are released again."""
    _cut_commitments(change, "state IN ('starting', 'running')", "state = 'starting'")


@mutant(only({"reply_lost": 0.4, "watches_dead": 3, "watch_stalls": 0.6}, run_seconds=LONG))
def _starting_is_written_again(change: Change) -> None:
    """A repeated release writes `starting_at` again, and the database lets it."""
    _cut_commitments(change, "AND state = 'created'", "AND state IN ('created', 'starting')")
    change.disable("federation_attempt", "an_attempts_instants_stand")


@mutant(only(TAKEN, gangs=1))
def _half_a_gang_is_gone(change: Change) -> None:
    """If one object of several is gone during the release, the attempt ends as if nothing had run."""
    original = calls._vanished  # noqa: SLF001

    def vanished(attempt: Any, error: Refused, *, may_have_run: bool) -> Any:
        del may_have_run
        return original(attempt, error, may_have_run=False)

    change.put(calls, "_vanished", vanished)


@mutant(only({"release_unheard": 0.9}, gangs=0, cancels=0, run_seconds=(200,)))
def _a_refused_release_is_not_looked_after(change: Change) -> None:
    """A repeated release that is refused is taken for an object that never ran."""
    original = standing_of

    async def standing(*given: Any) -> Standing:
        found: Standing = await original(*given)
        return Standing.SUSPENDED if found == Standing.RELEASED else found

    change.put(calls, "standing_of", standing)


@mutant(only({"reply_lost": 0.5, "kueue_reclaims": 40}, gangs=0, cancels=0, run_seconds=(200,)))
def _a_release_starts_what_others_have_suspended(change: Change) -> None:
    """A release that is repeated does not ask whether the Job is as it was created."""

    def require_nothing(self: Any) -> None:
        del self

    change.put(Job, "require_as_created", require_nothing)


@mutant(only(TAKEN), guard="patch_carries_uid")
def _patches_without_the_uid(change: Change) -> None:
    """Whatever has the name of an object of the attempt is released."""

    async def release_job(self: Any, namespace: str, name: str, uid: str, template_patch: Any) -> None:
        def of_the_name() -> None:
            there = self._cluster.job(namespace, name)
            self._cluster.release_job(namespace, name, there.uid, template_patch)

        await self._write("release_job", (namespace, name), uid, of_the_name)

    change.put(SimulatedClusterDriver, "release_job", release_job)


@mutant(only(TAKEN), guard="adopt_checks_labels")
def _adopts_on_the_name_alone(change: Change) -> None:
    """What has the name of an object of the attempt counts as created by an earlier call."""
    change.put(calls, "_is_ours", lambda attempt, seen: True)  # noqa: ARG005


@mutant(only({"name_taken": 0.3, "reply_lost": 0.2, "unavailable": 0.2}, cancels=1, cancelled_within=15))
def _deletes_by_name(change: Change) -> None:
    """What has the name of an object of the attempt is deleted, whatever it is."""

    async def delete_objects(driver: Any, attempt: Any, found: Any) -> bool:
        del found
        for item in attempt.objects:
            try:
                seen = await driver.get_job(attempt.namespace, item.name)
                await driver.delete_job(attempt.namespace, item.name, seen.uid)
            except NotThere:
                continue
        return True

    change.put(calls, "_delete_objects", delete_objects)


@mutant(only({"name_taken": 0.3, "slow": 0.4}, cancels=1, cancelled_within=12), guard="delete_carries_uid")
def _deletes_without_the_uid(change: Change) -> None:
    """The deletion does not name the uid that was seen."""

    async def delete_job(self: Any, namespace: str, name: str, uid: str) -> None:
        def of_the_name() -> None:
            self._cluster.delete_job(namespace, name, self._cluster.job(namespace, name).uid)

        await self._write("delete_job", (namespace, name), uid, of_the_name)

    change.put(SimulatedClusterDriver, "delete_job", delete_job)


@mutant(only({}, cancels=1, cancelled_within=40, run_seconds=LONG), guard="end_waits_for_deletion")
def _a_deletion_that_was_accepted_is_done(change: Change) -> None:
    """An attempt counts as stopped when its deletion was accepted, although its pods still run."""
    original = calls._delete_objects  # noqa: SLF001

    async def delete_objects(driver: Any, attempt: Any, found: Any) -> bool:
        await original(driver, attempt, found)
        return True

    change.put(calls, "_delete_objects", delete_objects)


@mutant(only({"watches_dead": 4, "eviction": 8}, cancels=1, cancelled_within=60, run_seconds=LONG))
def _ended_jobs_are_deleted_unseen(change: Change) -> None:
    """What a Job counted before it is deleted for a stop is not recorded."""

    def record(cluster_id: UUID, seen: Any) -> set[UUID]:
        return record_observations(cluster_id, replace(seen, jobs=()))

    change.put(last_looks, "record_observations", record)


@mutant(only({"rows_refused": 1.0}, cancels=1, cancelled_within=30, run_seconds=LONG))
def _what_cannot_be_stored_is_deleted(change: Change) -> None:
    """The objects of an attempt that must stop are deleted although the database refuses what was seen of its pods."""
    original = last_looks._stored  # noqa: SLF001

    def stored(cluster_id: UUID, attempts: Sequence[Any], looks: Sequence[Any]) -> set[UUID]:
        original(cluster_id, attempts, looks)
        return {one.attempt_id for one in looks}

    change.put(last_looks, "_stored", stored)


@mutant(only({"reply_lost": 0.2, "answered_500": 0.2}))
def _an_existing_object_is_a_refusal(change: Change) -> None:
    """An object of an earlier call for the attempt is not adopted."""

    async def create(driver: Any, attempt: Any, item: Any, *, is_gated: bool) -> str:
        return await calls._create_in_namespace(driver, attempt, item, is_gated=is_gated)  # noqa: SLF001

    change.put(calls, "_create_or_adopt", create)


@mutant(
    only({"window_passes": 1.0}, gangs=0, cancels=0, run_seconds=(5, 20), chaos_seconds=(60.0, 100.0)),
    guard="commit_checks_token",
)
def _a_late_worker_commits(change: Change) -> None:
    """A worker whose claim has expired still commits and releases."""
    _cut_commitments(change, "AND claim_token = %(token)s")


@mutant(only({"late": 0.03, "name_taken": 0.2}, cancels=0.7, cancelled_within=20), guard="end_checks_token")
def _a_late_worker_ends(change: Change) -> None:
    """The end that a worker reports after its claim has expired counts."""

    def may_end(attempt: Any, ending: Any) -> bool:
        return attempt.state in ATTEMPT_LIFECYCLE.sources(ending.state)

    change.put(endings, "_may_end", may_end)


@mutant(only({"unavailable": 0.4, "lost": 0.1, "unreachable": 0.2}), guard="failed_visit_is_repeated")
def _a_failed_visit_is_not_repeated(change: Change) -> None:
    """The visit to a cluster that did not answer is not repeated."""

    def postpone(claim: Any, failed: Sequence[Any]) -> None:
        ids: list[UUID] = [one.attempt_id for one in failed]
        Attempt.objects.filter(id__in=ids, claim_token=claim.token).update(next_action_at=None, claim_expires_at=None)

    change.put(dispatch, "_postpone", postpone)


UNNOTICED = {"database_restored": 3, "unannounced": 1.0, "death": 0.001}


@mutant(
    only(
        {"restored_over_run": 2, "unannounced": 1.0, "bell_late": 0.5, "bell_lost": 0.2},
        gangs=0,
        cancels=0,
        run_seconds=WHILE_RESTORED,
        chaos_seconds=(100.0, 200.0),
    )
)
def _a_changed_history_goes_unnoticed(change: Change) -> None:
    """No statement that places or starts something compares the database's history, so until the standstill begins, jobs are
    placed that already run.
    """
    for module, what in (
        (due_clusters, "_DUE_CLUSTERS"),
        (locks, "LOCK_QUEUED"),
        (locks, "CLAIM_DUE"),
        (locks, "CLAIM_PROBES"),
        (locks, "CLAIM_LEFT_WAITING"),
        (transitions, "COMMIT_TO_START"),
        (transitions, "COMMIT_BESIDE_WINDOWS"),
    ):
        change.cut(module, what, "accepted <> federation_database_history()", "false")


@mutant(
    only(UNNOTICED, gangs=0, cancels=0, run_seconds=WHILE_RESTORED, chaos_seconds=(100.0, 200.0)),
    guard="restore_stands_still",
)
def _no_standstill_follows_a_changed_history(change: Change) -> None:
    """The gateway accepts another history without a standstill, as if it were the first."""

    def accept() -> None:
        DatabaseHistory.objects.all().delete()
        DatabaseHistory.objects.create(accepted=circumstances().history)

    change.put(histories, "_accept", accept)

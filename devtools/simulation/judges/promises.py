"""What must hold in every run. Each judge is named by its invariant (docs/explanation/promises.md) and returns sentences."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from devtools.simulation.clusters.objects import Run

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

JUDGES: list[Callable[["World"], Sequence[str]]] = []
TERMINAL = ("succeeded", "failed", "cancelled")
DATABASE_PUT_BACK = "the database was put back"
"""The reason of the standstill after a restore."""


def judge(world: "World") -> list[str]:
    """Everything that a run broke; empty if it broke nothing."""
    return [f"{one.__name__}: {sentence}" for one in JUDGES for sentence in one(world)]


def judging(one: Callable[["World"], Sequence[str]]) -> Callable[["World"], Sequence[str]]:
    """Adds a judge."""
    JUDGES.append(one)
    return one


@judging
def promise_1_an_accepted_job_is_never_lost(world: "World") -> list[str]:
    """Each acknowledged job exists."""
    known = {str(row[0]) for row in world.watch.rows("SELECT id FROM federation_job")}
    told = [one for one in world.history.asked if (one.what, one.answer) == ("submit", "ok")]
    return [f"{one.subject} was accepted as {one.told}, which does not exist" for one in told if one.told not in known]


@judging
def promise_2_one_key_makes_one_job(world: "World") -> list[str]:
    """A request that was repeated because its answer was unknown made one job."""
    rows = world.watch.rows("SELECT name, count(*) FROM federation_job GROUP BY name HAVING count(*) > 1")
    found = [f"{name} exists {count} times" for name, count in rows]
    told: dict[str, set[str]] = defaultdict(set)
    for one in world.history.asked:
        if (one.what, one.answer) == ("submit", "ok"):
            told[one.subject].add(one.told)
    return found + [f"{key} was answered {sorted(ids)}" for key, ids in told.items() if len(ids) > 1]


@judging
def promise_3_everything_ends(world: "World") -> list[str]:
    """After the world has healed, every job ends and every attempt is settled."""
    found = [
        f"job {name} is still {state}: {code}: {message}"
        for name, state, code, message in world.watch.rows(
            "SELECT name, state, reason_code, reason_message FROM federation_job WHERE state <> ALL(%s) ORDER BY id",
            list(TERMINAL),
        )
    ]
    found += [
        f"attempt {number} of {name} ended as {state} and is not settled: {error}"
        for name, number, state, error in world.watch.rows(
            "SELECT j.name, a.number, a.state, a.settle_error FROM federation_attempt a JOIN federation_job j ON j.id = a.job_id"
            " WHERE a.finished_at IS NOT NULL AND a.settled_at IS NULL ORDER BY a.id"
        )
    ]
    found += [f"{one.key} was never answered" for one in world.submissions if not one.job_id and not one.is_refused]
    return found


@judging
def promise_4_an_ended_job_or_attempt_stays_ended(world: "World") -> list[str]:
    """No committed change leaves a terminal state."""
    ended = ("succeeded", "failed", "cancelled", "preempted", "abandoned", "lost", "posted", "voided")
    rows = world.watch.rows(
        "SELECT what, id, before, after FROM simulation.changes WHERE before = ANY(%s)", list(ended)
    )
    return [f"{what} {id_} went from {before} to {after}" for what, id_, before, after in rows if before != after]


@judging
def promise_7_nothing_runs_before_the_gateway_commits_to_it(world: "World") -> list[str]:
    """`starting` was committed when a pod started."""
    return [
        f"pod {run.pod_uid} of attempt {run.attempt_id} ran on {run.cluster} before its attempt was committed to"
        for run in runs_on(world)
        if not run.was_committed and not run.is_residue
    ]


@judging
def promise_7_the_time_of_a_commitment_stands(world: "World") -> list[str]:
    """No attempt ran before the time at which, as its row says, the gateway committed to it."""
    since = {str(id_): at for id_, at in world.watch.rows(COMMITTED)}
    return [
        f"attempt {run.attempt_id} ran before its `starting_at`"
        for run in runs_on(world)
        if not (run.is_residue or world.lost_commits.spans) and run.from_us < since.get(run.attempt_id, 0)
    ]


COMMITTED = """
SELECT id, (extract(epoch FROM starting_at) * 1000000)::bigint FROM federation_attempt WHERE starting_at IS NOT NULL
"""


@judging
def promise_8_a_job_never_runs_twice_at_once(world: "World") -> list[str]:
    """No two attempts of one job run at overlapping times, and no pod of an attempt runs beside its double."""
    of_job: dict[str, list[Run]] = defaultdict(list)
    for run in runs_on(world):
        of_job[run.job_id].append(run)
    found = []
    for job_id, runs in of_job.items():
        for one, other in combinations(sorted(runs, key=lambda run: run.from_us), 2):
            if one.is_residue or other.is_residue or not _overlap(one, other):
                continue
            if one.attempt_id != other.attempt_id:
                found.append(f"job {job_id} ran in attempts {one.attempt_id} and {other.attempt_id} at the same time")
            elif (one.job_uid, one.index) == (other.job_uid, other.index):
                found.append(f"attempt {one.attempt_id} of job {job_id} ran pod {one.index} twice at the same time")
    return sorted(set(found))


@judging
def promise_8_nothing_runs_again_after_it_succeeded(world: "World") -> list[str]:
    """No attempt begins to run after another of its job has run to a success."""
    found = []
    rows = world.watch.rows("SELECT id, job_id, number, state, finished_at FROM federation_attempt ORDER BY number")
    succeeded = {str(job_id): number for _, job_id, number, state, _ in rows if state == "succeeded"}
    for id_, job_id, number, _, _ in rows:
        if number > succeeded.get(str(job_id), number) and any(run.attempt_id == str(id_) for run in runs_on(world)):
            found.append(f"attempt {number} of {job_id} ran after attempt {succeeded[str(job_id)]} had succeeded")
    return found


@judging
def promise_8_an_end_is_told_as_it_was(world: "World") -> list[str]:
    """A success in time is never reported as a failure, and nothing succeeds that did not run to its end."""
    found, by_attempt = list[str](), defaultdict[str, list[Run]](list)
    excused = taken_away(world).union(*(cluster.overdue for cluster in world.clusters.values()))
    excused |= _stopped_in_lost_commits(world)
    for run in runs_on(world):
        by_attempt[run.attempt_id].append(run)
    rows = world.watch.rows(
        "SELECT a.id, a.number, a.state, j.name, j.state, a.stop_reason, a.end_reason,"
        " (SELECT sum(coalesce(o.completions, o.pods)) FROM federation_remoteobject o WHERE o.attempt_id = a.id)"
        " FROM federation_attempt a JOIN federation_job j ON j.id = a.job_id ORDER BY a.id"
    )
    for id_, number, state, name, _, stop_reason, end_reason, pods in rows:
        runs = [run for run in by_attempt[str(id_)] if not run.is_residue]
        is_success = len({(run.job_uid, run.index) for run in runs if run.code == 0}) == pods
        # A control plane that was put back may go on with a Job that has indices left: what succeeded then did succeed.
        succeeded = {(run.job_uid, run.index) for run in by_attempt[str(id_)] if run.code == 0}
        if state == "succeeded" and len(succeeded) < pods:
            found.append(f"attempt {number} of {name} is reported as succeeded, but its pods did not succeed")
        if state == "failed" and is_success and not stop_reason and str(id_) not in excused:
            found.append(f"attempt {number} of {name} is reported as failed ({end_reason}), but all its pods succeeded")
    return found


def _stopped_in_lost_commits(world: "World") -> set[str]:
    """Attempts of which the gateway deleted an object in commits that were lost. Nothing shows any more why; what had ended well
    may be gone with the object, and a program that ends with 0 while it is being stopped is no success.
    """
    spans = world.lost_commits.spans
    deleted = {
        sent.uid
        for sent in world.history.sent
        if sent.what == "delete_job" and any(from_us <= sent.at_us <= to_us for from_us, to_us in spans)
    }
    return {run.attempt_id for run in runs_on(world) if run.job_uid in deleted}


@judging
def promise_13_each_hold_ends_once_and_limits_add_up(world: "World") -> list[str]:
    """When all has ended, nothing is held."""
    found = [
        f"hold of {holder} is {state}"
        for holder, state in world.watch.rows(
            "SELECT holder_id, state FROM quotas_hold WHERE state = 'pending' AND NOT EXISTS (SELECT FROM federation_attempt a"
            " WHERE a.id = holder_id AND a.settled_at IS NULL)"
            " AND NOT EXISTS (SELECT FROM federation_stagein WHERE object_id = holder_id)"
        )
    ]
    if not promise_3_everything_ends(world):
        found += [f"{held} {name} are still held" for name, held in world.watch.rows(HELD)]
    return found


HELD = """
SELECT quota.resource, quota.held - coalesce(sum(child.claim), 0) FROM quotas_quotalimit AS quota
  LEFT JOIN quotas_quotalimit AS child ON child.parent_id = quota.id -- what limits below guarantee
 GROUP BY quota.id HAVING quota.held <> coalesce(sum(child.claim), 0) ORDER BY quota.id
"""


@judging
def promise_16_the_ledger_is_proved(world: "World") -> list[str]:
    """The gateway's own proof of everything finds nothing."""
    return world.proof


@judging
def promise_17_a_cancellation_is_final(world: "World") -> list[str]:
    """An acknowledged cancellation ends the job as cancelled."""
    states = {str(id_): state for id_, state in world.watch.rows("SELECT id, state FROM federation_job")}
    return [
        f"the cancellation of {one.job_id} was accepted, and the job is {states.get(one.job_id)}"
        for one in world.submissions
        if one.is_cancelled and states.get(one.job_id) not in ("cancelled", "cancelling")
    ]


@judging
def promise_17_cancel_wins_over_start(world: "World") -> list[str]:
    """The gateway does not commit to an attempt after it has accepted the job's cancellation."""
    found = []
    accepted = {one.subject: one.to_us for one in world.history.asked if (one.what, one.answer) == ("cancel", "ok")}
    for job_id, number, starting_us in world.watch.rows(STARTED):
        if starting_us > accepted.get(str(job_id), starting_us):
            found.append(f"attempt {number} of {job_id} was committed to after the cancellation was accepted")
    return found


@judging
def promise_17_a_suspended_job_does_not_start(world: "World") -> list[str]:
    """The gateway does not commit to an attempt between the acceptance of a suspension and the next resumption."""
    resumed, spans = defaultdict(list), defaultdict(list)
    for one in world.history.asked:
        if one.what == "resume":
            resumed[one.subject].append(one.from_us)
    for one in world.history.asked:
        if (one.what, one.answer) == ("suspend", "ok"):
            later = [at_us for at_us in resumed[one.subject] if at_us >= one.to_us]
            spans[one.subject].append((one.to_us, min(later, default=world.scheduler.now_us)))
    return [
        f"attempt {number} of {job_id} was committed to while the job was suspended"
        for job_id, number, starting_us in world.watch.rows(STARTED)
        if any(from_us < starting_us < to_us for from_us, to_us in spans[str(job_id)])
    ]


STARTED = """
SELECT job_id, number, (extract(epoch FROM starting_at) * 1000000)::bigint FROM federation_attempt
 WHERE starting_at IS NOT NULL
"""
LONGEST_AFTER_CANCEL_US = 180_000_000


@judging
def promise_17_a_cancelled_job_is_stopped(world: "World") -> list[str]:
    """In a healed world, nothing of a cancelled job runs three minutes later."""
    accepted = {one.subject: one.to_us for one in world.history.asked if (one.what, one.answer) == ("cancel", "ok")}
    able_us = max([world.healed_us, *(ended_us for _, ended_us in _standstills(world))])
    return [
        f"a pod of {run.job_id} ran on although the job was cancelled"
        for run in runs_on(world)
        if run.job_id in accepted
        and (run.to_us or world.scheduler.now_us) - max(accepted[run.job_id], able_us) > LONGEST_AFTER_CANCEL_US
    ]


@judging
def promise_18_only_our_own_objects_are_deleted(world: "World") -> list[str]:
    """What strangers made on the clusters is still there."""
    return [
        f"{cluster.name} lacks the stranger's Job {name}"
        for cluster in world.clusters.values()
        for namespace, name in cluster.strangers
        if (namespace, name) not in cluster.jobs
    ]


@judging
def promise_22_the_audit_trail_is_complete(world: "World") -> list[str]:
    """Each acknowledged submission and cancellation has one entry, and the chain has them all."""
    found = []
    entries = {(action, object_id): count for action, object_id, count in world.watch.rows(ENTRIES)}
    for one in world.submissions:
        if one.job_id and entries.get(("job.submit", one.job_id)) != 1:
            found.append(f"the submission of {one.job_id} has {entries.get(('job.submit', one.job_id), 0)} entries")
        # a job that the gateway cancelled before, because its session was not used, has that entry
        idle = entries.get(("session.idle", one.job_id), 0)
        if one.is_cancelled and entries.get(("job.cancel", one.job_id), idle) != 1:
            found.append(f"the cancellation of {one.job_id} has {entries.get(('job.cancel', one.job_id), 0)} entries")
    loose = world.watch.rows(
        "SELECT count(*) FROM tenancy_auditentry e WHERE NOT EXISTS (SELECT FROM tenancy_auditlink l WHERE l.entry_id = e.id)"
    )
    if loose[0][0]:
        found.append(f"{loose[0][0]} entries are not in the chain")
    return found


ENTRIES = """
SELECT action, object_id, count(*) FROM (
       SELECT action, object_id FROM tenancy_auditentry
        UNION ALL
       SELECT 'job.submit', jsonb_array_elements_text(detail -> 'jobs') FROM tenancy_auditentry
        WHERE action = 'job.submit_many') AS entry GROUP BY 1, 2
"""


@judging
def promise_26_nothing_is_done_blindly_on_a_restored_database(world: "World") -> list[str]:
    """While dispatch is closed on a database that was put back, nothing is created or released, and nothing is deleted that
    ran already.
    """
    found = []
    began = {run.job_uid: run.from_us for run in sorted(runs_on(world), key=lambda run: -run.from_us)}
    for from_us, to_us in [*_standstills(world, DATABASE_PUT_BACK), *_unannounced(world)]:
        for sent in world.history.sent:
            if not from_us < sent.at_us < to_us:
                continue
            if sent.what != "delete_job":
                found.append(f"{sent.what} was sent to {sent.cluster} while dispatch was closed")
            elif began.get(sent.uid, from_us) < from_us:
                found.append(f"a Job of {sent.cluster} that had run was deleted while dispatch was closed")
    return found


def _unannounced(world: "World") -> list[tuple[int, int]]:
    """From each restore that the gateway had to notice itself to the end of the standstill that followed, as far as later
    restores let that be known.
    """
    forever = 1 << 62
    found = []
    for at_us in world.lost_commits.unannounced:
        ends = [to_us for _, to_us in _standstills(world) if to_us > at_us]
        backups = [kept_us for kept_us, _ in world.lost_commits.spans if kept_us >= at_us]
        found.append((at_us, min([*ends, *backups, forever])))
    return found


def _standstills(world: "World", reason: str = "") -> list[tuple[int, int]]:
    """When each began and ended; only those for this reason if there is one."""
    forever = 1 << 62
    return [
        (from_us, to_us or forever) for from_us, to_us, said in world.watch.rows(STANDSTILLS) if reason in ("", said)
    ]


STANDSTILLS = """
SELECT (extract(epoch FROM began_at) * 1000000)::bigint, (extract(epoch FROM ended_at) * 1000000)::bigint, reason
  FROM federation_standstill
"""


UNSETTLED = "SELECT job_id FROM federation_attempt WHERE settled_at IS NULL"


def taken_away(world: "World") -> set[str]:
    """Attempts of which others than the gateway took an object away."""
    return {attempt_id for cluster in world.clusters.values() for attempt_id in cluster.taken_away}


def runs_on(world: "World") -> list[Run]:
    """Everything of the gateway that ran, or runs now."""
    now = world.scheduler.now_us
    runs = [run for cluster in [*world.clusters.values(), *world.removed] for run in cluster.runs]
    return [run for run in runs if run.job_id and run.from_us <= now]


def _overlap(one: Run, other: Run) -> bool:
    forever = 1 << 62
    return one.from_us < (other.to_us or forever) and other.from_us < (one.to_us or forever)


def standing(world: "World") -> list[str]:
    """The clusters and processes at the end, for the timeline of a run that did not end."""
    rows = world.watch.rows(
        "SELECT name, health, wish, silent_since, last_seen_at, observed_at, clock_skew_ms, reasons FROM clusters_cluster"
    )
    live = world.watch.rows(
        "SELECT j.name, a.number, a.state, a.stop_reason, a.next_action_at, a.claim_expires_at, a.tries, a.end_message,"
        " a.released_at FROM federation_attempt a JOIN federation_job j ON j.id = a.job_id WHERE a.settled_at IS NULL"
    )
    events = world.watch.rows("SELECT at, kind, message FROM clusters_clusterevent ORDER BY id DESC LIMIT 6")
    routines = world.watch.rows("SELECT name, error FROM foundation_routine WHERE error <> ''")
    pods = world.watch.rows(
        "SELECT j.name, p.name, p.phase, p.started_at, p.finished_at, p.observed_at, p.is_gone, p.is_estimated,"
        " (SELECT array_agg((s.gpu_milliseconds, s.is_estimated)::text) FROM billing_meter m JOIN billing_usagesegment s"
        " ON s.meter_id = m.id WHERE m.source_uid = p.uid)"
        " FROM federation_podrun p JOIN federation_attempt a ON a.id = p.attempt_id JOIN federation_job j ON j.id = a.job_id"
    )
    clocks = [(name, process.ahead_us / 1e6, process.is_dead) for name, process in sorted(world.processes.items())]
    objects = [(c.name, c.ahead_us / 1e6, sorted(c.jobs), len(c.running)) for c in world.clusters.values()]
    return [f"  {row}" for row in [*rows, *live, *pods, *events, *routines, *clocks, *objects]]

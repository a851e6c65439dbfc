"""What must hold of how attempts end: on evidence, for the reason that is shown, and with nothing left running."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from devtools.simulation.clusters.objects import Run
from federation.engine.unseen import WHY

from . import promises
from .promises import UNSETTLED, judging, runs_on, taken_away

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

START_PATIENCE_US = 15 * 60 * 1_000_000
SETTLEMENT_PATIENCE_US = 10 * 60 * 1_000_000
BETWEEN_LOOKS_US = 10 * 1_000_000
"""Longer than dispatch takes from one visit to what it deletes to the next."""

CHANGES = """
SELECT id, after, (extract(epoch FROM at) * 1000000)::bigint FROM simulation.changes
 WHERE what = %s AND after = ANY(%s) AND before IS DISTINCT FROM after ORDER BY number
"""
ENDED = """
SELECT id, state, end_reason, stop_reason, (extract(epoch FROM stop_requested_at) * 1000000)::bigint,
       (extract(epoch FROM coalesce(released_at, starting_at)) * 1000000)::bigint, number, job_id,
       (SELECT count(*) FROM federation_remoteobject WHERE attempt_id = attempt.id)
  FROM federation_attempt AS attempt WHERE finished_at IS NOT NULL ORDER BY id
"""
NAMES = """
SELECT attempt.id, attempt.namespace, object.name
  FROM federation_attempt AS attempt JOIN federation_remoteobject AS object ON object.attempt_id = attempt.id
 WHERE attempt.end_reason = 'name_taken' ORDER BY attempt.id, object.name
"""
REOPENED = """
SELECT attempt.id, (extract(epoch FROM min(change.at) - attempt.finished_at) * 1000000)::bigint
  FROM federation_attempt AS attempt
  JOIN simulation.changes AS change ON change.id = attempt.id::text AND change.what = 'hold'
   AND change.after IN ('posted', 'voided')
 WHERE attempt.reopened_at IS NOT NULL GROUP BY attempt.id ORDER BY attempt.id
"""
SETTLED_LATE = "SELECT id FROM federation_attempt WHERE settled_at >= finished_at + interval '10 minutes'"


def _is_under_way(run: Run, at_us: int) -> bool:
    return run.from_us < at_us and (run.to_us is None or run.to_us > at_us)


def _others(world: "World") -> set[str]:
    """Attempts whose ends others may have caused: strangers, backups of a control plane or of the database."""
    if world.lost_commits.spans:
        return {str(row[0]) for row in world.watch.rows("SELECT id FROM federation_attempt")}
    return taken_away(world)


def own_runs(world: "World") -> dict[str, list[Run]]:
    """The runs of attempts with which neither strangers nor backups interfered."""
    found: dict[str, list[Run]] = defaultdict(list)
    others = _others(world)
    for run in runs_on(world):
        if not (run.is_residue or world.lost_commits.spans) and run.attempt_id not in others:
            found[run.attempt_id].append(run)
    return found


@judging
def promise_8_what_the_gateway_stops_has_ended(world: "World") -> list[str]:
    """An attempt that is withdrawn or cancelled ends when nothing of it runs: only then may its job be placed again."""
    runs = own_runs(world)
    return [
        f"attempt {id_} was {state} while {run.pod_uid} of it ran on {run.cluster}"
        for id_, state, at_us in world.watch.rows(CHANGES, "attempt", ["cancelled", "preempted", "abandoned"])
        for run in runs[id_]
        if _is_under_way(run, at_us)
    ]


@judging
def promise_8_a_suspended_job_does_not_run(world: "World") -> list[str]:
    """When a job becomes suspended, nothing of it runs."""
    runs: dict[str, list[Run]] = defaultdict(list)
    for of_attempt in own_runs(world).values():
        for run in of_attempt:
            runs[run.job_id].append(run)
    return [
        f"job {id_} was suspended while {run.pod_uid} of it ran on {run.cluster}"
        for id_, _, at_us in world.watch.rows(CHANGES, "job", ["suspended"])
        for run in runs[id_]
        if _is_under_way(run, at_us)
    ]


@judging
def promise_8_what_runs_is_not_recalled(world: "World") -> list[str]:
    """A recall is for attempts without a started pod, and a refusal of the release for objects that are not released."""
    runs, found = own_runs(world), []
    for id_, state, end_reason, _, asked_us, _, number, job_id, objects in world.watch.rows(ENDED):
        if state != "preempted" or asked_us is None:
            continue
        ran = [run for run in runs[str(id_)] if _is_under_way(run, asked_us) and not run.is_disrupted]
        is_recall = end_reason in ("did_not_start", "cluster_draining", "maintenance_ahead", "pods_gone")
        is_refusal = end_reason == "refused_by_cluster" and objects == 1 and not _was_suspended(world, ran, asked_us)
        # The rest of a gang cannot start: what has started is stopped with it.
        is_refusal = is_refusal and not _has_refused_gate(world, str(id_), asked_us)
        if ran and (is_recall or is_refusal):
            found.append(f"attempt {number} of {job_id} ran, and was taken back as {end_reason}")
    return found


def _has_refused_gate(world: "World", attempt_id: str, at_us: int) -> bool:
    """Whether the last answer before that time about the gate of one of its pods was a refusal: its gang cannot be whole."""
    last: dict[str, bool] = {}
    for cluster in [*world.clusters.values(), *world.removed]:
        last |= {uid: is_open for when_us, uid, is_open in cluster.gates.get(attempt_id, ()) if when_us < at_us}
    return not all(last.values())


def _was_suspended(world: "World", runs: list[Run], at_us: int) -> bool:
    """Whether the cluster last showed the Job of these runs as suspended before that time."""
    uids = {run.job_uid for run in runs}
    shown = [
        look
        for cluster in world.clusters.values()
        for uid in uids
        for look in cluster.looks.get(uid, ())
        if look[0] < at_us
    ]
    return bool(shown) and max(shown)[1]


@judging
def promise_7_what_others_suspend_stays_suspended(world: "World") -> list[str]:
    """A release that is repeated, or arrives late, does not undo a suspension of others."""
    clusters = [*world.clusters.values(), *world.removed]
    return [
        f"{uid} on {one.name} was released while Kueue had suspended it" for one in clusters for uid in one.overruled
    ]


@judging
def promise_3_an_attempt_has_time_to_start(world: "World") -> list[str]:
    """It is recalled for not starting after 15 minutes, not sooner."""
    return [
        f"attempt {number} of {job_id} was recalled {(asked_us - since_us) / 1e6:.0f} s after its release"
        for _, _, _, stop_reason, asked_us, since_us, number, job_id, _ in world.watch.rows(ENDED)
        if stop_reason == "did_not_start" and asked_us and since_us and asked_us - since_us < START_PATIENCE_US
    ]


@judging
def promise_8_an_end_has_a_true_reason(world: "World") -> list[str]:
    """No object is called deleted, and no name taken, that is not."""
    others = _others(world)
    found = [
        f"attempt {number} of {job_id} ended because its object was deleted, and no stranger had deleted it"
        for id_, _, end_reason, _, _, _, number, job_id, _ in world.watch.rows(ENDED)
        if end_reason == "object_deleted" and str(id_) not in others
    ]
    taken = {
        key
        for cluster in [*world.clusters.values(), *world.removed]
        for key in (*cluster.names_taken, *cluster.strangers, *cluster.services.names_taken)
    }
    names: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for id_, namespace, name in world.watch.rows(NAMES):
        names[str(id_)].add((namespace, name))
    return found + [
        f"attempt {id_} ended because a name was taken, and none of {sorted(keys)} was"
        for id_, keys in names.items()
        if id_ not in others and not keys & taken
    ]


@judging
def promise_13_a_hold_covers_its_run(world: "World") -> list[str]:
    """Nothing of an attempt runs after its hold has ended, unless its cluster did not answer for ten minutes."""
    runs = own_runs(world)
    late = {str(row[0]) for row in world.watch.rows(SETTLED_LATE)}
    return [
        f"attempt {id_} ran on {run.cluster} after its hold was {state}"
        for id_, state, at_us in world.watch.rows(CHANGES, "hold", ["posted", "voided"])
        if id_ not in late
        for run in runs[id_]
        if run.to_us is None or run.to_us > at_us
    ]


@judging
def promise_15_settlement_knows_what_ran(world: "World") -> list[str]:
    """No run is found after settlement that the cluster would have shown before it. What never ran costs nothing."""
    others, ran = _others(world), {run.attempt_id for run in runs_on(world)}
    return [
        f"attempt {id_} was settled {after_us / 1e6:.0f} s after its end without all its pods"
        for id_, after_us in world.watch.rows(REOPENED)
        if str(id_) in ran - others and after_us < SETTLEMENT_PATIENCE_US
    ]


@judging
def promise_10_a_late_worker_writes_nothing(world: "World") -> list[str]:
    """No actor commits to an attempt, or takes it back, after another has claimed the visit that it was on."""
    return [
        f"{actor} made attempt {id_} {state} after {other} had claimed it"
        for id_, state, actor, other in world.watch.rows(LATE)
    ]


LATE = """
SELECT change.id, change.after, change.actor, last.actor
  FROM simulation.changes AS change
 CROSS JOIN LATERAL (SELECT claim.actor FROM simulation.changes AS claim
                      WHERE claim.what = 'claim' AND claim.id = change.id AND claim.number < change.number
                      ORDER BY claim.number DESC LIMIT 1) AS last
 WHERE change.what = 'attempt' AND change.before IS DISTINCT FROM change.after AND change.actor <> last.actor
   AND change.after IN ('created', 'starting', 'cancelled', 'preempted', 'abandoned')
   AND EXISTS (SELECT FROM simulation.changes AS own
                WHERE own.what = 'claim' AND own.id = change.id AND own.actor = change.actor AND own.number < change.number)
 ORDER BY change.number
"""


@judging
def promise_18_names_that_strangers_took_stay_theirs(world: "World") -> list[str]:
    """What strangers made on the clusters is still there, as they made it."""
    found = []
    for cluster in world.clusters.values():
        for key, uid in cluster.takers.items():
            job = cluster.jobs.get(key)
            if job is None or job.uid != uid or job.is_terminating:
                found.append(f"the stranger's Job {key[1]} was deleted on {cluster.name}")
            elif not job.suspended:
                found.append(f"the stranger's Job {key[1]} was released on {cluster.name}")
        found += [
            f"the stranger's Service {key[1]} is gone on {cluster.name}"
            for key, uid in cluster.services.foreign.items()
            if key not in cluster.services.known or cluster.services.known[key].uid != uid
        ]
    return found


@judging
def promise_7_the_pods_of_a_gang_have_names_when_they_run(world: "World") -> list[str]:
    """The Service of an attempt exists when its pods start, unless a backup of its control plane took it away."""
    others = _others(world)
    return [
        f"a pod of attempt {attempt_id} started on {cluster.name} without its gang's Service"
        for cluster in world.clusters.values()
        if not cluster.was_restored
        for attempt_id in sorted(cluster.services.unnamed - others)
    ]


@judging
def promise_15_what_ran_is_metered(world: "World") -> list[str]:
    """Metered GPU-milliseconds equal what clusters show of what ran, unless a pod's start or end was never reported as it was."""
    ran: dict[str, list[Run]] = defaultdict(list)
    for run in runs_on(world):
        if run.to_us is not None:
            ran[run.job_id].append(run)
    metered = {
        str(job_id): (int(units or 0), bool(estimated)) for job_id, units, estimated in world.watch.rows(METERED)
    }
    found = []
    still = {str(row[0]) for row in world.watch.rows(UNSETTLED)}
    known = {str(row[0]) for row in world.watch.rows("SELECT id FROM federation_attempt")}
    unseen = removed_unseen(world)
    for job_id in sorted((ran.keys() | metered.keys()) - still):
        runs = ran.get(job_id, [])
        if any(run.is_residue or run.attempt_id in taken_away(world) or run in unseen for run in runs):
            continue
        real = sum(
            ((run.shown_us or run.to_us) - run.from_us) // 1000 * run.gpus for run in runs if run.to_us is not None
        )
        slack = sum(2_000 * run.gpus for run in runs)
        said, is_estimated = metered.get(job_id, (0, False))
        # Runs that were metered only in lost commits, and removed from the cluster before these were lost, have no trace;
        # nor have those that were released in lost commits, and started later.
        is_forgotten = any(
            world.lost_commits.overlap(run.from_us, run.to_us)
            or (world.lost_commits.spans and run.attempt_id not in known)
            for run in runs
        )
        if not is_estimated and (said - real > slack or (real - said > slack and not is_forgotten)):
            found.append(f"job {job_id} ran {real} GPU-ms and is metered {said} GPU-ms")
    return found


def removed_unseen(world: "World") -> list[Run]:
    """Runs that left no trace: Kueue ended them, and their pods were removed while the gateway could not see their cluster; or
    they began when their Job was already being deleted, and ended between two looks of the gateway; or their cluster was
    destroyed before it had shown them, and an administrator attested that they are lost; or their cluster refused to show pods
    for as long as they ran, and the gateway, which had asked several times, deleted their Job before it ended.
    """
    clusters = [*world.clusters.values(), *world.removed]
    unseen = [(one, run) for one in clusters for run in one.runs if run.pod_uid not in one.shown]
    lost = {str(id_) for (id_,) in world.watch.rows(LOST)}
    unended = {uid for (uid,) in world.watch.rows(UNENDED)}
    return [
        run
        for one, run in unseen
        if run.job_uid in one.reclaimed
        or _fell_between_looks(run)
        or (world.links[one.name].is_destroyed and run.attempt_id in lost)
        or (run.job_uid in unended and _was_hidden(run, world.links[one.name].hidden_us))
    ]


def _fell_between_looks(run: Run) -> bool:
    return run.is_late and run.to_us is not None and run.to_us - run.from_us < BETWEEN_LOOKS_US


def _was_hidden(run: Run, spans: Sequence[tuple[int, int]]) -> bool:
    return run.to_us is not None and any(from_us <= run.from_us and run.to_us <= to_us for from_us, to_us in spans)


LOST = "SELECT id FROM federation_attempt WHERE state = 'lost'"
UNENDED = "SELECT uid FROM federation_remoteobject WHERE uid <> '' AND over_at IS NULL"
"""Jobs whose end no cluster reported."""


METERED = """
SELECT attempt.job_id,
       (SELECT sum(segment.gpu_milliseconds) FROM billing_meter AS meter
          JOIN billing_usagesegment AS segment ON segment.meter_id = meter.id WHERE meter.workload_id = attempt.job_id),
       bool_or(pod.is_estimated OR pod.finished_at IS NULL)
  FROM federation_attempt AS attempt JOIN federation_podrun AS pod ON pod.attempt_id = attempt.id GROUP BY 1
"""
"""Usage that was assumed and whose pods' ends were reported later counts as reported: assumed segments are no excuse."""


@judging
def promise_15_a_reported_end_corrects_what_was_assumed(world: "World") -> list[str]:
    """A settled pod whose end its cluster reported, however late, is metered from its start to that end; longer only as far as it
    was seen to run.
    """
    return [
        f"pod {uid} ran for {due} ms by the reports that were recorded, and is metered for {metered} ms"
        for uid, due, most, metered in world.watch.rows(REPORTED_ENDS, WHY)
        if not due <= metered <= most
    ]


REPORTED_ENDS = """
SELECT pod.uid, lasted.due::bigint, greatest(lasted.due, lasted.seen)::bigint, coalesce(sum(extract(epoch FROM
       upper(segment.period) - lower(segment.period)) * 1000), 0)::bigint
  FROM federation_attempt AS attempt JOIN federation_podrun AS pod ON pod.attempt_id = attempt.id
   AND pod.finished_at IS NOT NULL AND pod.started_at IS NOT NULL AND pod.reason <> %s
   AND (pod.finished_at > pod.started_at OR NOT pod.is_estimated)
 CROSS JOIN LATERAL (
       SELECT extract(epoch FROM date_trunc('milliseconds', pod.finished_at) - date_trunc('milliseconds', pod.started_at)) * 1000 AS due,
              extract(epoch FROM coalesce(pod.last_seen_at, pod.started_at) - pod.started_at) * 1000 AS seen) AS lasted
  LEFT JOIN billing_meter AS meter ON meter.cluster_id = pod.cluster_id
   AND (meter.source_uid = pod.uid OR starts_with(meter.source_uid, pod.uid || '~'))
  LEFT JOIN billing_usagesegment AS segment ON segment.meter_id = meter.id
 WHERE attempt.settled_at IS NOT NULL GROUP BY pod.id, lasted.due, lasted.seen ORDER BY pod.id
"""


ALWAYS = [
    promises.promise_2_one_key_makes_one_job,
    promises.promise_7_nothing_runs_before_the_gateway_commits_to_it,
    promises.promise_7_the_time_of_a_commitment_stands,
    promises.promise_8_a_job_never_runs_twice_at_once,
    promises.promise_17_cancel_wins_over_start,
    promises.promise_17_a_cancelled_job_is_stopped,
    promises.promise_17_a_suspended_job_does_not_start,
    promise_8_what_the_gateway_stops_has_ended,
    promise_8_a_suspended_job_does_not_run,
    promise_7_what_others_suspend_stays_suspended,
    promise_8_what_runs_is_not_recalled,
    promise_3_an_attempt_has_time_to_start,
    promise_8_an_end_has_a_true_reason,
    promise_10_a_late_worker_writes_nothing,
    promise_13_a_hold_covers_its_run,
    promise_15_settlement_knows_what_ran,
    promise_18_names_that_strangers_took_stay_theirs,
    promise_7_the_pods_of_a_gang_have_names_when_they_run,
]
"""Those that judge at any time, not only at the end."""


def broken_for_good(world: "World") -> list[str]:
    """What a run has already broken of what must hold at every time: it need not go on."""
    return [f"{one.__name__}: {sentence}" for one in ALWAYS for sentence in one(world)]

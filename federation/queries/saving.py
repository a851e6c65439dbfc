"""What moves to cheaper places, and to places where a job meets its deadline, read: the runs that ask for them, what is known of
their work, and both places with their prices.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import connection

from billing.engine.egress import rate_between
from billing.engine.rating import PriceSpan
from billing.queries import price_spans
from billing.queries.comparable import spans_in
from clusters.models import Cluster
from federation.engine.relocation import MOST_MOVES_A_DAY, REST
from federation.models import LIVE_ATTEMPT_STATES, Attempt, Job
from federation.queries.attested import LACKS_MANY
from federation.queries.kinds import kind_of, runtimes_of_kinds
from federation.queries.queue import requests_again
from federation.queries.reports import progress_view
from federation.queries.runtimes import runtime_of_job
from federation.queries.worked import worked_seconds
from foundation.host import host
from placement.answers.left_work import left_of
from placement.fleet.egress import BYTES_PER_GIB
from placement.ranking.deadlines import START_SECONDS, finish_by_of, longest_work
from placement.values.decisions import Placement
from placement.values.model import FleetCluster, FleetFlavor, JobRequest, PriceChange, Snapshot
from placement.values.moving import CourseOfRun, Side
from placement.values.preemption import RunningJob
from placement.values.sizes import pace_of_size, running_size

MOST_RUNS = 50
HISTORY = timedelta(days=30)
"""How far back prices are read."""

RUNS = f"""
SELECT attempt.id, job.id, job.created_by_id, attempt.cluster_id, job.spec ->> 'moves' = 'when_cheaper',
       saved.at, saved.count, saved.size_bytes, moved.today, moved.saving, moved.last_at, now()
  FROM federation_job AS job
  JOIN federation_attempt AS attempt ON attempt.job_id = job.id AND attempt.state = 'running'
  JOIN clusters_cluster AS cluster ON cluster.id = attempt.cluster_id
 CROSS JOIN LATERAL (
    SELECT max(written_at) AS at, count(*) AS count, max(size_bytes) AS size_bytes
      FROM federation_checkpoint WHERE attempt_id = attempt.id) AS saved
 CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE cause <> 'user' AND created_at > now() - interval '1 day') AS today,
           count(*) FILTER (WHERE cause = 'price' AND created_at > now() - interval '1 day') AS saving, max(created_at) AS last_at
      FROM federation_move AS move WHERE move.job_id = job.id) AS moved
 WHERE job.finished_at IS NULL AND (job.spec -> 'moves' = '"when_cheaper"'::jsonb OR job.spec ? 'finish_within_seconds')
   AND job.state = 'running' AND job.suspend_requested_at IS NULL AND job.stop_wish IS NULL
   AND job.spec ->> 'moves' IN ('when_needed', 'when_cheaper')
   AND attempt.stop_requested_at IS NULL AND attempt.started_at IS NOT NULL AND NOT {LACKS_MANY}
   AND (saved.count > 0 OR job.spec ->> 'checkpoint_seconds' IS NOT NULL)
   AND moved.today < %(often)s AND (moved.last_at IS NULL OR moved.last_at < now() - %(rest)s::interval)
   AND (%(only)s::uuid IS NULL OR attempt.id = %(only)s)
 ORDER BY md5(attempt.id || %(salt)s) LIMIT %(most)s
"""
LEAVING = """
SELECT attempt.cluster_id, count(*), count(move.attempt_id) FILTER (WHERE move.cause <> 'user')
  FROM federation_attempt AS attempt LEFT JOIN federation_move AS move ON move.attempt_id = attempt.id
 WHERE attempt.state = ANY(%s) AND attempt.cluster_id = ANY(%s) GROUP BY attempt.cluster_id
"""
TAKEN = """
SELECT EXISTS (SELECT FROM federation_attempt AS attempt
                 JOIN federation_remoteobject AS object ON object.attempt_id = attempt.id AND object.assumed_nodes ?| %(nodes)s
                WHERE attempt.cluster_id = %(cluster)s AND attempt.finished_at IS NULL AND attempt.reserved_at > %(since)s)
"""
LATELY = """
SELECT job.created_by_id, count(*) FROM federation_move AS move JOIN federation_job AS job ON job.id = move.job_id
 WHERE move.cause = 'price' AND move.created_at > now() - interval '1 hour' GROUP BY 1
"""


class SavingRun(NamedTuple):
    """A running attempt of a job that asks for such moves; the columns of RUNS."""

    attempt_id: UUID
    job_id: UUID
    user_id: UUID
    cluster_id: UUID
    may_save: bool
    """Whether it may move for a lower price; else only for its deadline."""
    saved_at: datetime | None
    checkpoints: int
    size_bytes: int | None
    moves_today: int
    saving_moves_today: int
    last_moved_at: datetime | None
    now: datetime


def saving_runs(only: UUID | None = None) -> list[SavingRun]:
    """The runs, or that of the attempt `only`, that may move now, in an order by chance: some for which there is no place do not
    keep others from being tried. One query.
    """
    asked: dict[str, Any] = {"rest": REST, "often": MOST_MOVES_A_DAY, "most": MOST_RUNS, "only": only}
    with connection.cursor() as cursor:
        cursor.execute(RUNS, {**asked, "salt": str(host().chance().random())})
        return [SavingRun(*row) for row in cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class Brakes:
    """What was moved recently. By cluster the live attempts, and those of them that already leave; by user the moves for prices
    within an hour.
    """

    live: Mapping[UUID, int]
    leaving: Mapping[UUID, int]
    lately: Counter[UUID]

    def may_save(self, user_id: UUID) -> bool:
        """Whether one more job may move for its price, of this user."""
        most = settings.SAVING_HOURLY_MOVES
        return self.lately.total() < most and self.lately[user_id] < max(1, most // 4)


def load_brakes(runs: Sequence[SavingRun]) -> Brakes:
    """The brakes for these runs. Two queries."""
    with connection.cursor() as cursor:
        cursor.execute(LEAVING, [LIVE_ATTEMPT_STATES, sorted({one.cluster_id for one in runs})])
        rows = cursor.fetchall()
        cursor.execute(LATELY)
        lately = Counter(dict(cursor.fetchall()))
    return Brakes({on: live for on, live, _ in rows}, {on: leaving for on, _, leaving in rows}, lately)


def is_free(place: Placement, since: datetime) -> bool:
    """Whether the cluster of a place still takes jobs, and none was put on its nodes since the trial."""
    if not Cluster.objects.filter(id=place.cluster_id, wish=Cluster.Wish.OPEN, silent_since=None).exists():
        return False
    nodes = sorted({name for pod_set in place.pod_sets for name in pod_set.nodes})
    with connection.cursor() as cursor:
        cursor.execute(TAKEN, {"cluster": place.cluster_id, "nodes": nodes, "since": since})
        return not cursor.fetchone()[0]


@dataclass(frozen=True, slots=True)
class Saver:
    """One run, as its moves are decided: its request, where it runs, and its course. An elastic job moves with the pods of its run,
    so its request has one size.
    """

    row: SavingRun
    run: RunningJob
    request: JobRequest
    here: Side
    course: CourseOfRun
    paces: tuple[float, float]
    """The fastest and the slowest that its work can have."""
    of_size: float = 1.0
    """The part of these paces that its pods have, if it is elastic."""

    def side_of(self, place: Placement, snapshot: Snapshot) -> Side | None:
        """The other side, with the prices of now; None if its cluster is unknown."""
        cluster = _cluster(snapshot, place.cluster_id)
        flavors = [] if cluster is None else [cluster.flavors.get(one.flavor) for one in place.pod_sets]
        if cluster is None or not all(flavors):
            return None
        pull = 0 if place.pull is None else place.pull.seconds
        origin = _cluster(snapshot, self.run.cluster_id)
        return Side(
            place.cluster_id,
            place.cluster,
            dated(cluster.id, [one for one in flavors if one is not None], self.row.now),
            place.pace * self.of_size,
            START_SECONDS + pull,
            _egress(place, self.row, origin, cluster, snapshot),
        )


def saver_of(row: SavingRun, run: RunningJob, snapshot: Snapshot) -> Saver | None:
    """What decides the moves of a run; None if its cluster or a flavor of it is not known any more."""
    cluster = _cluster(snapshot, run.cluster_id)
    flavors = [] if cluster is None else [cluster.flavors.get(held.flavor) for held in run.pods]
    job = Job.objects.get(id=row.job_id)
    attempt = Attempt.objects.select_related("progress").get(id=row.attempt_id)
    [fewest] = requests_again(row.now, [row.job_id])
    sized = running_size(fewest, run)
    request, of_size = replace(sized, elastic=None), pace_of_size(sized)
    if cluster is None or not all(flavors) or len(flavors) != len(request.pod_sets):
        return None
    known = dated(cluster.id, [one for one in flavors if one is not None], row.now)
    here = Side(cluster.id, cluster.name, known, attempt.pace)
    kind = kind_of(job.tenant_id, job.spec, job.shape)
    most = longest_work(request, runtimes_of_kinds([kind]))
    course = _course(row, run, job, attempt, most)
    worked = most - round((course.most_left_seconds + course.lost_seconds) / attempt.pace * of_size)
    fastest, slowest = _paces(request)
    paces = fastest * of_size, slowest * of_size
    return Saver(row, run, replace(request, worked_seconds=worked), here, course, paces, of_size)


def _course(row: SavingRun, run: RunningJob, job: Job, attempt: Attempt, most_work: int) -> CourseOfRun:
    assert attempt.started_at is not None
    ran = max(0.0, (row.now - attempt.started_at).total_seconds())
    told = progress_view(attempt, job.spec, row.now)
    end = told.expected_end_at if told is not None else None
    most = round(most_work * attempt.pace)
    done = ran + worked_seconds([job.id]).get(job.id, 0) * attempt.pace
    left = left_of(runtime_of_job(job), most, done, None if end is None else (end - row.now).total_seconds())
    return CourseOfRun(
        lost_seconds=run.lost_seconds(row.now),
        least_left_seconds=left.least,
        most_left_seconds=left.most,
        exposed_seconds=_interval(row, run, attempt.started_at),
        finish_by=finish_by(job),
        moves_today=row.moves_today,
        saving_moves_today=row.saving_moves_today,
        last_moved_at=row.last_moved_at,
        most_seconds=job.spec["deadline_seconds"],
    )


def finish_by(job: Job) -> datetime | None:
    """The job's deadline; None without one."""
    within = job.spec.get("finish_within_seconds")
    return None if within is None else finish_by_of(job.created_at, within)


def _interval(row: SavingRun, run: RunningJob, started_at: datetime) -> int:
    """The seconds between two checkpoints: as the job says, or as it has reported them so far, if that is more."""
    seen = 0
    if row.saved_at is not None:
        seen = int((row.saved_at - started_at).total_seconds()) // row.checkpoints
    return max(run.checkpoint_seconds or 0, seen, 1)


def _paces(request: JobRequest) -> tuple[float, float]:
    speeds = [one.speed_milli for one in request.throughput]
    return (min(speeds) / max(speeds), 1.0) if speeds else (1.0, 1.0)


def _egress(
    place: Placement, row: SavingRun, origin: FleetCluster | None, cluster: FleetCluster, snapshot: Snapshot
) -> Decimal | None:
    """What moving the job's data and its newest checkpoint there costs; None if its data's part is not known. Where no price is set
    for the way, the checkpoint costs nothing.
    """
    data = Decimal(0) if place.egress is None else place.egress.cost
    if data is None or origin is None or not row.size_bytes or origin.region == cluster.region:
        return data
    rate = rate_between(snapshot.egress, origin.region, cluster.region, row.now)
    return data if rate is None else data + rate.price_per_gib * row.size_bytes / BYTES_PER_GIB


def dated(cluster_id: UUID, flavors: Sequence[FleetFlavor], now: datetime) -> tuple[FleetFlavor, ...]:
    """The flavors with their prices of the last days and of now, as they are in the price book, beside those announced: all in the
    currency in which placement compares them.
    """
    spans = price_spans([cluster_id], now - HISTORY, now + timedelta(microseconds=1))
    own = ((one, spans.get((cluster_id, one.name, one.capacity_type), ())) for one in flavors)
    return tuple(_with_past(one, spans_in(one.currency, cluster_id, its, now)) for one, its in own)


def _with_past(flavor: FleetFlavor, spans: Sequence[PriceSpan]) -> FleetFlavor:
    ordered = sorted(spans, key=lambda one: one.valid_from)
    changes: list[PriceChange] = []
    for number, one in enumerate(ordered):
        changes.append(
            PriceChange(
                one.valid_from, one.unit_price, one.cpu_price, one.memory_price, one.cpu_price, one.memory_price
            )
        )
        following = ordered[number + 1].valid_from if number + 1 < len(ordered) else None
        if one.valid_until is not None and one.valid_until != following:
            changes.append(PriceChange(one.valid_until))
    known = {one.at for one in changes}
    later = (one for one in flavor.price_changes if one.at not in known)
    return replace(flavor, price_changes=tuple(sorted((*changes, *later), key=lambda one: one.at)))


def _cluster(snapshot: Snapshot, cluster_id: UUID) -> FleetCluster | None:
    return next((one for one in snapshot.clusters if one.id == cluster_id), None)


def flavors_of(snapshot: Snapshot) -> list[FleetFlavor]:
    """All that the fleet offers."""
    return [flavor for cluster in snapshot.clusters for flavor in cluster.flavors.values()]

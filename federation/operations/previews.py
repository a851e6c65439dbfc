"""What a change of the quota tree does to the next round, without making it.

The change is made by the operation that makes it otherwise, in a transaction that is rolled back, and the round's input is
loaded there and once more without the change: both from one snapshot of the database, so nothing else differs. The engine
decides when no transaction is open.
"""

import re
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import OperationalError, connection, transaction

from clusters.queries import visible_clusters
from federation.models import Job
from federation.operations.cycle import end_what_is_over
from federation.operations.preemption import loan_text, what_follows
from federation.operations.tree import apply_tree
from federation.queries.in_use import features_in_use
from federation.queries.lowered_limits import load_beyond
from federation.queries.preemption import hourly_shares
from federation.queries.queue import QUEUE_DEPTH
from federation.queries.snapshot import load_snapshot
from federation.queries.standstill import is_dispatch_closed
from foundation.clock import database_now
from foundation.problems import RateLimited
from foundation.transactions import is_contention, retried
from placement.answers.previews import Preview, State, Stop, preview
from placement.fleet.fleet import FleetIndex
from placement.values.decisions import Placement, Wait
from placement.values.reason_codes import ReasonCode
from quotas.engine.amounts import format_amount
from quotas.operations import WantedLimit, put_limit
from tenancy.queries import Actor, visible_tenants

MOST_SHOWN = 100
"""The number of jobs of each list that an answer names."""
WAIT_SECONDS = 5.0
"""How long a preview waits for another one in the same process."""
RETRY_SECONDS = 5
ANOTHER_CLUSTER = "another cluster"

_desk = threading.Lock()
"""One preview at a time in a process: it takes as long as two rounds."""
_fleet_index = FleetIndex()


@dataclass(frozen=True, slots=True)
class AffectedJob:
    """A job that the change affects. `cluster` is where it starts or runs; empty if it only waits."""

    job_id: UUID
    name: str
    tenant_path: str
    cluster: str = ""
    code: str = ""
    message: str = ""
    at: datetime | None = None
    """When it is stopped, at the earliest."""
    beneficiary: UUID | None = None
    """The job for which it is stopped; None also if the viewer may not see that."""
    lost_seconds: int = 0
    cost_gpu_seconds: float = 0.0
    is_anyway: bool = False
    """Whether it is stopped without the change too."""


@dataclass(frozen=True, slots=True)
class Affected:
    """Jobs in the order in which the round decides. `hidden` are more, of tenants that the viewer may not see; `further` are
    left out because the list is long.
    """

    jobs: tuple[AffectedJob, ...]
    further: int
    hidden: int

    @property
    def count(self) -> int:
        """All of them."""
        return len(self.jobs) + self.further + self.hidden


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a change does to the next round, as its author may see it."""

    as_of: datetime
    is_dispatch_open: bool
    considered: int
    """The number of waiting jobs of which the round decides."""
    starts: Affected
    waits: Affected
    otherwise: Affected
    stops: Affected
    spared: Affected


def preview_limit(actor: Actor, wanted: WantedLimit) -> Foreseen:
    """What setting this limit does to the next round. Raises what `put_limit` raises, and RateLimited."""
    return _foreseen(actor, lambda: put_limit(actor, **wanted._asdict()))


def preview_tree(actor: Actor, text: str, *, prune: bool = False) -> Foreseen:
    """What applying this file does to the next round. Raises what `apply_tree` raises, and RateLimited."""
    return _foreseen(actor, lambda: apply_tree(actor, text, prune=prune))


def _foreseen(actor: Actor, change: Callable[[], object]) -> Foreseen:
    if not _desk.acquire(timeout=WAIT_SECONDS):
        raise _busy()
    try:
        try:
            before, after = _states(change)
        except OperationalError as error:
            if is_contention(error):
                raise _busy() from error
            raise
        found = preview(before, after, _fleet_index)
    finally:
        _desk.release()
    return _as_seen(actor, after, found)


def _busy() -> RateLimited:
    told = "Quota changes too fast at the moment, or others preview changes too. Try again."
    return RateLimited(told, code="preview_busy", retry_after_seconds=RETRY_SECONDS)


@retried
def _states(change: Callable[[], object]) -> tuple[State, State]:
    """The state without the change, and with it. Nothing of it remains."""
    is_outermost = not connection.in_atomic_block
    with transaction.atomic():
        if is_outermost:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        now = database_now()
        # First, because it begins again if what it locks has changed since the snapshot.
        after = _state(now, change)
        return _state(now, lambda: None), after


def _state(now: datetime, change: Callable[[], object]) -> State:
    with transaction.atomic():
        end_what_is_over(features_in_use())
        change()
        in_use = features_in_use()
        beyond = load_beyond(also_later=True) if in_use.lowered_limits and settings.PREEMPTION_MOST_VICTIMS else ()
        state = State(
            snapshot=load_snapshot(now, QUEUE_DEPTH, in_use, with_moves=False),
            beyond=beyond,
            hourly=hourly_shares(one.organisation for one in beyond) if beyond else {},
            keep_seconds=settings.PREEMPTION_KEEP_SECONDS,
        )
        transaction.set_rollback(True)
    return state


def _as_seen(actor: Actor, state: State, found: Preview) -> Foreseen:
    viewer = _Viewer(actor, state)
    return Foreseen(
        as_of=state.snapshot.now,
        is_dispatch_open=not is_dispatch_closed(),
        considered=len(state.snapshot.queue),
        starts=viewer.placed(found.starts),
        waits=viewer.waiting(found.waits),
        otherwise=viewer.waiting(found.otherwise),
        stops=viewer.stopped(found.stops, found.anyway),
        spared=viewer.stopped(found.spared),
    )


class _Viewer:
    """Who asks: jobs of other tenants are counted, not shown."""

    def __init__(self, actor: Actor, state: State) -> None:
        self._seen = set(visible_tenants(actor).values_list("path", flat=True))
        self._paths = {job.id: job.tenant_path for job in state.snapshot.queue}
        names = {cluster.name for cluster in state.snapshot.clusters}
        self._unseen = names - set(visible_clusters(actor).values_list("name", flat=True))

    def placed(self, placements: Collection[Placement]) -> Affected:
        return self._affected([AffectedJob(one.job_id, "", self._paths[one.job_id], one.cluster) for one in placements])

    def waiting(self, waits: Collection[Wait]) -> Affected:
        return self._affected(
            [AffectedJob(one.job_id, "", self._paths[one.job_id], code=one.code, message=one.message) for one in waits]
        )

    def stopped(self, stops: Collection[Stop], anyway: Collection[UUID] = ()) -> Affected:
        return self._affected([self._stop(one, is_anyway=one.victim.run.job_id in anyway) for one in stops])

    def _stop(self, stop: Stop, *, is_anyway: bool) -> AffectedJob:
        run, who = stop.victim.run, stop.beneficiary
        return AffectedJob(
            job_id=run.job_id,
            name="",
            tenant_path=run.tenant_path,
            cluster=run.cluster,
            code=code_of(stop),
            message=text_of(stop),
            at=stop.at,
            beneficiary=who if who is not None and self._paths.get(who) in self._seen else None,
            lost_seconds=stop.victim.lost_seconds,
            cost_gpu_seconds=stop.victim.cost,
            is_anyway=is_anyway,
        )

    def _affected(self, jobs: Collection[AffectedJob]) -> Affected:
        seen = [one for one in jobs if one.tenant_path in self._seen]
        shown = seen[:MOST_SHOWN]
        names = _names_of(one.job_id for one in shown)
        return Affected(
            tuple(self._shown(one, names[one.job_id]) for one in shown if one.job_id in names),
            further=len(seen) - len(shown),
            hidden=len(jobs) - len(seen),
        )

    def _shown(self, one: AffectedJob, name: str) -> AffectedJob:
        """With its name, and without the names of clusters that the viewer may not see."""
        message = one.message
        for cluster in self._unseen:
            if cluster in message:
                message = re.sub(rf"(?<![\w.-]){re.escape(cluster)}(?![\w-])", ANOTHER_CLUSTER, message)
        return replace(one, name=name, cluster="" if one.cluster in self._unseen else one.cluster, message=message)


def code_of(stop: Stop) -> str:
    """Why a job is stopped, as its attempt will show it."""
    return ReasonCode.LIMIT_LOWERED if stop.victim.surplus is not None else ReasonCode.PREEMPTED_FOR_JOB


def text_of(stop: Stop) -> str:
    """The same for users, and what it means for the job."""
    victim, surplus = stop.victim, stop.victim.surplus
    if surplus is not None:
        most, held = (format_amount(surplus.resource, amount) for amount in (surplus.most, surplus.held))
        where = f" on {', '.join(surplus.clusters)}" if surplus.clusters else ""
        why = f"The limit of {surplus.tenant_path} allows {most} {surplus.resource}{where}, and {held} are held"
    elif victim.loan is not None:
        why = f"The tenant of a waiting job takes back quota that it lent: {loan_text(victim.loan)}"
    else:
        why = f"A more urgent job gets its place; this one has priority {victim.run.priority}"
    return f"{why}. {what_follows(victim)}"


def _names_of(job_ids: Iterable[UUID]) -> dict[UUID, str]:
    """The names of jobs, by id."""
    return dict(Job.objects.filter(id__any_of=list(job_ids)).values_list("id", "name"))

"""What running jobs borrowed from the quota of a waiting job's tenant, and which of them may be stopped together.

Limits of equal resource and scope form a tree (`quotas.engine.borrowing`). On the paths of two jobs, the lowest limit that
both share is where one can borrow from the other. The waiting job reclaims if every limit on its path below that one stays
within its nominal amount, and the highest of these allows it (`reclaims`). A running job borrows if the highest limit on
its path below the shared one holds more than its nominal amount.

No tenant loses what is its own: a job is stopped only if it would not fit again within the nominal amount of that limit,
beside the jobs there that continue. So jobs that would still fit are never stopped, and who was stopped cannot
reclaim in turn. The same is required of the limits below it whose nominal amounts the one above covers. What
jobs that are being stopped hold does not count, nor what is kept for jobs that wait.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias
from uuid import UUID

from placement.fleet.limits import LimitBook
from placement.values.model import LimitState, Snapshot
from placement.values.preemption import Loan, RunningJob
from quotas.engine.borrowing import Chain, Line, path_prefixes, rises

Amounts: TypeAlias = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Debt:
    """A running job's loan, and the limits below whose nominal amounts it must not push its tenants: by limit, how much may
    end there, this job included, before it would fit again.
    """

    loan: Loan
    slack: Mapping[UUID, int]


class Loans:
    """What runs borrowed, by the limits of a cycle's final state."""

    def __init__(self, snapshot: Snapshot, book: LimitBook) -> None:
        self._snapshot, self._book = snapshot, book
        self._under: dict[UUID, Mapping[UUID, int]] = {}

    def debt(self, tenant_path: str, cluster: str, amounts: Amounts, run: RunningJob) -> Debt | None:
        """What the run owes to a waiting job of this tenant that takes these amounts on this cluster; None if nothing."""
        own, theirs = self._book.chains(tenant_path, cluster), self._book.chains(run.tenant_path, run.cluster)
        found: list[Debt] = []
        for resource, amount in amounts.items():
            if not amount or not run.amounts.get(resource, 0):
                continue
            for mine in own.get(resource, ()):
                for other in theirs.get(resource, ()):
                    parted = _parted(mine, other)
                    if parted is None or not parted[0]:
                        continue
                    if not _is_within(mine, amount, parted[0]):
                        return None
                    debt = self._owed(parted[0][-1], parted[1], run)
                    found += [] if debt is None else [debt]
        return min(found, key=lambda one: one.loan.weight, default=None)

    def _owed(self, mine: Line[LimitState], theirs: Chain[LimitState], run: RunningJob) -> Debt | None:
        if not mine.limit.reclaims or not theirs:
            return None
        top = theirs[-1].limit
        held = self._held(theirs[-1])
        if top.nominal is None or held <= top.nominal:
            return None
        slack = {top.id: held + run.amounts[top.resource] - top.nominal}
        for below, above in pairwise(theirs):
            nominal = below.limit.nominal
            if nominal is not None and self._is_covered(above.limit):
                slack[below.limit.id] = self._held(below) + run.amounts[top.resource] - nominal
        overdue = run.is_overdue(self._snapshot.now)
        loan = Loan(top.tenant_path, top.resource, top.clusters, held, top.nominal, overdue)
        return Debt(loan, slack)

    def under(self, run: RunningJob) -> Mapping[UUID, int]:
        """By limit that counts it, what the run holds."""
        found = self._under.get(run.attempt_id)
        if found is None:
            found = self._under[run.attempt_id] = dict(self._lines(run.tenant_path, run.cluster, run.amounts))
        return found

    def _lines(self, tenant_path: str, cluster: str, amounts: Amounts) -> Iterator[tuple[UUID, int]]:
        for resource, chains in self._book.chains(tenant_path, cluster).items():
            for chain in chains:
                for line in chain:
                    yield line.limit.id, amounts.get(resource, 0)

    def _held(self, line: Line[LimitState]) -> int:
        """What remains there if nothing more is stopped."""
        return line.held - self._passing[line.limit.id]

    @cached_property
    def _passing(self) -> Counter[UUID]:
        """By limit, what jobs that are being stopped hold there, and what is kept for jobs that wait."""
        waiting = {job.id: job.tenant_path for job in self._snapshot.queue}
        found: Counter[UUID] = Counter()
        for one in self._snapshot.leaving:
            found.update(dict(self._lines(one.tenant_path, one.cluster, one.amounts)))
        for claim in self._snapshot.claims:
            if claim.job_id in waiting:
                found.update(dict(self._lines(waiting[claim.job_id], claim.cluster, claim.amounts)))
        return found

    def _is_covered(self, above: LimitState) -> bool:
        """Whether a limit's nominal amount covers those of the limits right below it."""
        return above.nominal is not None and self._promised.get(above.id, 0) <= above.nominal

    @cached_property
    def _promised(self) -> Mapping[UUID, int]:
        """By limit, the sum of the nominal amounts of the limits right below it."""
        found: Counter[UUID] = Counter()
        for limit in self._snapshot.limits:
            _, *above = self._book.chain(limit)
            if above:
                found[above[0].limit.id] += limit.nominal or 0
        return found


class Stopped:
    """Runs that may be stopped together. `debts` are those of the runs that owe what they hold, by attempt."""

    def __init__(self, loans: Loans, debts: Mapping[UUID, Debt]) -> None:
        self._loans, self._debts = loans, debts
        self._ended: Counter[UUID] = Counter()
        self._slack: dict[UUID, int] = {}

    def add(self, run: RunningJob) -> bool:
        """Adds the run, unless a tenant would lose what is its own."""
        under, debt = self._loans.under(run), self._debts.get(run.attempt_id)
        slack = {} if debt is None else {limit: self._least(limit, own) for limit, own in debt.slack.items()}
        for limit in {*under, *slack}:
            most = slack.get(limit, self._slack.get(limit))
            if most is not None and self._ended[limit] + under.get(limit, 0) >= most:
                return False
        self._ended.update(under)
        self._slack.update(slack)
        return True

    def _least(self, limit: UUID, own: int) -> int:
        return min(own, self._slack.get(limit, own))


def may_end_together(loans: Loans, debts: Mapping[UUID, Debt], runs: Iterable[RunningJob]) -> bool:
    """Whether no tenant loses what is its own if all of these are stopped."""
    stopped = Stopped(loans, debts)
    return all(stopped.add(run) for run in runs)


def as_many_as_may_end(loans: Loans, debts: Mapping[UUID, Debt], runs: Sequence[RunningJob]) -> list[RunningJob]:
    """Those of the runs, in their order, that may be stopped together."""
    stopped = Stopped(loans, debts)
    return [run for run in runs if stopped.add(run)]


def reclaiming_tenants(limits: Iterable[LimitState]) -> frozenset[str]:
    """The tenants with a limit whose quota is reclaimed."""
    return frozenset(limit.tenant_path for limit in limits if limit.reclaims)


def is_below_one(tenant_path: str, tenants: frozenset[str]) -> bool:
    """Whether the tenant is one of these, or below one."""
    return any(path in tenants for path in path_prefixes(tenant_path))


def _parted(mine: Chain[LimitState], theirs: Chain[LimitState]) -> tuple[Chain[LimitState], Chain[LimitState]] | None:
    """The two parts below the lowest limit that both chains have; None if they have none in common."""
    places = {id(line): place for place, line in enumerate(theirs)}
    for place, line in enumerate(mine):
        if id(line) in places:
            return mine[:place], theirs[: places[id(line)]]
    return None


def _is_within(chain: Chain[LimitState], amount: int, below: Chain[LimitState]) -> bool:
    """Whether these lower limits of a chain stay within their nominal amounts if the amount is taken."""
    risen = {id(line): rise for line, rise in rises(chain, amount)}
    return all(
        line.limit.nominal is None or line.held + rise <= line.limit.nominal
        for line in below
        if (rise := risen.get(id(line), 0))
    )

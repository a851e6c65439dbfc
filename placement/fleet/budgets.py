"""Budgets in a cycle: what each leaves for new work in each of its periods, and what a job uses of them at most."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from billing.engine.budgets import (
    Commitment,
    Terms,
    in_currency,
    missing_rate_message,
    needs_a_rate,
    refusal_message,
    rounded_up,
    worst_case,
)
from clusters.engine.gpu_share import gpu_per_unit
from placement.values.budgets import BudgetState, BudgetWindow
from placement.values.model import FleetFlavor, JobRequest, PodSetRequest

from .amounts import units_per_pod
from .policies import prefixes_of
from .prices import flavor_at, hourly_cost

USUAL_SECONDS = 24 * 3600
"""The deadline of a job that has none; in the product each job has one."""
UNCOUNTABLE = Decimal("Infinity")
"""What a job needs of a budget that cannot count its price."""
ENOUGH = 10**9
"""How many times a job fits where nothing limits it."""


@dataclass(slots=True)
class BudgetLine:
    """A budget in one of its periods during a cycle, with its remainder."""

    state: BudgetState
    terms: Terms
    window: BudgetWindow
    left: Decimal
    rates: Mapping[str, Decimal]

    def needed(self, commitment: Commitment) -> Decimal:
        """What a job uses of it at most; UNCOUNTABLE if its price is in a currency without a rate."""
        if needs_a_rate(self.terms, commitment):
            rate = self.rates.get(commitment.currency)
            if rate is None:
                return UNCOUNTABLE
            commitment = in_currency(commitment, self.terms.currency, rate)
        return worst_case(self.terms, commitment, (self.window.starts_at, self.window.ends_at))


class Unaffordable(NamedTuple):
    """A budget with too little left, and the amount that the job needs. If that is UNCOUNTABLE, `currency` is the price's."""

    line: BudgetLine
    needed: Decimal
    currency: str = ""


BudgetLines: TypeAlias = Sequence[BudgetLine]


class BudgetBook:
    """The budgets of all tenants that stop admission, by path."""

    def __init__(self, budgets: Iterable[BudgetState], now: datetime) -> None:
        self._now = now
        self._of_tenant: dict[str, list[BudgetLine]] = {}
        self._of_path: dict[str, BudgetLines] = {}
        self._commitments: dict[tuple[int, int | None], tuple[tuple[FleetFlavor, ...], Commitment]] = {}
        for state in sorted(budgets, key=lambda one: one.id):
            terms, rates = Terms(state.measure, state.currency, state.period), dict(state.rates)
            self._of_tenant.setdefault(state.tenant_path, []).extend(
                BudgetLine(state, terms, window, window.limit - window.spent - window.held, rates)
                for window in state.windows
            )

    def lines(self, tenant_path: str) -> BudgetLines:
        """The budgets from the root to the tenant."""
        if not self._of_tenant:
            return ()
        lines = self._of_path.get(tenant_path)
        if lines is None:
            lines = [line for path in prefixes_of(tenant_path) for line in self._of_tenant.get(path, ())]
            self._of_path[tenant_path] = lines
        return lines

    def refusing(self, job: JobRequest, flavors: tuple[FleetFlavor, ...]) -> Unaffordable | None:
        """The first budget that does not allow the job on these flavors."""
        for line, needed in self._needs(job, flavors):
            if needed > line.left:
                return Unaffordable(line, needed, self._uncounted(job, flavors) if needed == UNCOUNTABLE else "")
        return None

    def charge(self, job: JobRequest, flavors: tuple[FleetFlavor, ...]) -> None:
        """Deducts the job's worst case from the budgets on its path."""
        for line, needed in self._needs(job, flavors):
            line.left -= needed

    def refund(self, job: JobRequest, flavors: tuple[FleetFlavor, ...]) -> None:
        """Undoes `charge`."""
        for line, needed in self._needs(job, flavors):
            line.left += needed

    def times(self, job: JobRequest, flavors: tuple[FleetFlavor, ...]) -> int:
        """How many times the budgets allow the job on these flavors."""
        fits = [int(max(Decimal(0), line.left) // needed) for line, needed in self._needs(job, flavors)]
        return min(fits, default=ENOUGH)

    def _needs(self, job: JobRequest, flavors: tuple[FleetFlavor, ...]) -> Iterator[tuple[BudgetLine, Decimal]]:
        lines = self.lines(job.tenant_path)
        if lines:
            commitment = self._commitment(job, flavors)
            is_countable = not any(flavor.unconverted for flavor in flavors)
            for line in lines:
                needed = line.needed(commitment) if is_countable or line.terms.measure != "money" else UNCOUNTABLE
                if needed:
                    yield line, needed

    def _uncounted(self, job: JobRequest, flavors: tuple[FleetFlavor, ...]) -> str:
        """The currency of a price that some budget cannot count."""
        unknown = next((flavor.unconverted for flavor in flavors if flavor.unconverted), "")
        return unknown or self._commitment(job, flavors).currency

    def _commitment(self, job: JobRequest, flavors: tuple[FleetFlavor, ...]) -> Commitment:
        """Computed once for each candidate of a shape: its jobs share the tuple, which is kept, so that its id stays."""
        key = id(flavors), job.deadline_seconds
        known = self._commitments.get(key)
        if known is None:
            known = self._commitments[key] = flavors, commitment_of(job, flavors, self._now)
        return known[1]


def commitment_of(job: JobRequest, flavors: Sequence[FleetFlavor], now: datetime) -> Commitment:
    """What the job uses at most if it starts there now: all its pods until its deadline, at the highest of the current
    price and those announced until then. Pods without a price use no money.
    """
    seconds = USUAL_SECONDS if job.deadline_seconds is None else job.deadline_seconds
    until = now + timedelta(seconds=seconds)
    changes = sorted({change.at for flavor in flavors for change in flavor.price_changes if now < change.at < until})
    costs = [
        [
            cost
            for pods, flavor in zip(job.pod_sets, flavors, strict=True)
            if (cost := _cost(pods, flavor, at)) is not None
        ]
        for at in (now, *changes)
    ]
    priced = [sum(parts, Decimal(0)) for parts in costs if parts]
    gpus = Fraction(0)
    for pods, flavor in zip(job.pod_sets, flavors, strict=True):
        units = units_per_pod(pods.gpu, flavor) or 0
        gpus += units * pods.count * gpu_per_unit(flavor.sharing, flavor.gpu_model)
    return Commitment(
        money_an_hour=rounded_up(max(priced, default=Decimal(0))),
        currency=_currency_at(job, flavors, (now, *changes)),
        gpus=rounded_up(Decimal(-(-gpus.numerator * 10**12 // gpus.denominator)).scaleb(-12)),
        starts_at=now,
        seconds=seconds,
    )


def _currency_at(job: JobRequest, flavors: Sequence[FleetFlavor], times: Iterable[datetime]) -> str:
    """The currency of the pods that have a price at one of these times; empty if none has."""
    for pods, flavor in zip(job.pod_sets, flavors, strict=True):
        if any(_cost(pods, flavor, at) is not None for at in times):
            return flavor.currency
    return ""


def _cost(pods: PodSetRequest, flavor: FleetFlavor, at: datetime) -> Decimal | None:
    """The hourly cost of a pod set by the prices at a time."""
    return hourly_cost((pods,), (flavor_at(flavor, at),))


def budget_message(line: BudgetLine, needed: Decimal, currency: str = "") -> str:
    """Why the budget does not allow the job, with its numbers."""
    window = line.window
    if needed == UNCOUNTABLE:
        return missing_rate_message(line.state.tenant_path, currency, line.terms)
    held = window.limit - window.spent - line.left
    figures = needed, window.limit, window.spent, held
    return refusal_message(line.state.tenant_path, line.terms, (window.starts_at, window.ends_at), figures)

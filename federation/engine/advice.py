"""Which jobs are worth a recommendation, from what they used and how they ended. Nothing here is charged or stored.

An amount is money of one currency that was spent; whether it can be spared is for the reader to judge.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, Decimal
from enum import StrEnum
from fractions import Fraction
from uuid import UUID

IDLE_SECONDS = 3600
"""For which a job must have been measured."""
IDLE_BELOW = Fraction(5, 100)
"""The used part of measured time."""
LATE_SECONDS = 3600
"""For which the last attempt of a job that failed must have run."""
FAILURES = 3
"""Of one name, in one tenant."""


class Kind(StrEnum):
    """What is recommended."""

    IDLE = "idle"
    LATE_FAILURES = "late_failures"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A job in one currency (empty: without a price): GPU-hours that it was allocated, and those that were measured and used.

    `amount` is the cost that the recommendation is about; None without a price.
    """

    job: UUID
    tenant: str
    name: str
    currency: str
    amount: Decimal | None
    allocated: Decimal
    measured: Decimal = Decimal(0)
    used: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One finding in one currency. `jobs` are its evidence, the oldest first.

    `confidence` is the measured part of the allocated GPU-hours; None if the finding does not depend on measurements.
    """

    kind: Kind
    tenant: str
    currency: str
    jobs: tuple[Evidence, ...]

    @property
    def name(self) -> str:
        """Of its jobs."""
        return self.jobs[0].name

    @property
    def amount(self) -> Decimal | None:
        """Of all its jobs."""
        return sum((one.amount or Decimal(0) for one in self.jobs), Decimal(0)) if self.currency else None

    @property
    def allocated(self) -> Decimal:
        """GPU-hours."""
        return sum((one.allocated for one in self.jobs), Decimal(0))

    @property
    def measured(self) -> Decimal | None:
        """GPU-hours; None if the finding does not depend on measurements."""
        return sum((one.measured for one in self.jobs), Decimal(0)) if self.kind is Kind.IDLE else None

    @property
    def used(self) -> Decimal | None:
        """GPU-hours; None if the finding does not depend on measurements."""
        return sum((one.used for one in self.jobs), Decimal(0)) if self.kind is Kind.IDLE else None

    @property
    def confidence(self) -> Decimal | None:
        """From 0 to 1, rounded down to four decimals: what is not known in full is never 1."""
        if self.measured is None or not self.allocated:
            return None
        return (self.measured / self.allocated).quantize(Decimal("0.0001"), ROUND_DOWN)


def idle_jobs(
    found: Iterable[Evidence],
    seconds_of: Callable[[Sequence[tuple[str, UUID]]], Mapping[tuple[str, UUID], int]],
) -> list[Recommendation]:
    """Jobs that were measured for an hour or more and used less than a twentieth of it; `seconds_of` says for how long they were seen.

    A job that was charged in several currencies has one recommendation in each, and all its time decides.
    """
    by_job: dict[tuple[str, UUID], list[Evidence]] = defaultdict(list)
    for one in found:
        by_job[one.tenant, one.job].append(one)
    idle = [key for key, rows in by_job.items() if _is_idle(rows)]
    seen = seconds_of(idle)
    return [
        Recommendation(Kind.IDLE, one.tenant, one.currency, (one,))
        for key in idle
        if seen.get(key, 0) >= IDLE_SECONDS
        for one in by_job[key]
        if one.measured
    ]


def _is_idle(rows: Sequence[Evidence]) -> bool:
    measured = sum((Fraction(one.measured) for one in rows), Fraction(0))
    return bool(measured) and sum((Fraction(one.used) for one in rows), Fraction(0)) < IDLE_BELOW * measured


def late_failures(found: Iterable[Evidence]) -> list[Recommendation]:
    """Names of which enough jobs are in the evidence: those that failed late, in order. One recommendation in each currency."""
    by_name: dict[tuple[str, str], list[Evidence]] = defaultdict(list)
    for one in found:
        by_name[one.tenant, one.name].append(one)
    findings = []
    for (tenant, _), rows in by_name.items():
        if len({one.job for one in rows}) >= FAILURES:
            for currency in sorted({one.currency for one in rows}):
                own = tuple(one for one in rows if one.currency == currency)
                findings.append(Recommendation(Kind.LATE_FAILURES, tenant, currency, own))
    return findings

"""Compares what the ledger says that clusters cost in a month with what providers billed: a pure function.

Amounts are in 10**-12. What is in another currency than the one that is compared is converted at the rate of its day: each
pool's day at that day's rate, an invoice at the rate of its month's last day. Without a rate, nothing is compared.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple
from uuid import UUID

from .conversion import converted
from .ledger import money, units

USUAL_TOLERANCE = Decimal(2)
"""Percent, for organisations that set none."""


class RateOf(NamedTuple):
    """Two currencies on a day."""

    base: str
    quote: str
    day: date


Rates = Mapping[RateOf, Decimal]


@dataclass(frozen=True, slots=True)
class CostPart:
    """What a cluster cost on a day, in one currency."""

    currency: str
    day: date
    charged: int
    overhead: int
    idle: int


@dataclass(frozen=True, slots=True)
class BilledPart:
    """What a provider billed, in one currency. `day`: whose rate counts."""

    currency: str
    day: date
    amount: int


@dataclass(frozen=True, slots=True)
class ClusterMonth:
    """What is known of a cluster in a month."""

    cluster_id: UUID
    costs: Sequence[CostPart] = ()
    billed: Sequence[BilledPart] = ()


@dataclass(frozen=True, slots=True)
class Compared:
    """A cluster's month. `invoiced` is None without an invoice; with a `fault`, nothing is compared and all amounts are zero."""

    cluster_id: UUID
    currency: str
    charged: int = 0
    overhead: int = 0
    idle: int = 0
    invoiced: int | None = None
    fault: str = ""
    is_invoiced: bool = False

    @property
    def cost(self) -> int:
        """What the ledger says that the cluster cost."""
        return self.charged + self.overhead + self.idle

    @property
    def variance(self) -> int | None:
        """What the provider billed beyond the cost; negative if it billed less. None without an invoice."""
        return None if self.invoiced is None else self.invoiced - self.cost

    @property
    def percent(self) -> Fraction | None:
        """The variance in percent of the cost. None without an invoice or a cost."""
        return Fraction(100 * self.variance, abs(self.cost)) if self.variance is not None and self.cost else None

    def is_within(self, tolerance: Decimal) -> bool:
        """Whether there is no invoice, or the variance is at most the tolerance."""
        if self.fault:
            return not self.is_invoiced
        return self.variance is None or abs(self.variance) * 100 <= Fraction(tolerance) * abs(self.cost)


@dataclass(frozen=True, slots=True)
class Total:
    """The sums of one currency: `cost - not_invoiced + variance == invoiced`. `not_invoiced`: of clusters without an invoice."""

    currency: str
    charged: int
    overhead: int
    idle: int
    not_invoiced: int
    invoiced: int

    @property
    def cost(self) -> int:
        """Of all clusters."""
        return self.charged + self.overhead + self.idle

    @property
    def variance(self) -> int:
        """Of the clusters with an invoice."""
        return self.invoiced - self.cost + self.not_invoiced


def rates_needed(months: Iterable[ClusterMonth], billed_in: str) -> set[RateOf]:
    """The rates that a comparison needs."""
    found = set()
    for one in months:
        into = compared_in(one, billed_in)
        days = {(part.currency, part.day) for part in one.costs} | {(part.currency, part.day) for part in one.billed}
        found |= {RateOf(currency, into, day) for currency, day in days if into != currency}
    return {each for each in found if each.quote}


def compared_in(one: ClusterMonth, currency: str) -> str:
    """The currency in which a cluster is compared: the billing currency; without one, that of its cost, or of its invoices.
    Empty if these are in several.
    """
    if currency:
        return currency
    own = {part.currency for part in one.costs} or {part.currency for part in one.billed}
    return own.pop() if len(own) == 1 else ""


def compare(one: ClusterMonth, currency: str, rates: Rates) -> Compared:
    """A cluster's month in one currency."""
    into = compared_in(one, currency)
    if not into:
        fault = "It has amounts in several currencies: set a billing currency."
        return Compared(one.cluster_id, "", fault=fault, is_invoiced=bool(one.billed))
    if missing := sorted(each for each in rates_needed([one], currency) if each not in rates):
        first = missing[0]
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        fault = f"No exchange rate for {first.base} to {first.quote} on {first.day}{more}."
        return Compared(one.cluster_id, into, fault=fault, is_invoiced=bool(one.billed))

    def worth(part: CostPart | BilledPart, amount: int) -> int:
        if part.currency == into:
            return amount
        return units(converted(money(amount), rates[RateOf(part.currency, into, part.day)]))

    return Compared(
        one.cluster_id, into,
        charged=sum(worth(part, part.charged) for part in one.costs),
        overhead=sum(worth(part, part.overhead) for part in one.costs),
        idle=sum(worth(part, part.idle) for part in one.costs),
        invoiced=sum(worth(part, part.amount) for part in one.billed) if one.billed else None,
        is_invoiced=bool(one.billed),
    )  # fmt: skip


def totals_of(rows: Iterable[Compared]) -> tuple[Total, ...]:
    """The sums by currency of what is compared."""
    by_currency: dict[str, list[Compared]] = {}
    for row in rows:
        if not row.fault:
            by_currency.setdefault(row.currency, []).append(row)
    return tuple(
        Total(
            currency,
            charged=sum(row.charged for row in own),
            overhead=sum(row.overhead for row in own),
            idle=sum(row.idle for row in own),
            not_invoiced=sum(row.cost for row in own if row.invoiced is None),
            invoiced=sum(row.invoiced or 0 for row in own),
        )
        for currency, own in sorted(by_currency.items())
    )

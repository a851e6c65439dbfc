"""Costs of several organisations and days in one currency: the one that they are billed in, at the rate of each day."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from billing.engine.shares import shown_parts
from foundation.clock import database_now
from foundation.problems import Invalid
from tenancy.models import Tenant
from tenancy.queries import Actor, visible_tenants

from .budget_rates import Pair, known_rates
from .exchange import billing_currency_of
from .usage import SHOWN_PLACES

A_MOMENT = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Cost:
    """A cost of an organisation's day."""

    organisation: str
    currency: str
    day: date
    amount: Fraction


@dataclass(frozen=True, slots=True)
class Converted:
    """What costs in a currency are worth in the one that is shown, with six decimals."""

    currency: str
    cost: Decimal
    worth: Decimal


def shown_currency(actor: Actor, currencies: Collection[str], until: datetime) -> str:
    """The currency in which costs in these currencies up to a time are shown; empty if they are in one, and are shown in it.

    It is the one that the organisations of which the actor sees something are billed in at the end. Raises Invalid
    `mixed_currencies` if there is none, or they have several, for costs in several currencies.
    """
    found = {currency for currency in currencies if currency}
    roots = {path.partition("/")[0] for path in visible_tenants(actor).values_list("path", flat=True)}
    last = min(until - A_MOMENT, database_now()).astimezone(UTC).date().replace(day=1)
    organisations = Tenant.objects.filter(path__in=roots).values_list("id", flat=True)
    billed = {billing_currency_of(id_, last) for id_ in organisations}
    if len(billed) == 1 and found - billed and billed != {""}:
        return billed.pop()
    if len(found) > 1:
        raise Invalid.field("tenant", "mixed_currencies", f"costs in {' and '.join(sorted(found))} cannot be added up")
    return ""


class Exchange:
    """Converts costs into one currency. An empty currency: they stay as they are."""

    def __init__(self, currency: str, costs: Iterable[Cost]) -> None:
        self.currency = currency
        self._rates = known_rates({self._pair(one) for one in costs if self._is_foreign(one)})

    def _pair(self, one: Cost) -> Pair:
        return Pair(one.organisation, one.currency, self.currency, one.day)

    def _is_foreign(self, one: Cost) -> bool:
        return bool(self.currency and one.currency and one.currency != self.currency)

    def worth(self, one: Cost) -> Fraction:
        """The cost in that currency, exactly. Raises Invalid `no_exchange_rate`."""
        if not self._is_foreign(one):
            return one.amount
        rate = self._rates.get(self._pair(one))
        if rate is None:
            detail = f"no exchange rate from {one.currency} to {self.currency} is known: import reference rates"
            raise Invalid.field("window", "no_exchange_rate", detail)
        return one.amount * Fraction(rate)


def by_currency(exchange: Exchange, costs: Iterable[Cost]) -> list[Converted]:
    """What is converted by currency, with six decimals; the worths add up to the rounded whole."""
    sums: dict[str, list[Fraction]] = {}
    for one in costs:
        if one.currency:
            own = sums.setdefault(one.currency, [Fraction(0), Fraction(0)])
            own[0] += one.amount
            own[1] += exchange.worth(one)
    names = sorted(sums)
    worths, _ = shown_parts([sums[name][1] for name in names], SHOWN_PLACES)
    costs_shown = [shown_parts([sums[name][0]], SHOWN_PLACES)[1] for name in names]
    return [Converted(*each) for each in zip(names, costs_shown, worths, strict=True)]

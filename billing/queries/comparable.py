"""Prices in several currencies, in the one that their organisation is billed in: for comparisons, never for charges.

Without a rate of today, such a price is unknown, and never zero.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import ROUND_UP, Decimal
from typing import TypeAlias, TypeVar
from uuid import UUID

from django.db.models import Q

from billing.engine.egress import EgressRate
from billing.engine.rating import PriceSpan
from billing.models import Price
from clusters.models import Cluster
from tenancy.models import Tenant

from .exchange import billing_currency_of, exchange_rate
from .prices import PriceView

Book: TypeAlias = Mapping[tuple[UUID, str], PriceView]
Announced: TypeAlias = Mapping[tuple[UUID, str], tuple[tuple[datetime, PriceView | None], ...]]
Priced = TypeVar("Priced", PriceView, PriceSpan)
STEP = Decimal("0.000001")
MOST = Decimal(10) ** 12
"""A price that is not below it fits no column."""


class Comparison:
    """The rates of one organisation's day into a currency; without one, that which it is billed in. Each is read when it is needed."""

    def __init__(self, organisation: str, at: datetime, currency: str = "") -> None:
        self._day = at.astimezone(UTC).date()
        self._id = Tenant.objects.values_list("id", flat=True).get(path=organisation)
        self.currency = currency or billing_currency_of(self._id, self._day.replace(day=1))
        self._rates: dict[str, Decimal | None] = {}

    def price(self, view: Priced | None) -> Priced | None:
        """The price in that currency, rounded up to six decimals; None if it is not known there."""
        if view is None or view.currency == self.currency:
            return view
        unit, cpu, memory = (
            self.amount(each, view.currency) for each in (view.unit_price, view.cpu_price, view.memory_price)
        )
        if unit is None or (cpu is None) != (view.cpu_price is None) or (memory is None) != (view.memory_price is None):
            return None
        return replace(view, currency=self.currency, unit_price=unit, cpu_price=cpu, memory_price=memory)

    def amount(self, amount: Decimal | None, currency: str) -> Decimal | None:
        """The amount in that currency, rounded up to six decimals; None if it is not known there."""
        if amount is None or currency == self.currency:
            return amount
        if currency not in self._rates:
            found = exchange_rate(self._id, currency, self.currency, self._day) if self.currency else None
            self._rates[currency] = None if found is None else found.rate
        rate = self._rates[currency]
        if rate is None:
            return None
        worth = (amount * rate).quantize(STEP, ROUND_UP)
        return worth if worth < MOST else None


def in_comparable_currencies(
    book: Book, announced: Mapping[tuple[UUID, str], tuple[tuple[datetime, PriceView], ...]], at: datetime
) -> tuple[Book, Announced]:
    """The prices in force and those announced, each organisation's in one currency. No query if all are in one already."""
    if len({view.currency for view in (*book.values(), *_views(announced))}) <= 1:
        return book, announced
    names = {cluster_id for cluster_id, _ in (*book, *announced)}
    owners = dict(Cluster.objects.filter(id__in=names).values_list("id", "owner__path"))
    currencies: dict[str, set[str]] = defaultdict(set)
    for cluster_id, view in (
        *((key[0], view) for key, view in book.items()),
        *((key[0], view) for key, later in announced.items() for _, view in later),
    ):
        if view is not None:
            currencies[_root(owners[cluster_id])].add(view.currency)
    mixed = {path: Comparison(path, at) for path, found in currencies.items() if len(found) > 1}
    if not mixed:
        return book, announced
    of = {cluster_id: mixed.get(_root(path)) for cluster_id, path in owners.items()}
    compared = {key: _compared(of[key[0]], view) for key, view in book.items()}
    return (
        {key: view for key, view in compared.items() if view is not None},
        {key: tuple((since, _compared(of[key[0]], view)) for since, view in later) for key, later in announced.items()},
    )


def unconverted(charged: tuple[Book, Announced], compared: tuple[Book, Announced]) -> dict[tuple[UUID, str], str]:
    """The currencies of prices, in force or announced, that are not known in the one in which prices are compared."""
    (book, announced), (known, later) = charged, compared
    if known is book and later is announced:
        return {}
    found = {key: view.currency for key, view in book.items() if key not in known}
    for key, views in announced.items():
        for (_, view), (_, converted) in zip(views, later[key], strict=True):
            if view is not None and converted is None:
                found.setdefault(key, view.currency)
    return found


def spans_in(currency: str, cluster_id: UUID, spans: Sequence[PriceSpan], at: datetime) -> Sequence[PriceSpan]:
    """Those of a cluster's prices that are known in this currency, in it. No query if all are in it already."""
    if all(span.currency == currency for span in spans):
        return spans
    owner = Cluster.objects.values_list("owner__path", flat=True).get(id=cluster_id)
    its = Comparison(_root(owner), at, currency)
    return [found for span in spans if (found := its.price(span)) is not None]


def comparable_rates(rates: Iterable[EgressRate], at: datetime) -> tuple[EgressRate, ...]:
    """The egress prices, each organisation's in the currency that its prices are compared in. Those that are not known there
    are left out.
    """
    by_owner: dict[str, list[EgressRate]] = defaultdict(list)
    for rate in rates:
        by_owner[rate.owner_path].append(rate)
    return tuple(rate for path, own in by_owner.items() for rate in _comparable(path, own, at))


def _comparable(path: str, rates: Sequence[EgressRate], at: datetime) -> Iterable[EgressRate]:
    own = Q(rate__cluster__owner__path=path) | Q(rate__cluster__owner__path__startswith=f"{path}/")
    prices = Price.objects.filter(own, rate__cluster__removed_at__isnull=True)
    prices = prices.filter(Q(valid__endswith__isnull=True) | Q(valid__endswith__gt=at))
    currencies = set(prices.values_list("currency", flat=True).distinct()) or {rate.currency for rate in rates}
    if currencies == {rate.currency for rate in rates} and len(currencies) == 1:
        yield from rates
        return
    its = Comparison(path, at, next(iter(currencies)) if len(currencies) == 1 else "")
    for rate in rates:
        amount = its.amount(rate.price_per_gib, rate.currency)
        if amount is not None:
            yield replace(rate, price_per_gib=amount, currency=its.currency)


def _compared(comparison: Comparison | None, view: PriceView | None) -> PriceView | None:
    return view if comparison is None else comparison.price(view)


def _views(announced: Announced) -> Iterable[PriceView]:
    return (view for later in announced.values() for _, view in later if view is not None)


def _root(path: str) -> str:
    return path.partition("/")[0]

"""Gives time of a rate another price: time that was metered by corrections, other time by prices."""

from collections.abc import Sequence
from datetime import datetime

from psycopg.types.range import TimestamptzRange

from billing.engine.months import midnight, next_month
from billing.engine.price_book import NEVER, Difference, Values
from billing.engine.price_file import RateName
from billing.models import LedgerPeriod, Price, Rate
from clusters.models import Cluster
from foundation.plain_json import instant
from foundation.problems import Conflict
from tenancy.operations import record_audit
from tenancy.queries import Actor

from .corrections import NewCorrection, write_correction
from .prices import NewPrice, capacity_type_for, refuse_mixed_currencies, used_until, write_price

REASON = "price book file"
"""Of corrections, if the file does not say why."""


def move_prices(
    actor: Actor, cluster: Cluster, name: RateName, moved: Sequence[Difference], reason: str
) -> datetime | None:
    """Gives the time of each difference its price. Until when metered time was corrected; None if none was.

    In a transaction that rewrites the price book, for an actor who may set prices there. Raises Conflict `month_closed`
    for time in a closed month, `price_already_used` for metered time that cannot be corrected so; and as `create_price` and
    `correct_price`.
    """
    _refuse_closed_months(cluster, moved)
    for each in moved:
        if each.values is not None:
            capacity_type_for(cluster, _new_price(cluster, name, each.values))
    rate, _ = Rate.objects.get_or_create(cluster=cluster, flavor=name.flavor, capacity_type=name.capacity_type)
    used = [(each, used_until(rate, each.start) or each.start) for each in moved]
    for each, cut in used:
        if (each.until or NEVER) > cut:
            _replace(actor, rate, max(each.start, cut), each.until, each.values)
    corrected = None
    for each, cut in used:
        if each.start < cut:
            corrected = min(each.until or NEVER, cut)
            _correct(actor, rate, each, corrected, reason)
    return corrected


def _refuse_closed_months(cluster: Cluster, moved: Sequence[Difference]) -> None:
    organisation = cluster.owner.path.partition("/")[0]
    closed = LedgerPeriod.objects.filter(organisation__path=organisation, state=LedgerPeriod.State.CLOSED)
    months = list(closed.order_by("month").values_list("month", flat=True))
    for each in moved:
        for month in months:
            if midnight(month) < (each.until or NEVER) and midnight(next_month(month)) > each.start:
                told = (
                    f"{month:%Y-%m} is closed, and a file changes nothing in it: correct its price on the price's page"
                )
                raise Conflict(told, code="month_closed")


def _new_price(cluster: Cluster, name: RateName, values: Values) -> NewPrice:
    return NewPrice(
        cluster.name,
        name.flavor,
        values.unit_price,
        values.currency,
        name.capacity_type,
        cpu_price=values.cpu_price,
        memory_price=values.memory_price,
        interruptions_per_hour=values.interruptions_per_hour,
    )


def _replace(actor: Actor, rate: Rate, start: datetime, until: datetime | None, values: Values | None) -> None:
    """Gives [start, until), which was not metered, this price. What prices had before and after it stays."""
    for price in list(Price.objects.filter(rate=rate, valid__overlap=TimestamptzRange(start, until)).order_by("valid")):
        upper = price.valid.upper
        if price.valid.lower < start:
            Price.objects.filter(id=price.id).update(valid=TimestamptzRange(price.valid.lower, start))
        else:
            Price.objects.filter(id=price.id).delete()
        if until is not None and (upper is None or upper > until):
            _again(price, until, upper)
        if values is None:
            _record_end(actor, price, max(start, price.valid.lower))
    if values is not None:
        refuse_mixed_currencies(rate.cluster.owner.path, values.currency, start)
        name = RateName(rate.cluster.name, rate.flavor, rate.capacity_type)
        write_price(actor, rate, _new_price(rate.cluster, name, values), start, until)


def _again(price: Price, start: datetime, until: datetime | None) -> None:
    """The rest of a price that another one interrupts."""
    Price.objects.create(
        rate_id=price.rate_id,
        unit_price=price.unit_price,
        cpu_price=price.cpu_price,
        memory_price=price.memory_price,
        currency=price.currency,
        interruptions_per_hour=price.interruptions_per_hour,
        own_costs=price.own_costs,
        valid=TimestamptzRange(start, until),
    )


def _correct(actor: Actor, rate: Rate, each: Difference, until: datetime, reason: str) -> None:
    if each.values is None:
        told = (
            f"Work on {rate.flavor} was already metered until {instant(until)}; its price can end then at the earliest."
        )
        raise Conflict(told, code="price_already_used")
    price = Price.objects.filter(rate=rate, currency=each.values.currency).order_by("-valid").first()
    if price is None:
        told = f"Metered time of {rate.flavor} is corrected in the currency of its price; it has none in {each.values.currency}."
        raise Conflict(told, code="price_already_used")
    write_correction(
        actor,
        NewCorrection(
            price_id=price.id,
            unit_price=each.values.unit_price,
            currency=each.values.currency,
            start=each.start,
            until=until,
            reason=reason or REASON,
            cpu_price=each.values.cpu_price,
            memory_price=each.values.memory_price,
        ),
    )


def _record_end(actor: Actor, price: Price, at: datetime) -> None:
    record_audit(
        actor,
        "price.end",
        object_kind="price",
        object_id=price.id,
        tenant_id=price.rate.cluster.owner_id,
        detail={
            "cluster": price.rate.cluster.name,
            "flavor": price.rate.flavor,
            "capacity_type": price.rate.capacity_type,
            "ended_at": instant(at),
        },
    )

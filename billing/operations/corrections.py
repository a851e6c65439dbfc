"""Corrects what a rate cost in past time. What was observed remains; the ledger posts the difference."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db import transaction
from django.db.models import Max
from psycopg.types.range import TimestamptzRange

from billing import locks
from billing.engine.corrected import Correction, correction_id
from billing.engine.rating import PriceSpan, whole_milliseconds
from billing.models import Price, PriceCorrection
from billing.queries.corrections import Effect, effects_of, price_to_correct
from foundation.clock import database_now
from foundation.outbox import announce
from foundation.plain_json import instant
from foundation.problems import Invalid
from tenancy.operations import record_audit
from tenancy.queries import Actor

from .prices import refuse_two_core_prices


@dataclass(frozen=True, slots=True)
class NewCorrection:
    """What the rate of `price_id` should have cost in [start, until). None: the unit's price includes it."""

    price_id: UUID
    unit_price: Decimal
    currency: str
    start: datetime
    until: datetime
    reason: str
    cpu_price: Decimal | None = None
    memory_price: Decimal | None = None


def preview_correction(actor: Actor, wanted: NewCorrection) -> tuple[Effect, ...]:
    """What the correction would change, by tenant path. Raises what `correct_price` raises."""
    price, span = _checked(actor, wanted)
    latest = PriceCorrection.objects.aggregate(last=Max("id"))["last"] or 0
    return effects_of(price.rate, Correction(latest + 1, span))


def correct_price(actor: Actor, wanted: NewCorrection) -> tuple[PriceCorrection, tuple[Effect, ...]]:
    """The correction, and what it changes of the time metered so far.

    Later corrections replace earlier ones where they overlap. Raises NotFound, NotAllowedHere, Invalid (`in_the_future`,
    `empty_period`, `mixed_currencies`, `priced_by_the_core`, `span_too_large`).
    """
    with transaction.atomic():
        locks.rewrite_price_book()
        effects = preview_correction(actor, wanted)
        correction = write_correction(actor, wanted)
    correction.refresh_from_db()
    return correction, effects


def write_correction(actor: Actor, wanted: NewCorrection) -> PriceCorrection:
    """The correction, without what it changes; in a transaction that rewrites the price book. Raises as `correct_price`."""
    price, span = _checked(actor, wanted)
    correction = PriceCorrection.objects.create(
        rate=price.rate,
        span=TimestamptzRange(span.valid_from, span.valid_until),
        unit_price=wanted.unit_price,
        cpu_price=wanted.cpu_price,
        memory_price=wanted.memory_price,
        currency=wanted.currency,
        reason=wanted.reason,
        made_by_id=actor.user_id,
        made_by_name=actor.name,
    )
    cluster = price.rate.cluster
    record_audit(
        actor,
        "price.correct",
        object_kind="price",
        object_id=price.id,
        tenant_id=cluster.owner_id,
        detail={
            "correction": correction.id,
            "cluster": cluster.name,
            "flavor": price.rate.flavor,
            "unit_price": format(wanted.unit_price, "f"),
            "cpu_price": None if wanted.cpu_price is None else format(wanted.cpu_price, "f"),
            "memory_price": None if wanted.memory_price is None else format(wanted.memory_price, "f"),
            "currency": wanted.currency,
            "effective_from": instant(span.valid_from),
            "effective_until": instant(span.valid_until),
            "reason": wanted.reason,
        },
    )
    announce("post")
    return correction


def _checked(actor: Actor, wanted: NewCorrection) -> tuple[Price, PriceSpan]:
    price = price_to_correct(actor, wanted.price_id)
    start, until = whole_milliseconds(wanted.start), whole_milliseconds(wanted.until)
    if start >= until:
        raise Invalid.field("effective_until", "empty_period", "the period ends before it begins")
    if until > database_now():
        raise Invalid.field(
            "effective_until", "in_the_future", "a correction is of past time; set a price for the time from now on"
        )
    if wanted.currency != price.currency:
        raise Invalid.field("currency", "mixed_currencies", f"prices of this flavor are in {price.currency}")
    refuse_two_core_prices(price.rate.cluster, price.rate.flavor, wanted.cpu_price)
    span = PriceSpan(
        correction_id(0), wanted.unit_price, wanted.currency, start, until, wanted.cpu_price, wanted.memory_price
    )
    return price, span

"""Plans and applies a price book file. Each change goes the way that pages and API use: a price, or a correction of past time.

A plan makes the same changes in a transaction that is rolled back, so its refusals are those of `apply`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from hashlib import sha256
from typing import Any

from django.db import transaction

from billing import locks
from billing.engine.corrected import Correction, correction_id
from billing.engine.months import midnight, month_before, next_month
from billing.engine.price_book import (
    NEVER,
    Book,
    BookPrice,
    Change,
    Difference,
    Values,
    changes,
    differences,
    ended_book,
    wanted_book,
)
from billing.engine.price_file import RateName, WantedBook, WantedPrice, plain, read_price_file
from billing.engine.rating import PriceSpan, whole_milliseconds
from billing.queries.corrections import Effect, effects_of_prices
from billing.queries.price_file import cluster_of_rate, price_books, rate_name, rates_of
from billing.queries.prices import RateKey
from clusters.models import Cluster
from clusters.queries import require_at_owner
from foundation.clock import database_now
from foundation.plain_json import instant
from foundation.plain_yaml import Mark
from foundation.problems import Conflict, FieldError, Invalid, NotFound, Problem
from foundation.reading import Refused
from foundation.transactions import retried
from tenancy.engine.roles import Permission
from tenancy.operations import record_audit
from tenancy.queries import Actor

from .price_spans import move_prices

MOST_CHANGES = 1000
"""In one transaction, while which no usage is rated."""
MOST_SHOWN = 100
NEWEST = 1 << 62
"""The number of a correction that is later than all others."""


@dataclass(frozen=True, slots=True)
class Note:
    """Why a change is refused: a stable code, and a text for users."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class PlannedPrice:
    """A change of a rate's prices. `corrected_until`: usage until then was metered, and its cost is corrected."""

    rate: RateName
    change: Change
    mark: Mark | None
    corrected_until: datetime | None = None
    refusal: Note | None = None


@dataclass(frozen=True, slots=True)
class PricePlan:
    """What a file changes. `digest` names exactly these changes of exactly these prices; `kept` are rates of the file's clusters that
    the file does not have. `effects` is what the new prices would have done in `month`, the last one that has ended; None if
    too much was metered then.
    """

    digest: str
    changes: tuple[PlannedPrice, ...]
    kept: tuple[RateName, ...]
    month: date
    effects: tuple[Effect, ...] | None = ()

    @property
    def refused(self) -> tuple[PlannedPrice, ...]:
        """The changes that the gateway refuses."""
        return tuple(one for one in self.changes if one.refusal is not None)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A rate with its prices, and those that the file wants."""

    cluster: Cluster
    name: RateName
    present: Book
    file: tuple[WantedPrice, ...]
    moved: tuple[Difference, ...]
    changes: tuple[Change, ...]

    @property
    def key(self) -> RateKey:
        return self.cluster.id, self.name.flavor, self.name.capacity_type


@retried
def plan_prices(actor: Actor, text: str, *, prune: bool = False) -> PricePlan:
    """What `apply_prices` would do and refuse, and what the new prices would have done last month. Changes nothing.

    The actor must be allowed to set the prices of all clusters that the file names. Raises Invalid with the place of each fault,
    NotAllowedHere, Conflict `too_many_changes`.
    """
    book = _read(text)
    with transaction.atomic():
        plan, asked = _carried_out(actor, book, prune=prune, expected="")
        transaction.set_rollback(True)
    return replace(plan, effects=_effects(asked, plan.month))


@retried
def apply_prices(actor: Actor, text: str, *, expected: str = "", prune: bool = False) -> PricePlan:
    """Makes the prices those of the file: all changes, or none. A second time, there is none to make.

    `expected` is the digest of a plan. Raises Conflict `prices_changed` if the prices or the changes are others now, and
    `plan_refused` with each refused change; otherwise as `plan_prices`.
    """
    book = _read(text)
    shown = plan_prices(actor, text, prune=prune)  # its month is read while usage is rated
    with transaction.atomic():
        plan, asked = _carried_out(actor, book, prune=prune, expected=expected)
        if plan.refused:
            raise _refusal(plan)
        if plan.changes:
            _record(actor, plan, prune=prune)
    return replace(plan, effects=shown.effects if plan.digest == shown.digest else _effects(asked, plan.month))


def _read(text: str) -> WantedBook:
    try:
        return read_price_file(text)
    except Refused as refused:
        errors = [FieldError(fault.field, fault.code, fault.detail) for fault in refused.faults]
        raise Invalid("; ".join(error.detail for error in errors[:3]), errors=errors) from None


def _carried_out(actor: Actor, book: WantedBook, *, prune: bool, expected: str) -> tuple[PricePlan, tuple[_Asked, ...]]:
    """Makes the changes that are possible, in the caller's transaction."""
    named = _clusters(actor, book)
    locks.rewrite_price_book()
    at = whole_milliseconds(database_now())
    asked, kept = _asked(book, named, at, prune=prune)
    listed = tuple(one for one in asked if one.moved)
    planned = [(one, change) for one in listed for change in one.changes]
    if len(planned) > MOST_CHANGES:
        told = (
            f"A file makes at most {MOST_CHANGES} changes at a time; this one makes {len(planned)}. Apply it in parts."
        )
        raise Conflict(told, code="too_many_changes")
    digest = _digest(listed)
    if expected not in {"", digest}:
        raise Conflict("The prices or the file changed after this plan: plan again.", code="prices_changed")
    tried = {one.key: _try(actor, one, book.reason) for one in listed}
    shown = tuple(_planned(one, change, *tried[one.key]) for one, change in planned)
    return PricePlan(digest, shown, kept, month_before(at.date())), listed


def _clusters(actor: Actor, book: WantedBook) -> dict[RateName, Cluster]:
    """The clusters that the file names, by rate."""
    found: dict[RateName, Cluster] = {}
    known: dict[tuple[str, str], Cluster] = {}
    errors: dict[tuple[str, str], FieldError] = {}
    for one in book.prices:
        which = (one.rate.owner, one.rate.cluster)
        if which in errors:
            continue
        try:
            known[which] = found[one.rate] = known.get(which) or cluster_of_rate(actor, one.rate)
        except NotFound:
            told = f"{one.mark}: you see no cluster of this name, or several; then name its owner"
            errors[which] = FieldError(f"{one.field}.cluster", "unknown_cluster", told)
    if errors:
        raise Invalid(next(iter(errors.values())).detail, errors=list(errors.values())[:MOST_SHOWN])
    for cluster in known.values():
        require_at_owner(actor, cluster, Permission.MANAGE_PRICES)
    _refuse_two_names(book, found)
    return found


def _refuse_two_names(book: WantedBook, found: Mapping[RateName, Cluster]) -> None:
    """A file names a cluster in one way, so that the prices of a rate stand together."""
    names: dict[RateKey, RateName] = {}
    for one in book.prices:
        key = (found[one.rate].id, one.rate.flavor, one.rate.capacity_type)
        if names.setdefault(key, one.rate) != one.rate:
            told = f"{one.mark}: another price names this cluster with its owner, or without: name it in one way"
            raise Invalid.field(f"{one.field}.owner", "given_twice", told)


def _asked(
    book: WantedBook, named: Mapping[RateName, Cluster], at: datetime, *, prune: bool
) -> tuple[list[_Asked], tuple[RateName, ...]]:
    """The rates of the file and, to prune, the others of its clusters; and those that are kept."""
    clusters = {cluster.id: cluster for cluster in named.values()}
    rates = {(rate.cluster_id, rate.flavor, rate.capacity_type): rate for rate in rates_of(clusters.values())}
    books = price_books(rates.values(), at)
    asked: list[_Asked] = []
    for name, file in book.by_rate.items():
        cluster = named[name]
        rate = rates.pop((cluster.id, name.flavor, name.capacity_type), None)
        present = books.get(rate.id, ()) if rate else ()
        wanted = wanted_book(present, [one.price for one in file], at, prune=prune)
        asked.append(_compared(cluster, name, present, wanted, file, at))
    owners = {named[name].id: bool(name.owner) for name in named}
    rest = [(rate, rate_name(rate, with_owner=owners[rate.cluster_id])) for rate in rates.values()]
    unnamed = [(rate, name, books.get(rate.id, ())) for rate, name in rest]
    if not prune:
        return asked, tuple(name for _, name, present in unnamed if any(one.end > at for one in present))
    for rate, name, present in unnamed:
        one = _compared(clusters[rate.cluster_id], name, present, ended_book(present, at), (), at)
        # When it ends is not known before: a plan does not say it, so that it stays the same plan.
        asked.append(replace(one, changes=tuple(replace(each, after=None) for each in one.changes)))
    return asked, ()


def _compared(
    cluster: Cluster, name: RateName, present: Book, wanted: Book, file: tuple[WantedPrice, ...], at: datetime
) -> _Asked:
    moved = differences(present, wanted, at)
    return _Asked(cluster, name, present, file, moved, changes(present, wanted, moved))


def _digest(asked: Sequence[_Asked]) -> str:
    """Of the prices of each rate that changes, and of what changes at it."""
    found = [
        [
            *one.name,
            f"{one.cluster.id}",
            [price_values(each) for each in one.present],
            [shown_change(each) for each in one.changes],
        ]
        for one in asked
    ]
    return sha256(json.dumps(found, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def shown_change(change: Change) -> dict[str, Any]:
    """A change as plain JSON. What ends when the file is applied has no `after`."""
    return {
        "action": change.action,
        "from": instant(change.start),
        "before": None if change.before is None else price_values(change.before),
        "after": None if change.after is None else price_values(change.after),
    }


def price_values(price: BookPrice) -> dict[str, str | None]:
    """A price as plain JSON."""
    values = price.values
    return {
        "from": instant(price.start),
        "until": instant(price.until),
        "unit_price": plain(values.unit_price),
        "currency": values.currency,
        "cpu_price": None if values.cpu_price is None else plain(values.cpu_price),
        "memory_price": None if values.memory_price is None else plain(values.memory_price),
        "interruptions_per_hour": None
        if values.interruptions_per_hour is None
        else plain(values.interruptions_per_hour),
    }


def _try(actor: Actor, one: _Asked, reason: str) -> tuple[Note | None, datetime | None]:
    """Makes the changes of a rate: why they are refused, or until when metered time is corrected."""
    try:
        with transaction.atomic():
            return None, move_prices(actor, one.cluster, one.name, one.moved, reason)
    except Problem as problem:
        error = problem.errors[0] if problem.errors else None
        return Note(error.code if error else problem.code, error.detail if error else problem.detail), None


def _planned(one: _Asked, change: Change, refusal: Note | None, corrected: datetime | None) -> PlannedPrice:
    mark = next((each.mark for each in one.file if each.price.start == change.start), None)
    touched = corrected is not None and change.start < corrected
    return PlannedPrice(one.name, change, mark, corrected if touched else None, refusal)


def _effects(asked: Sequence[_Asked], month: date) -> tuple[Effect, ...] | None:
    """What last month would have cost, by tenant."""
    start, until = midnight(month), midnight(next_month(month))
    try:
        found = effects_of_prices({one.key: _in_month(one, start, until) for one in asked}, start, until)
    except Invalid:
        return None
    return tuple(one for one in found if one.old != one.new)


def _in_month(one: _Asked, start: datetime, until: datetime) -> list[Correction] | None:
    """What the file changes in the month. If it changes nothing there: the newest price that it changes, for all of the month; None
    if all that changes is that prices end.
    """
    spans = [
        _span(each.values, max(each.start, start), min(each.until or NEVER, until))
        for each in one.moved
        if each.values is not None and each.start < until and (each.until or NEVER) > start
    ]
    newest = next((each.values for each in reversed(one.moved) if each.values is not None), None)
    if not spans and newest is not None:
        spans = [_span(newest, start, until)]
    return [Correction(NEWEST + number, span) for number, span in enumerate(spans)] or None


def _span(values: Values, start: datetime, until: datetime) -> PriceSpan:
    amounts = values.unit_price, values.currency, start, until, values.cpu_price, values.memory_price
    return PriceSpan(correction_id(0), *amounts)


def _refusal(plan: PricePlan) -> Conflict:
    errors = [
        FieldError(
            str(one.rate), one.refusal.code, f"{one.mark}: {one.refusal.detail}" if one.mark else one.refusal.detail
        )
        for one in plan.refused[:MOST_SHOWN]
        if one.refusal is not None
    ]
    told = f"Nothing is applied: {len(plan.refused)} of {len(plan.changes)} changes are refused. {errors[0].detail}"
    return Conflict(told, code="plan_refused", errors=errors)


def _record(actor: Actor, plan: PricePlan, *, prune: bool) -> None:
    """One entry for the file. Each change has its own from its operation."""
    clusters = sorted({one.rate.cluster for one in plan.changes})
    record_audit(
        actor,
        "prices.apply",
        object_kind="price_book",
        object_id=clusters[0][:64],
        detail={"plan": plan.digest, "changes": len(plan.changes), "clusters": clusters[:MOST_SHOWN], "prune": prune},
    )

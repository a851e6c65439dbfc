"""Plans and applies a file of commitments. A change is a new version; days that it concerns are split again."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Any, Literal, TypeAlias
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from billing import locks
from billing.engine.commitment_file import NotCommitments, Wanted, WantedRate, read_commitments
from billing.engine.commitments import Commitment as Terms
from billing.engine.ledger import units
from billing.engine.months import midnight
from billing.engine.savings_plans import PlanRate
from billing.models import Commitment, CommitmentVersion, LedgerPeriod, Rate
from billing.queries.commitment_report import Borne, preview_of
from billing.queries.commitments import newest_versions, terms_of_version
from billing.queries.committed_clusters import CommittedClusters
from billing.queries.sharing import organisation_at
from clusters.models import Flavor
from foundation.clock import database_now
from foundation.outbox import announce
from foundation.plain_json import instant
from foundation.problems import Conflict, Invalid
from tenancy.models import Tenant
from tenancy.operations import record_audit
from tenancy.queries import Actor

from .prices import refuse_mixed_currencies

Action: TypeAlias = Literal["create", "change", "withdraw"]
Values: TypeAlias = Mapping[str, Any]
"""A commitment as plain JSON, with every field of a file."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a file changes of one commitment. `before` is None if it is new."""

    action: Action
    name: str
    before: Values | None
    after: Values


@dataclass(frozen=True, slots=True)
class Effect:
    """What a tenant would have borne of the month before, without and with the changes."""

    tenant: str
    currency: str
    before: Borne
    after: Borne


@dataclass(frozen=True, slots=True)
class Plan:
    """What a file changes, and what that would have done in `month`, the last one that has ended; amounts in 10**-12."""

    organisation: str
    changes: tuple[Change, ...]
    month: date
    effects: tuple[Effect, ...] = ()
    amortised: tuple[int, int] = (0, 0)
    unused: tuple[int, int] = (0, 0)

    @property
    def digest(self) -> str:
        """Names exactly these changes."""
        text = json.dumps([self.organisation, [asdict(one) for one in self.changes]], sort_keys=True)
        return sha256(text.encode()).hexdigest()


def plan_commitments(actor: Actor, path: str, text: str) -> Plan:
    """What the file would change. Raises NotFound, NotAllowedHere, Invalid."""
    organisation = organisation_at(actor, path, may_close=True)
    asked = _read(organisation, text)
    return _with_preview(_plan(organisation, asked), organisation, asked)


def apply_commitments(actor: Actor, path: str, text: str, expected: str = "") -> Plan:
    """Makes the commitments those of the file: all changes or none. What is not in the file is left as it is.

    Raises NotFound, NotAllowedHere, Invalid, Conflict `commitments_changed` if the plan is not the expected one.
    """
    organisation = organisation_at(actor, path, may_close=True)
    # The preview reads a month of usage. It comes first, because no usage is rated while the price book is locked.
    shown = plan_commitments(actor, path, text)
    with transaction.atomic():
        locks.rewrite_price_book()
        asked = _read(organisation, text)
        plan = _plan(organisation, asked)
        if expected not in {"", plan.digest}:
            raise Conflict("The plan is no longer what it was: plan again.", code="commitments_changed")
        if plan.digest != shown.digest:
            shown = _with_preview(plan, organisation, asked)
        by_name = {one.wanted.name: one for one in asked}
        for change in plan.changes:
            _write(actor, organisation, by_name[change.name])
            record_audit(
                actor, f"commitment.{change.action}", object_kind="commitment", object_id=change.name,
                tenant_id=organisation.id, detail=dict(change.after),
            )  # fmt: skip
        if plan.changes:
            announce("post")
    return shown


@dataclass(frozen=True, slots=True)
class _Asked:
    """A commitment of a file, with the ids of its clusters and their names as plans show them, and the version that applies."""

    wanted: Wanted
    ids: tuple[UUID, ...]
    clusters: tuple[str, ...]
    before: CommitmentVersion | None
    before_clusters: tuple[str, ...] = ()


def _read(organisation: Tenant, text: str) -> tuple[_Asked, ...]:
    try:
        wanted = read_commitments(text)
    except NotCommitments as error:
        raise Invalid.field(error.field, error.code, str(error)) from error
    rows = {row.commitment.name: row for row in newest_versions(organisation.id)}
    clusters, begins = CommittedClusters(organisation), _ledger_begins(organisation)
    asked = []
    for number, one in enumerate(wanted):
        asked.append(_resolved(one, rows.get(one.name), clusters, f"commitments[{number}]"))
        _refuse_what_does_not_fit(asked[-1], begins, f"commitments[{number}]")
    _refuse_other_currencies(organisation, wanted)
    return tuple(asked)


def _resolved(one: Wanted, before: CommitmentVersion | None, clusters: CommittedClusters, where: str) -> _Asked:
    known = before.clusters if before else ()
    found = {name: clusters.id_of(name, known) for name in one.clusters}
    ids = {id_ for id_ in found.values() if id_ is not None}
    if unknown := [name for name, id_ in found.items() if id_ is None]:
        raise Invalid.field(f"{where}.clusters", "unknown_cluster", f"there is no cluster {unknown[0][:63]} here")
    if len(ids) < len(found):
        raise Invalid.field(f"{where}.clusters", "given_twice", "a cluster appears twice")
    return _Asked(one, tuple(sorted(ids)), tuple(clusters.shown(ids)), before, tuple(clusters.shown(known)))


def _refuse_what_does_not_fit(asked: _Asked, begins: datetime, where: str) -> None:
    """What applies already is not asked again: a flavor may be gone since, and a commitment can always be withdrawn."""
    one, before = asked.wanted, asked.before
    kinds = set() if before is None else set(terms_of_version(before).kinds)
    for number, (flavor, capacity_type) in enumerate(one.kinds):
        is_known = before is not None and (flavor, capacity_type) in kinds
        applies = is_known and (one.is_withdrawn or before is None or sorted(before.clusters) == list(asked.ids))
        known = Q(cluster__in=asked.ids, capacity_type=capacity_type)
        if (
            not applies
            and not Flavor.objects.filter(known, name=flavor).exists()
            and not Rate.objects.filter(known, flavor=flavor).exists()
        ):
            its = f"{where}.rates[{number}].flavor" if one.rates else f"{where}.flavor"
            detail = f"none of these clusters offers a flavor {flavor} that is {capacity_type}"
            raise Invalid.field(its, "unknown_flavor", detail)
    if before is not None and before.currency != one.currency:
        detail = f"the versions of a commitment have one currency, {before.currency}"
        raise Invalid.field(f"{where}.currency", "mixed_currencies", detail)
    if one.start < begins and not one.is_withdrawn and (before is None or one.start < before.start):
        detail = f"the ledger begins with {begins:%Y-%m}: let it begin then, with what is left of its cost"
        raise Invalid.field(f"{where}.start", "before_the_ledger", detail)


def _refuse_other_currencies(organisation: Tenant, wanted: Sequence[Wanted]) -> None:
    given = {one.currency: number for number, one in reversed(list(enumerate(wanted))) if not one.is_withdrawn}
    for number, currency in sorted((number, currency) for currency, number in given.items()):
        try:
            refuse_mixed_currencies(organisation.path, currency, wanted[number].start)
        except Invalid as error:
            code = error.errors[0].code
            raise Invalid.field(f"commitments[{number}].currency", code, str(error)) from error
    others = newest_versions(organisation.id).filter(is_withdrawn=False)
    others = others.exclude(commitment__name__in=[one.name for one in wanted])
    if len(given) > 1 or (given and others.exclude(currency__in=given).exists()):
        number = max(given.values())
        detail = "the commitments of an organisation are in one currency"
        raise Invalid.field(f"commitments[{number}].currency", "mixed_currencies", detail)


def _ledger_begins(organisation: Tenant) -> datetime:
    """The start of the organisation's first month; without one, of the current month."""
    first = (
        LedgerPeriod.objects.filter(organisation=organisation).order_by("month").values_list("month", flat=True).first()
    )
    return midnight(first or database_now().date().replace(day=1))


def _plan(organisation: Tenant, asked: Sequence[_Asked]) -> Plan:
    """The changes, without a preview."""
    changes = []
    for each in asked:
        one = each.wanted
        before = None if each.before is None else values_of_row(each.before, each.before_clusters)
        after = _values(one, each.clusters)
        if before != after and not (before is None and one.is_withdrawn):
            action: Action = "create" if before is None else "withdraw" if one.is_withdrawn else "change"
            changes.append(Change(action, one.name, before, after))
    month = (database_now().date().replace(day=1) - timedelta(days=1)).replace(day=1)
    return Plan(organisation.path, tuple(changes), month)


def _with_preview(plan: Plan, organisation: Tenant, asked: Sequence[_Asked]) -> Plan:
    if not plan.changes:
        return plan
    rows = {row.commitment.name: row for row in newest_versions(organisation.id)}
    now = {name: terms_of_version(row) for name, row in rows.items() if not row.is_withdrawn}
    then = dict(now)
    for each in asked:
        one = each.wanted
        then.pop(one.name, None)
        if not one.is_withdrawn:
            id_ = rows[one.name].commitment_id if one.name in rows else UUID(int=0)
            then[one.name] = Terms(
                id_, 0, one.name, frozenset(each.ids), one.flavor, one.capacity_type, one.units,
                one.start, one.until, units(one.upfront), units(one.recurring), one.currency, units(one.hourly),
                tuple(PlanRate(each.flavor, each.capacity_type, units(each.rate)) for each in one.rates),
            )  # fmt: skip
    amortised, unused, before = preview_of(organisation.id, plan.month, list(now.values()))
    amortised_then, unused_then, after = preview_of(organisation.id, plan.month, list(then.values()))
    effects = tuple(
        Effect(*key, before.get(key, Borne()), after.get(key, Borne()))
        for key in sorted({*before, *after}) if before.get(key) != after.get(key)
    )  # fmt: skip
    return replace(plan, effects=effects, amortised=(amortised, amortised_then), unused=(unused, unused_then))


def _write(actor: Actor, organisation: Tenant, asked: _Asked) -> None:
    one = asked.wanted
    commitment, _ = Commitment.objects.get_or_create(organisation=organisation, name=one.name)
    latest = (
        CommitmentVersion.objects.filter(commitment=commitment).order_by("-number").values_list("number", flat=True)
    )
    CommitmentVersion.objects.create(
        commitment=commitment,
        number=(latest.first() or 0) + 1,
        kind=one.kind,
        clusters=list(asked.ids),
        flavor=one.flavor,
        capacity_type=one.capacity_type,
        units=one.units,
        start=one.start,
        until=one.until,
        upfront=one.upfront,
        recurring=one.recurring,
        total=one.total,
        hourly=one.hourly,
        rates=[[each.flavor, each.capacity_type, _amount(each.rate)] for each in one.rates],
        currency=one.currency,
        is_withdrawn=one.is_withdrawn,
        made_by_id=actor.user_id,
        made_by_name=actor.name,
    )


def values_of_row(row: CommitmentVersion, clusters: Sequence[str]) -> dict[str, Any]:
    """A version with every field of a file; `clusters` are the names of its clusters."""
    rates = [WantedRate(flavor, capacity_type, Decimal(rate)) for flavor, capacity_type, rate in row.rates]
    return _values(
        Wanted(
            row.commitment.name, row.kind, (), row.flavor, row.capacity_type, row.units, row.start, row.until, row.currency,
            row.upfront, row.recurring, row.is_withdrawn, row.hourly, tuple(rates),
        ), clusters,
    )  # fmt: skip


def _values(one: Wanted, clusters: Sequence[str]) -> dict[str, Any]:
    """Every field, of either kind: what the other kind has is empty or zero."""
    rates = [
        {"flavor": each.flavor, "capacity_type": each.capacity_type, "rate": _amount(each.rate)} for each in one.rates
    ]
    return {
        "name": one.name, "kind": one.kind, "clusters": list(clusters), "flavor": one.flavor,
        "capacity_type": one.capacity_type, "units": one.units, "start": instant(one.start), "until": instant(one.until),
        "currency": one.currency, "upfront": _amount(one.upfront), "recurring": _amount(one.recurring),
        "withdrawn": one.is_withdrawn, "hourly": _amount(one.hourly), "rates": rates,
    }  # fmt: skip


def _amount(amount: Decimal) -> str:
    return f"{amount:.6f}"

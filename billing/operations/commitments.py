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
from billing.engine.commitment_file import NotCommitments, Wanted, read_commitments
from billing.engine.commitments import Commitment as Terms
from billing.engine.commitments import payment_times
from billing.engine.ledger import units
from billing.engine.months import midnight
from billing.models import Commitment, CommitmentVersion, LedgerPeriod, Rate
from billing.queries.commitment_report import Borne, preview_of
from billing.queries.commitments import newest_versions, terms_of_version
from billing.queries.sharing import organisation_at
from clusters.models import Cluster, Flavor
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
    return _plan(organisation, _read(organisation, text))


def apply_commitments(actor: Actor, path: str, text: str, expected: str = "") -> Plan:
    """Makes the commitments those of the file: all changes or none. What is not in the file is left as it is.

    Raises NotFound, NotAllowedHere, Invalid, Conflict `commitments_changed` if the plan is not the expected one.
    """
    organisation = organisation_at(actor, path, may_close=True)
    with transaction.atomic():
        locks.rewrite_price_book()
        wanted = _read(organisation, text)
        plan = _plan(organisation, wanted)
        if expected not in {"", plan.digest}:
            raise Conflict("The plan is no longer what it was: plan again.", code="commitments_changed")
        by_name = {one.name: one for one in wanted}
        for change in plan.changes:
            _write(actor, organisation, by_name[change.name])
            record_audit(
                actor, f"commitment.{change.action}", object_kind="commitment", object_id=change.name,
                tenant_id=organisation.id, detail=dict(change.after),
            )  # fmt: skip
        if plan.changes:
            announce("post")
    return plan


def _read(organisation: Tenant, text: str) -> tuple[Wanted, ...]:
    try:
        wanted = read_commitments(text)
    except NotCommitments as error:
        raise Invalid.field(error.field, error.code, str(error)) from error
    clusters, begins = _clusters(organisation), _ledger_begins(organisation)
    for number, one in enumerate(wanted):
        unknown = [name for name in one.clusters if name not in clusters]
        if unknown:
            raise Invalid.field(
                f"commitments[{number}].clusters", "unknown_cluster", f"there is no cluster {unknown[0][:63]} here"
            )
        ids = [clusters[name] for name in one.clusters]
        known = Q(cluster__in=ids, capacity_type=one.capacity_type)
        if (
            not Flavor.objects.filter(known, name=one.flavor).exists()
            and not Rate.objects.filter(known, flavor=one.flavor).exists()
        ):
            detail = f"none of these clusters offers a flavor {one.flavor} that is {one.capacity_type}"
            raise Invalid.field(f"commitments[{number}].flavor", "unknown_flavor", detail)
        refuse_mixed_currencies(organisation.path, one.currency)
        if one.start < begins and not one.is_withdrawn:
            detail = f"the ledger begins with {begins:%Y-%m}: let it begin then, with what is left of its cost"
            raise Invalid.field(f"commitments[{number}].start", "before_the_ledger", detail)
    return wanted


def _ledger_begins(organisation: Tenant) -> datetime:
    """The start of the organisation's first month; without one, of the current month."""
    first = (
        LedgerPeriod.objects.filter(organisation=organisation).order_by("month").values_list("month", flat=True).first()
    )
    return midnight(first or database_now().date().replace(day=1))


def _clusters(organisation: Tenant) -> Mapping[str, UUID]:
    own = Q(owner=organisation) | Q(owner__path__startswith=f"{organisation.path}/")
    return dict(Cluster.objects.filter(own).values_list("name", "id"))


def _plan(organisation: Tenant, wanted: Sequence[Wanted]) -> Plan:
    names = {id_: name for name, id_ in _clusters(organisation).items()}
    rows = {row.commitment.name: row for row in newest_versions(organisation.id)}
    changes = []
    for number, one in enumerate(wanted):
        row = rows.get(one.name)
        if row is not None and row.currency != one.currency:
            detail = f"the versions of a commitment have one currency, {row.currency}"
            raise Invalid.field(f"commitments[{number}].currency", "mixed_currencies", detail)
        before = None if row is None else values_of_row(row, names)
        after = _values(one)
        if before != after and not (before is None and one.is_withdrawn):
            action: Action = "create" if before is None else "withdraw" if one.is_withdrawn else "change"
            changes.append(Change(action, one.name, before, after))
    month = (database_now().date().replace(day=1) - timedelta(days=1)).replace(day=1)
    plan = Plan(organisation.path, tuple(changes), month)
    return _with_preview(plan, organisation, rows, wanted) if changes else plan


def _with_preview(
    plan: Plan, organisation: Tenant, rows: Mapping[str, CommitmentVersion], wanted: Sequence[Wanted]
) -> Plan:
    ids = _clusters(organisation)
    now = {name: terms_of_version(row) for name, row in rows.items() if not row.is_withdrawn}
    then = dict(now)
    for one in wanted:
        then.pop(one.name, None)
        if not one.is_withdrawn:
            id_ = rows[one.name].commitment_id if one.name in rows else UUID(int=0)
            then[one.name] = Terms(
                id_, 0, one.name, frozenset(ids[name] for name in one.clusters), one.flavor, one.capacity_type, one.units,
                one.start, one.until, units(one.upfront), units(one.recurring), one.currency,
            )  # fmt: skip
    amortised, unused, before = preview_of(organisation.id, plan.month, list(now.values()))
    amortised_then, unused_then, after = preview_of(organisation.id, plan.month, list(then.values()))
    effects = tuple(
        Effect(*key, before.get(key, Borne()), after.get(key, Borne()))
        for key in sorted({*before, *after}) if before.get(key) != after.get(key)
    )  # fmt: skip
    return replace(plan, effects=effects, amortised=(amortised, amortised_then), unused=(unused, unused_then))


def _write(actor: Actor, organisation: Tenant, one: Wanted) -> None:
    commitment, _ = Commitment.objects.get_or_create(organisation=organisation, name=one.name)
    latest = (
        CommitmentVersion.objects.filter(commitment=commitment).order_by("-number").values_list("number", flat=True)
    )
    payments = sum(1 for _ in payment_times(one.start, one.until))
    ids = _clusters(organisation)
    CommitmentVersion.objects.create(
        commitment=commitment,
        number=(latest.first() or 0) + 1,
        kind=one.kind,
        clusters=sorted(ids[name] for name in one.clusters),
        flavor=one.flavor,
        capacity_type=one.capacity_type,
        units=one.units,
        start=one.start,
        until=one.until,
        upfront=one.upfront,
        recurring=one.recurring,
        total=one.upfront + one.recurring * payments,
        currency=one.currency,
        is_withdrawn=one.is_withdrawn,
        made_by_id=actor.user_id,
        made_by_name=actor.name,
    )


def values_of_row(row: CommitmentVersion, names: Mapping[UUID, str]) -> dict[str, Any]:
    """A version with every field of a file. A cluster that was removed is named by its id."""
    return {
        "name": row.commitment.name, "kind": row.kind, "clusters": sorted(names.get(id_, str(id_)) for id_ in row.clusters),
        "flavor": row.flavor, "capacity_type": row.capacity_type, "units": row.units, "start": instant(row.start),
        "until": instant(row.until), "currency": row.currency, "upfront": _amount(row.upfront),
        "recurring": _amount(row.recurring), "withdrawn": row.is_withdrawn,
    }  # fmt: skip


def _values(one: Wanted) -> dict[str, Any]:
    return {
        "name": one.name, "kind": one.kind, "clusters": list(one.clusters), "flavor": one.flavor,
        "capacity_type": one.capacity_type, "units": one.units, "start": instant(one.start), "until": instant(one.until),
        "currency": one.currency, "upfront": _amount(one.upfront), "recurring": _amount(one.recurring),
        "withdrawn": one.is_withdrawn,
    }  # fmt: skip


def _amount(amount: Decimal) -> str:
    return f"{amount:.6f}"

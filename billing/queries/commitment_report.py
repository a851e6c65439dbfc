"""What commitments did in a month: how much of them was used, how much of the usage they covered, and who bears what."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TypeAlias
from uuid import UUID

from django.db.models import QuerySet, Sum

from billing.engine.commitment_entries import COVERED_SHARE, UNUSED_SHARE, USED_SHARE
from billing.engine.commitments import Commitment as Terms
from billing.engine.commitments import DaySplit, split_day
from billing.engine.idle import Sharer
from billing.engine.ledger import units
from billing.engine.months import next_month
from billing.models import LedgerLine, LedgerPeriod, TenantDay
from clusters.models import Cluster, Flavor
from tenancy.models import Tenant
from tenancy.queries import Actor

from .commitments import newest_splits, runs_in, unsplit_days
from .sharing import clusters_of, organisation_at

Sums: TypeAlias = Mapping[tuple[str, str], "Borne"]
"""By the tenant's path and the currency."""


@dataclass(frozen=True, slots=True)
class Borne:
    """What a tenant bears of commitments, and what its covered usage was charged before, in 10**-12."""

    used: int = 0
    covered: int = 0

    @property
    def net(self) -> int:
        """What it pays more than without commitments; negative: what it saves."""
        return self.used - self.covered


@dataclass(frozen=True, slots=True)
class CommitmentMonth:
    """A commitment's month: `used + unused == amortised`; quantities in thousandths of a unit times milliseconds, of a savings plan
    in 10**-12 of its currency. `hourly` is its spend, and `flavors` what it covers.
    """

    name: str
    kind: str
    clusters: tuple[str, ...]
    flavor: str
    capacity_type: str
    units: int
    currency: str
    quantity: int
    used_quantity: int
    amortised: int
    used: int
    unused: int
    hourly: Decimal = Decimal(0)
    flavors: tuple[str, ...] = ()

    @property
    def is_plan(self) -> bool:
        """Whether it is a savings plan."""
        return bool(self.flavors)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the usage of a flavor commitments of capacity covered, in the same unit."""

    flavor: str
    quantity: int
    covered: int


@dataclass(frozen=True, slots=True)
class CommitmentReport:
    """An organisation's month. `is_closed`: the month is closed. `unsplit`: days that are not split yet."""

    organisation: str
    month: date
    is_closed: bool
    commitments: tuple[CommitmentMonth, ...]
    coverage: tuple[Coverage, ...]
    tenants: Sums
    unsplit: int


def commitment_report(actor: Actor, path: str, month: date) -> CommitmentReport:
    """The report, for users who see the whole organisation. Raises NotFound."""
    organisation = organisation_at(actor, path)
    splits = newest_splits(organisation.id, month, next_month(month))
    names = dict(
        Cluster.everything.filter(id__in={id_ for row in splits for id_ in row.version.clusters}).values_list(
            "id", "name"
        )
    )
    sums: dict[UUID, Counter[str]] = defaultdict(Counter)
    for row in splits:
        its = sums[row.commitment_id]
        for name in ("quantity", "used_quantity"):
            its[name] += int(getattr(row, name))
        for name in ("amortised", "used", "unused"):
            its[name] += units(getattr(row, name))
    newest = {row.commitment_id: row.version for row in splits}
    titles = {row.commitment_id: row.commitment.name for row in splits}
    rows = tuple(
        CommitmentMonth(
            titles[id_], newest[id_].kind, tuple(sorted(names[one] for one in newest[id_].clusters)), newest[id_].flavor,
            newest[id_].capacity_type, newest[id_].units, newest[id_].currency, its["quantity"], its["used_quantity"],
            its["amortised"], its["used"], its["unused"], newest[id_].hourly,
            tuple(sorted({flavor for flavor, *_ in newest[id_].rates})),
        )
        for id_, its in sorted(sums.items(), key=lambda each: titles[each[0]]) if its["quantity"]
    )  # fmt: skip
    is_closed = LedgerPeriod.objects.filter(
        organisation=organisation, month=month, state=LedgerPeriod.State.CLOSED
    ).exists()
    return CommitmentReport(
        organisation.path, month, is_closed, rows, _coverage(organisation, month, rows),
        _by_path(borne_in(organisation.id, month)), len(unsplit_days(organisation.id, month)),
    )  # fmt: skip


def borne_in(organisation_id: UUID, month: date, within: LedgerPeriod | None = None) -> dict[tuple[Sharer, str], Borne]:
    """What the ledger has of a month's days, in whichever period it was posted, or within one; by tenant and currency."""
    lines = _lines(organisation_id, month, within)
    lines = lines.filter(entry__flavor__in=[USED_SHARE, COVERED_SHARE], account__kind="tenant_expense")
    names = lines.values_list("entry__tenant_path", "account__tenant_id", "entry__flavor", "currency")
    sums: dict[tuple[Sharer, str], Counter[str]] = defaultdict(Counter)
    for path, tenant_id, flavor, currency, amount in names.annotate(sum=Sum("amount")).order_by():
        sums[(path, str(tenant_id)), currency][flavor] += units(amount)
    return {key: Borne(its[USED_SHARE], -its[COVERED_SHARE]) for key, its in sorted(sums.items())}


def _by_path(borne: Mapping[tuple[Sharer, str], Borne]) -> Sums:
    found: dict[tuple[str, str], Borne] = {}
    for ((path, _), currency), its in borne.items():
        before = found.get((path, currency), Borne())
        found[path, currency] = Borne(before.used + its.used, before.covered + its.covered)
    return found


def unused_in(organisation_id: UUID, month: date, within: LedgerPeriod | None = None) -> dict[str, int]:
    """What was unused in a month's days, by currency, likewise."""
    lines = _lines(organisation_id, month, within).filter(entry__flavor=UNUSED_SHARE, account__kind="commitment")
    sums = lines.values_list("currency").annotate(sum=Sum("amount")).order_by()
    return {currency: -units(amount) for currency, amount in sums if amount}


def _lines(organisation_id: UUID, month: date, within: LedgerPeriod | None) -> QuerySet[LedgerLine]:
    lines = LedgerLine.objects.filter(
        entry__organisation=organisation_id, entry__charge_day__gte=month, entry__charge_day__lt=next_month(month)
    )
    return lines.filter(entry__period=within) if within else lines


def preview_of(
    organisation_id: UUID, month: date, commitments: Sequence[Terms]
) -> tuple[int, int, dict[tuple[str, str], Borne]]:
    """What these commitments would do in a month: amortised, unused (both of all currencies), and what tenants would bear."""
    amortised = unused = 0
    sums: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for split in _splits(organisation_id, month, commitments):
        amortised += split.amortised
        unused += split.unused
        for (_, path, _), amount in split.used.items():
            sums[path, split.commitment.currency]["used"] += amount
        for (_, path, _), amounts in split.covered.items():
            for currency, amount in amounts.items():
                sums[path, currency]["covered"] += amount
    return amortised, unused, {key: Borne(its["used"], its["covered"]) for key, its in sorted(sums.items())}


def _splits(organisation_id: UUID, month: date, commitments: Sequence[Terms]) -> list[DaySplit]:
    if not commitments:
        return []
    runs = runs_in(organisation_id, month, next_month(month), commitments)
    days = [month.replace(day=number + 1) for number in range((next_month(month) - month).days)]
    return [split for day in days for split in split_day(day, commitments, runs.get(day, []))]


def _coverage(organisation: Tenant, month: date, months: Sequence[CommitmentMonth]) -> tuple[Coverage, ...]:
    rows = [one for one in months if not one.is_plan]
    days = TenantDay.objects.filter(
        organisation=organisation, day__gte=month, day__lt=next_month(month), cluster__in=clusters_of(organisation),
        flavor__in={one.flavor for one in rows},
    )  # fmt: skip
    by_gpu = Flavor.objects.filter(cluster__in=clusters_of(organisation), name__in={one.flavor for one in rows})
    by_gpu_names = set(by_gpu.exclude(gpu_model="").values_list("name", flat=True))
    used: Counter[str] = Counter()
    for flavor, gpu, cpu in (
        days.values_list("flavor")
        .annotate(gpu=Sum("gpu_milliseconds"), cpu=Sum("cpu_millicore_milliseconds"))
        .order_by()
    ):
        # Pods without GPUs on nodes with GPUs use none of them, however many cores they have.
        used[flavor] += int(gpu) * 1000 if gpu or flavor in by_gpu_names else int(cpu)
    covered: Counter[str] = Counter()
    for one in rows:
        covered[one.flavor] += one.used_quantity
    return tuple(Coverage(flavor, used[flavor], covered[flavor]) for flavor in sorted(covered))

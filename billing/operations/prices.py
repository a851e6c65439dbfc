"""Prices by date. A new price replaces prices scheduled after its start; what was charged does not change."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.db.models import F, Max, Q
from psycopg.types.range import TimestamptzRange

from billing import locks
from billing.engine.currencies import CURRENCIES
from billing.engine.own_costs import FORMULA, OwnCosts, Steps, rate_of, steps_of
from billing.engine.rating import whole_milliseconds
from billing.models import Budget, EgressPrice, Meter, Price, Rate, ReplacedSegment
from billing.queries.budget_rates import Pair, known_rates
from billing.queries.commitments import newest_versions
from billing.queries.exchange import billing_currency_of
from clusters.models import Cluster, Flavor
from clusters.queries import cluster_by_name, require_at_owner
from foundation.clock import now
from foundation.plain_json import instant
from foundation.problems import Conflict, Invalid
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.operations import record_audit
from tenancy.queries import Actor

SPOT = "spot"


@dataclass(frozen=True, slots=True)
class NewPrice:
    """A price to set. Without `effective_from` it begins now; without `capacity_type` it has the flavor's.

    `cpu_price` (per core) and `memory_price` (per GiB) apply in addition to the unit's price; None: the unit's price
    includes them.
    """

    cluster_name: str
    flavor: str
    unit_price: Decimal
    currency: str = "USD"
    capacity_type: str = ""
    effective_from: datetime | None = None
    cpu_price: Decimal | None = None
    memory_price: Decimal | None = None
    interruptions_per_hour: Decimal | None = None
    """Of spot capacity; None: the default from the settings."""
    own_costs: OwnCosts | None = None
    """What gives `unit_price` and `currency`; None: they were given."""

    @classmethod
    def from_own_costs(cls, cluster_name: str, flavor: str, costs: OwnCosts, **more: Any) -> "NewPrice":
        """The price that these costs give; `more`: the other fields."""
        return cls(cluster_name, flavor, rate_of(costs), costs.currency, own_costs=costs, **more)


def create_price(actor: Actor, wanted: NewPrice) -> Price:
    """The new price, in force from its start until another replaces it.

    The earlier price ends where this one begins; prices scheduled for later are withdrawn. Raises NotFound and
    NotAllowedHere (cluster), Invalid (`unknown_flavor`, `unknown_currency`, `mixed_currencies`, `no_exchange_rate`, `priced_by_the_core`, `not_spot`), Conflict
    `price_already_used` if work was already metered at or after its start.
    """
    cluster = cluster_by_name(actor, wanted.cluster_name)
    require_at_owner(actor, cluster, Permission.MANAGE_PRICES)
    capacity_type = capacity_type_for(cluster, wanted)
    with transaction.atomic():
        locks.rewrite_price_book()
        begins = whole_milliseconds(wanted.effective_from or now())
        refuse_mixed_currencies(cluster.owner.path, wanted.currency, begins)
        rate, _ = Rate.objects.get_or_create(cluster=cluster, flavor=wanted.flavor, capacity_type=capacity_type)
        _refuse_used_time(rate, begins)
        _make_room(rate, begins)
        price = write_price(actor, rate, wanted, begins)
    return Price.objects.select_related("rate__cluster").get(id=price.id)


def capacity_type_for(cluster: Cluster, wanted: NewPrice) -> str:
    """The capacity type of the price. Raises Invalid as `create_price` does for a flavor that cannot have this price."""
    capacity_type = _capacity_type(cluster, wanted)
    refuse_two_core_prices(cluster, wanted.flavor, wanted.cpu_price)
    if wanted.interruptions_per_hour is not None and capacity_type != SPOT:
        raise Invalid.field("interruptions_per_hour", "not_spot", f"{wanted.flavor} is {capacity_type} there")
    return capacity_type


def write_price(actor: Actor, rate: Rate, wanted: NewPrice, begins: datetime, until: datetime | None = None) -> Price:
    """The price in [begins, until), which nothing else has; in a transaction that rewrites the price book."""
    price = Price.objects.create(
        rate=rate,
        unit_price=wanted.unit_price,
        cpu_price=wanted.cpu_price,
        memory_price=wanted.memory_price,
        currency=wanted.currency,
        interruptions_per_hour=wanted.interruptions_per_hour,
        own_costs=wanted.own_costs and wanted.own_costs.stored(),
        valid=TimestamptzRange(begins, until),
    )
    record_audit(
        actor,
        "price.create",
        object_kind="price",
        object_id=price.id,
        tenant_id=rate.cluster.owner_id,
        detail={
            "cluster": rate.cluster.name,
            "flavor": rate.flavor,
            "capacity_type": rate.capacity_type,
            "unit_price": format(wanted.unit_price, "f"),
            "cpu_price": _text(wanted.cpu_price),
            "memory_price": _text(wanted.memory_price),
            "interruptions_per_hour": _text(wanted.interruptions_per_hour),
            "currency": wanted.currency,
            "effective_from": instant(begins),
            **({} if until is None else {"effective_until": instant(until)}),
            **({} if wanted.own_costs is None else {"formula": FORMULA}),
        },
    )
    return price


def try_own_costs(actor: Actor, wanted: NewPrice, costs: OwnCosts) -> Steps:
    """How the price comes about from its costs; stores nothing. For those who may set it: raises as `create_price` does for the
    cluster, the flavor and its capacity type.
    """
    cluster = cluster_by_name(actor, wanted.cluster_name)
    require_at_owner(actor, cluster, Permission.MANAGE_PRICES)
    _capacity_type(cluster, wanted)
    return steps_of(costs)


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else format(amount, "f")


def _capacity_type(cluster: Cluster, wanted: NewPrice) -> str:
    """The flavor's capacity type. A flavor that left the cluster may still be priced if it had a price before."""
    here = Flavor.objects.filter(cluster=cluster, name=wanted.flavor).values_list("capacity_type", flat=True)
    before = Rate.objects.filter(cluster=cluster, flavor=wanted.flavor).values_list("capacity_type", flat=True)
    known = list(here) or list(before)
    if not known:
        raise Invalid.field("flavor", "unknown_flavor", f"cluster {cluster.name} offers no flavor {wanted.flavor}")
    if wanted.capacity_type and wanted.capacity_type not in known:
        raise Invalid.field("capacity_type", "unknown_capacity_type", f"{wanted.flavor} is {' or '.join(known)} there")
    return wanted.capacity_type or known[0]


def refuse_two_core_prices(cluster: Cluster, flavor: str, cpu_price: Decimal | None) -> None:
    """Invalid `priced_by_the_core` for a `cpu_price` of a flavor whose unit is a core."""
    sold_by_gpu = Flavor.objects.filter(cluster=cluster, name=flavor).values_list("gpu_model", flat=True)
    if cpu_price is not None and list(sold_by_gpu) == [""]:
        raise Invalid.field(
            "cpu_price", "priced_by_the_core", f"a unit of {flavor} is a core: give its price as unit_price"
        )


def refuse_mixed_currencies(path: str, currency: str, begins: datetime) -> None:
    """Requires that the costs of the organisation of this path can be added up: its prices are in one currency, or it is
    billed in one from `begins` on; and that its budgets of money can count them. Invalid otherwise.
    """
    if currency not in CURRENCIES:
        raise Invalid.field("currency", "unknown_currency", f"{currency[:10]} is no currency of ISO 4217 in use")
    organisation = path.partition("/")[0]
    own = Q(rate__cluster__owner__path=organisation) | Q(rate__cluster__owner__path__startswith=f"{organisation}/")
    prices, egress = Price.objects.filter(own), EgressPrice.objects.filter(route__owner__path=organisation)
    commitments = newest_versions().filter(commitment__organisation__path=organisation, is_withdrawn=False)
    for what, known in (("prices", prices), ("prices", egress), ("commitments", commitments)):
        other = known.exclude(currency=currency).values_list("currency", flat=True).first()
        if other is not None and not _is_billed(organisation, begins):
            detail = (
                f"{what} of {organisation} are in {other}; to have several currencies, set the billing currency first"
            )
            raise Invalid.field("currency", "mixed_currencies", detail)
    below = Q(tenant__path=organisation) | Q(tenant__path__startswith=f"{organisation}/")
    budgets = Budget.objects.filter(below, measure=Budget.Measure.MONEY, removed_at__isnull=True)
    others = set(budgets.exclude(currency=currency).values_list("currency", flat=True))
    pairs = {Pair(organisation, currency, other, begins.astimezone(UTC).date()) for other in others}
    unknown = sorted(pair.quote for pair in pairs - known_rates(pairs).keys())
    if unknown:
        detail = (
            f"budgets of {organisation} are in {' and '.join(unknown)}, and no exchange rate from {currency} is known: import"
            " reference rates, or set one on the page Currencies"
        )
        raise Invalid.field("currency", "no_exchange_rate", detail)


def _is_billed(organisation: str, begins: datetime) -> bool:
    id_ = Tenant.objects.values_list("id", flat=True).get(path=organisation)
    return bool(billing_currency_of(id_, begins.astimezone(UTC).date().replace(day=1)))


def _refuse_used_time(rate: Rate, begins: datetime) -> None:
    latest = used_until(rate, begins)
    if latest is not None:
        raise Conflict(
            f"Work on {rate.flavor} was already metered until {instant(latest)}; a price can start then at the earliest.",
            code="price_already_used",
        )


def used_until(rate: Rate, begins: datetime) -> datetime | None:
    """Until when work on the rate was metered after `begins`, so that its prices stand until then; None if none was."""
    used = Meter.objects.filter(
        Q(flavor=rate.flavor) | Q(cpu_flavor=rate.flavor),
        cluster_id=rate.cluster_id,
        capacity_type=rate.capacity_type,
        metered_until__gt=begins,
        metered_from__lt=F("metered_until"),
    )
    latest = used.aggregate(latest=Max("metered_until"))["latest"]
    # Reports of closed months count what was replaced after the close, so its prices remain.
    replaced = ReplacedSegment.objects.filter(price__rate=rate, price__valid__startswith__gte=begins)
    kept = replaced.aggregate(latest=Max("period__endswith"))["latest"]
    return max((at for at in (latest, kept) if at is not None), default=None)


def _make_room(rate: Rate, begins: datetime) -> None:
    """Withdraws unused prices scheduled for later and ends the one in force where the new one begins."""
    Price.objects.filter(rate=rate, valid__startswith__gte=begins).delete()
    for price in Price.objects.filter(rate=rate, valid__contains=begins):
        Price.objects.filter(id=price.id).update(valid=TimestamptzRange(price.valid.lower, begins))

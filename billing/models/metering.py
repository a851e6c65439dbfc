"""Prices by flavor and date, metered usage, and its cost."""

from fractions import Fraction

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import BigIntegerRangeField, DateTimeRangeField, RangeOperators
from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import F, Func, Q, Value
from django.db.models.functions import Now

from billing.engine.egress import MOST_EGRESS_PRICE, REGION_PATTERN
from billing.engine.rating import Load, Unit
from clusters.models import Cluster
from foundation.finite import finite
from foundation.ids import new_id
from tenancy.models import Tenant

MOST_INTERRUPTIONS = 100
A_DAY = 86_400_000
"""Milliseconds."""


def _only(field: str) -> Func:
    """A whole number as a range of one, so that GiST can compare it for equality without an extension."""
    return Func(F(field), F(field), Value("[]"), function="int8range", output_field=BigIntegerRangeField())


def start_of(field: str) -> Func:
    """The start of a range, for an index."""
    return Func(F(field), function="lower", output_field=models.DateTimeField())


def half_open(field: str, **more: bool) -> Q:
    """The condition that a range is not empty, begins at a time, and excludes its end."""
    wanted = {"isempty": False, "lower_inf": False, "lower_inc": True, "upper_inc": False, **more}
    return Q(**{f"{field}__{name}": value for name, value in wanted.items()})


class Rate(models.Model):
    """What a price is for: one flavor of one cluster."""

    id = models.BigAutoField(primary_key=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="rates")
    flavor = models.CharField(max_length=120)
    capacity_type = models.CharField(max_length=20)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "flavor", "capacity_type"], name="one_rate_per_flavor")
        ]

    def __str__(self) -> str:
        return f"{self.flavor} ({self.capacity_type})"


class Price(models.Model):
    """Price of one unit for one hour during `valid`. A unit is a GPU, a MIG slice, a share, or a CPU core.

    `cpu_price` and `memory_price` apply to a pod's cores and memory, in addition to its units; null if the unit's price
    includes them. Only spot capacity has `interruptions_per_hour` (trigger). After insertion, only the end of `valid`
    may move earlier, and never into time that was charged (trigger). A price with `own_costs` is what they give (trigger).
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    rate = models.ForeignKey(Rate, on_delete=models.CASCADE, related_name="prices")
    unit_price = models.DecimalField(max_digits=18, decimal_places=6)
    cpu_price = models.DecimalField(
        max_digits=18, decimal_places=6, null=True, help_text="Per core and hour, on flavors with GPUs."
    )
    memory_price = models.DecimalField(max_digits=18, decimal_places=6, null=True, help_text="Per GiB and hour.")
    currency = models.CharField(max_length=3, default="USD")
    interruptions_per_hour = models.DecimalField(
        max_digits=9,
        decimal_places=6,
        null=True,
        help_text="Expected interruptions per hour of a job on this spot capacity; null: the settings' default.",
    )
    valid = DateTimeRangeField(help_text="Half-open, UTC.")
    created_at = models.DateTimeField(db_default=Now())
    own_costs = models.JSONField(
        null=True, help_text="The inputs of the price from own costs, with their formula; null: it was given."
    )

    class Meta:
        constraints = [
            finite("price_numbers_are_finite", "unit_price", "cpu_price", "memory_price", "interruptions_per_hour"),
            models.CheckConstraint(condition=Q(unit_price__gte=0), name="price_is_not_negative"),
            models.CheckConstraint(
                condition=(Q(cpu_price__isnull=True) | Q(cpu_price__gte=0))
                & (Q(memory_price__isnull=True) | Q(memory_price__gte=0)),
                name="prices_of_cpu_and_memory_are_not_negative",
            ),
            models.CheckConstraint(
                condition=Q(interruptions_per_hour__isnull=True)
                | Q(interruptions_per_hour__gte=0, interruptions_per_hour__lte=MOST_INTERRUPTIONS),
                name="interruptions_are_within_bounds",
            ),
            models.CheckConstraint(condition=Q(currency__regex=r"^[A-Z]{3}$"), name="price_currency_is_three_letters"),
            models.CheckConstraint(condition=half_open("valid"), name="price_period_is_half_open"),
            ExclusionConstraint(
                name="one_price_at_a_time",
                expressions=[(_only("rate_id"), RangeOperators.OVERLAPS), ("valid", RangeOperators.OVERLAPS)],
            ),
        ]

    def __str__(self) -> str:
        return f"{self.unit_price} {self.currency}"


class Meter(models.Model):
    """One metered pod. Ids of higher rooms are opaque here (`workload_id` is a job, `run_id` an attempt).

    Its segments cover [metered_from, metered_until) without gaps or overlaps (triggers). A meter keeps the
    flavor's values from when it opened, so no later change of a flavor changes usage.

    It also keeps its tenant's path. A pod's usage stays under the path of the team that started it, even if the team is
    moved or renamed while the pod runs. With one path per segment, such a move would split the run, and every segment
    of the ledger would repeat the path.
    """

    class Unit(models.TextChoices):
        GPU = "gpu"
        CORE = "core"

    id = models.BigAutoField(primary_key=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="meters")
    source_uid = models.CharField(
        max_length=72,
        help_text="The pod's uid; with `~1` and so on if the pod runs on after its meter was closed.",
    )
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="meters")
    tenant_path = models.CharField(
        max_length=1100,
        db_collation="C",
        db_default="",
        default="",
        editable=False,
        help_text="The tenant's path when the meter opened (trigger).",
    )
    user_id = models.UUIDField()
    user_name = models.CharField(max_length=254, blank=True, help_text="The name when the run began.")
    workload_id = models.UUIDField(db_index=True)
    workload_name = models.CharField(max_length=254, blank=True)
    run_id = models.UUIDField()
    node = models.CharField(
        max_length=253,
        blank=True,
        db_default="",
        default="",
        help_text="Where it ran; empty if that was not known when the meter opened.",
    )
    flavor = models.CharField(max_length=120)
    capacity_type = models.CharField(max_length=20)
    unit = models.CharField(max_length=4, choices=Unit.choices, help_text="The unit whose price per hour applies.")
    gpu_units = models.PositiveIntegerField(help_text="Whole GPUs, MIG slices or shares; 0 for CPU-only work.")
    gpu_model = models.CharField(max_length=63, blank=True, db_default="")
    sharing = models.CharField(
        max_length=40, blank=True, db_default="", help_text="`whole`, `mig:PROFILE` or `timeslice:N`."
    )
    gpu_numerator = models.PositiveIntegerField(
        db_default=1,
        default=1,
        help_text="A unit is `gpu_numerator` / `gpu_denominator` of a physical GPU.",
    )
    gpu_denominator = models.PositiveIntegerField(db_default=1, default=1)
    cpu_millicores = models.PositiveBigIntegerField()
    memory_mib = models.PositiveBigIntegerField(db_default=0)
    cpu_flavor = models.CharField(
        max_length=120,
        blank=True,
        db_default="",
        help_text="For a pod without GPUs on a GPU flavor: the CPU-only flavor whose price applies if its own flavor has no CPU price.",
    )
    metered_from = models.DateTimeField()
    metered_until = models.DateTimeField(help_text="Segments contain everything before this time.")
    is_closed = models.BooleanField(default=False)
    redone_from = models.DateTimeField(
        null=True, help_text="The work from this time to the end was lost and done again; null: no work was lost."
    )
    certain_until = models.DateTimeField(
        null=True,
        help_text="No report shortens the run below this time: it was seen until then, or its end is known. Null: from before this"
        " was kept.",
    )
    revisions = models.PositiveSmallIntegerField(
        default=0, db_default=0, help_text="How often a report shortened it (trigger)."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "source_uid"], name="one_meter_per_pod"),
            models.CheckConstraint(
                condition=Q(certain_until__isnull=True)
                | Q(certain_until__gte=F("metered_from"), certain_until__lte=F("metered_until")),
                name="a_meter_is_certain_of_its_own_time",
            ),
            models.CheckConstraint(
                condition=Q(metered_until__gte=F("metered_from")), name="meter_never_runs_backwards"
            ),
            models.CheckConstraint(
                condition=Q(unit="gpu") | Q(unit="core", gpu_units=0), name="gpus_are_priced_as_gpus"
            ),
            models.CheckConstraint(
                condition=Q(gpu_numerator__gte=1, gpu_numerator__lte=F("gpu_denominator")),
                name="a_unit_is_a_part_of_a_gpu",
            ),
            models.CheckConstraint(
                condition=Q(redone_from__isnull=True)
                | Q(is_closed=True, redone_from__gte=F("metered_from"), redone_from__lt=F("metered_until")),
                name="redone_work_is_of_a_closed_meters_time",
            ),
            models.CheckConstraint(
                condition=Q(cpu_flavor="") | Q(unit="gpu", gpu_units=0), name="only_guests_pay_another_flavors_price"
            ),
        ]
        indexes = [
            models.Index(fields=["tenant"], condition=Q(is_closed=False), name="open_meters_by_tenant"),
            models.Index(fields=["tenant_path", "tenant"], name="meters_by_tenant_path"),
            models.Index(fields=["run_id"], name="meters_by_run"),
            models.Index(fields=["tenant", "cluster", "flavor", "metered_until"], name="meters_by_place"),
            models.Index(fields=["redone_from"], condition=Q(redone_from__isnull=False), name="meters_of_redone_work"),
        ]

    def __str__(self) -> str:
        return f"meter of {self.source_uid}"

    @property
    def load(self) -> Load:
        """What the metered pod occupies, as input for rating."""
        unit: Unit = "gpu" if self.unit == self.Unit.GPU else "core"
        return Load(unit, self.gpu_units, self.cpu_millicores, self.metered_from, self.memory_mib)

    @property
    def gpu_share(self) -> Fraction:
        """The part of a physical GPU that one of its units is."""
        return Fraction(self.gpu_numerator, self.gpu_denominator)


class UsageSegment(models.Model):
    """An observed, priced interval of one meter. Append-only, but for what a revision of its meter replaces (`MeterRevision`).

    Each begins where the one before it of its meter ends, the first where its meter begins (trigger).
    """

    id = models.BigAutoField(primary_key=True)
    meter = models.ForeignKey(Meter, on_delete=models.PROTECT, related_name="segments", db_index=False)
    period = DateTimeRangeField(help_text="Half-open, UTC, cut at days and price changes.")
    gpu_milliseconds = models.PositiveBigIntegerField(help_text="In the meter's units: GPUs, MIG slices or shares.")
    cpu_millicore_milliseconds = models.PositiveBigIntegerField()
    price = models.ForeignKey(Price, null=True, on_delete=models.PROTECT, related_name="segments")
    cost = models.DecimalField(max_digits=30, decimal_places=12, help_text="Before any rounding for display.")
    currency = models.CharField(max_length=3, blank=True, help_text="Empty without a price.")
    is_estimated = models.BooleanField(default=False)
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            finite("usage_segment_numbers_are_finite", "cost"),
            models.CheckConstraint(condition=half_open("period", upper_inf=False), name="segment_period_is_half_open"),
            models.CheckConstraint(
                condition=Q(price__isnull=True, cost=0, currency="")
                | (Q(price__isnull=False, cost__gte=0) & ~Q(currency="")),
                name="segment_costs_only_with_a_price",
            ),
            models.UniqueConstraint(F("meter"), start_of("period"), name="each_moment_is_metered_once"),
        ]
        indexes = [BrinIndex(start_of("period"), name="segments_by_start", pages_per_range=16, autosummarize=True)]

    def __str__(self) -> str:
        return f"{self.gpu_milliseconds} GPU-ms"


class MeterDay(models.Model):
    """The sum of a meter's segments of a day (UTC) at one price. GPU, core and memory time follow from its meter.

    Only the trigger on the statement that adds segments writes it.
    """

    id = models.BigAutoField(primary_key=True)
    meter = models.ForeignKey(Meter, on_delete=models.PROTECT, related_name="days", db_index=False)
    day = models.DateField()
    price = models.ForeignKey(Price, null=True, on_delete=models.PROTECT, related_name="+", db_index=False)
    currency = models.CharField(max_length=3, blank=True, help_text="Empty without a price.")
    milliseconds = models.PositiveIntegerField()
    cost = models.DecimalField(max_digits=30, decimal_places=12)

    class Meta:
        constraints = [
            finite("meter_day_numbers_are_finite", "cost"),
            models.UniqueConstraint(
                fields=["meter", "day", "price"], nulls_distinct=False, name="one_sum_a_meter_day_and_price"
            ),
            models.CheckConstraint(condition=Q(milliseconds__lte=A_DAY), name="a_day_has_24_hours"),
        ]
        indexes = [BrinIndex(fields=["day"], name="meter_days_by_day", pages_per_range=16, autosummarize=True)]

    def __str__(self) -> str:
        return f"{self.day}: {self.cost} {self.currency}"


class TenantMonth(models.Model):
    """The sums of a tenant's segments that begin in a month, by currency and by a unit's part of a physical GPU.

    Only the trigger on the statement that adds segments writes it.
    """

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="months")
    month = models.DateField(help_text="Its first day, UTC.")
    currency = models.CharField(max_length=3, blank=True, help_text="Empty without a price.")
    gpu_numerator = models.PositiveIntegerField()
    gpu_denominator = models.PositiveIntegerField()
    cost = models.DecimalField(max_digits=38, decimal_places=12)
    gpu_milliseconds = models.PositiveBigIntegerField(help_text="In the meters' units.")

    class Meta:
        constraints = [
            finite("tenant_month_numbers_are_finite", "cost"),
            models.UniqueConstraint(
                fields=["tenant", "month", "currency", "gpu_numerator", "gpu_denominator"],
                name="one_sum_a_tenant_month_and_kind",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.month:%Y-%m}: {self.cost} {self.currency}"


class EgressRoute(models.Model):
    """What an egress price is for: data that leaves regions of one name for regions of another, in one organisation's
    fleet.
    """

    id = models.BigAutoField(primary_key=True)
    owner = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="egress_routes")
    from_region = models.CharField(max_length=63, help_text="`*` matches any text.")
    to_region = models.CharField(max_length=63, help_text="`*` matches any text.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["owner", "from_region", "to_region"], name="one_egress_route_per_pair"),
            models.CheckConstraint(
                condition=Q(from_region__regex=REGION_PATTERN, to_region__regex=REGION_PATTERN),
                name="egress_regions_are_plain",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.from_region} to {self.to_region}"


class EgressPrice(models.Model):
    """Price of moving one GiB along a route during `valid`. After insertion, only the end of `valid` may move earlier
    (trigger).

    Placement uses it to compare clusters; the gateway never charges it.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    route = models.ForeignKey(EgressRoute, on_delete=models.CASCADE, related_name="prices")
    price_per_gib = models.DecimalField(max_digits=18, decimal_places=6)
    currency = models.CharField(max_length=3, default="USD")
    valid = DateTimeRangeField(help_text="Half-open, UTC.")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            finite("egress_price_numbers_are_finite", "price_per_gib"),
            models.CheckConstraint(
                condition=Q(price_per_gib__gte=0, price_per_gib__lte=MOST_EGRESS_PRICE),
                name="egress_price_is_within_bounds",
            ),
            models.CheckConstraint(condition=Q(currency__regex=r"^[A-Z]{3}$"), name="egress_currency_is_three_letters"),
            models.CheckConstraint(condition=half_open("valid"), name="egress_price_period_is_half_open"),
            ExclusionConstraint(
                name="one_egress_price_at_a_time",
                expressions=[(_only("route_id"), RangeOperators.OVERLAPS), ("valid", RangeOperators.OVERLAPS)],
            ),
        ]

    def __str__(self) -> str:
        return f"{self.price_per_gib} {self.currency}"

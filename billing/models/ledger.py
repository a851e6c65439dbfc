"""Money: accounts, entries whose lines add up to zero, corrections of prices, and what is still to be posted.

Quantities are in `UsageSegment` and never change; money is here. An entry is never changed: it is reversed by another.
"""

from django.contrib.postgres.fields import DateTimeRangeField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now, Round

from clusters.models import Cluster
from foundation.finite import finite
from tenancy.models import Tenant

from .exchange import BOTH_SOURCES
from .metering import Rate, half_open
from .periods import REASON_LENGTH, LedgerPeriod

KEY_LENGTH = 400


class TenantDay(models.Model):
    """The sums of a tenant's segments of a day (UTC), by path, cluster, flavor, currency and a unit's part of a GPU.

    Reports read these. Only triggers write them. `is_due`: segments or corrections came since the ledger last counted it.
    """

    id = models.BigAutoField(primary_key=True)
    organisation = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="days")
    tenant_path = models.CharField(max_length=1100, db_collation="C")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    flavor = models.CharField(max_length=120)
    day = models.DateField()
    currency = models.CharField(max_length=3, blank=True, help_text="Empty without a price.")
    gpu_numerator = models.PositiveIntegerField(db_default=1)
    gpu_denominator = models.PositiveIntegerField(db_default=1)
    cost = models.DecimalField(max_digits=38, decimal_places=12)
    gpu_milliseconds = models.PositiveBigIntegerField(db_default=0, help_text="In the meters' units.")
    cpu_millicore_milliseconds = models.DecimalField(max_digits=38, decimal_places=0, db_default=0)
    memory_mib_milliseconds = models.DecimalField(max_digits=38, decimal_places=0, db_default=0)
    segments = models.PositiveBigIntegerField()
    is_due = models.BooleanField(db_default=True)

    class Meta:
        constraints = [
            finite("tenant_day_numbers_are_finite", "cost", "cpu_millicore_milliseconds", "memory_mib_milliseconds"),
            models.UniqueConstraint(
                fields=[
                    *("tenant", "day", "cluster", "flavor", "tenant_path", "currency"),
                    *("gpu_numerator", "gpu_denominator"),
                ],
                name="one_sum_a_tenant_day",
            ),
        ]
        indexes = [
            models.Index(fields=["day", "organisation"], condition=Q(is_due=True), name="days_to_post"),
            models.Index(fields=["cluster", "day"], name="days_by_cluster"),
            models.Index(fields=["organisation", "day"], name="days_by_organisation"),
        ]

    def __str__(self) -> str:
        return f"{self.day}: {self.cost} {self.currency}"


class PriceCorrection(models.Model):
    """What a rate should have cost during `span`, which is past. Of two for the same time, the later one applies.

    Append-only. Segments keep what was observed and charged; the ledger posts the difference.
    """

    id = models.BigAutoField(primary_key=True)
    rate = models.ForeignKey(Rate, on_delete=models.PROTECT, related_name="corrections")
    span = DateTimeRangeField(help_text="Half-open, UTC, past.")
    unit_price = models.DecimalField(max_digits=18, decimal_places=6)
    cpu_price = models.DecimalField(max_digits=18, decimal_places=6, null=True)
    memory_price = models.DecimalField(max_digits=18, decimal_places=6, null=True)
    currency = models.CharField(max_length=3)
    reason = models.CharField(max_length=REASON_LENGTH)
    made_by_id = models.UUIDField(null=True)
    made_by_name = models.CharField(max_length=254)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            finite("price_correction_numbers_are_finite", "unit_price", "cpu_price", "memory_price"),
            models.CheckConstraint(
                condition=Q(unit_price__gte=0)
                & (Q(cpu_price__isnull=True) | Q(cpu_price__gte=0))
                & (Q(memory_price__isnull=True) | Q(memory_price__gte=0)),
                name="corrected_price_is_not_negative",
            ),
            models.CheckConstraint(condition=half_open("span", upper_inf=False), name="corrected_span_is_half_open"),
            models.CheckConstraint(condition=~Q(reason=""), name="correction_has_a_reason"),
        ]
        indexes = [models.Index(fields=["rate"], name="corrections_by_rate")]

    def __str__(self) -> str:
        return f"{self.unit_price} {self.currency} in {self.span}"


class LedgerAccount(models.Model):
    """One account of an organisation. Append-only."""

    class Kind(models.TextChoices):
        TENANT_EXPENSE = "tenant_expense"
        CLUSTER_POOL = "cluster_pool"
        ROUNDING = "rounding"
        ADJUSTMENTS = "adjustments"
        IDLE = "idle"
        OVERHEAD = "overhead"
        PLATFORM = "platform"
        INFRASTRUCTURE = "infrastructure"
        TENANT_CONVERTED = "tenant_converted"
        EXCHANGE = "exchange"
        COMMITMENT = "commitment"
        COMMITMENT_UNUSED = "commitment_unused"
        COMMITMENT_COVERED = "commitment_covered"
        PURCHASES = "purchases"

    id = models.BigAutoField(primary_key=True)
    organisation = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="ledger_accounts")
    kind = models.CharField(max_length=20, choices=Kind.choices)
    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.PROTECT, related_name="+")
    cluster = models.ForeignKey(Cluster, null=True, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organisation", "kind", "tenant", "cluster"], nulls_distinct=False, name="one_account_of_a_kind"
            ),
            models.CheckConstraint(
                condition=Q(kind__in=["tenant_expense", "tenant_converted"], tenant__isnull=False, cluster__isnull=True)
                | Q(kind="cluster_pool", tenant__isnull=True, cluster__isnull=False)
                | Q(
                    kind__in=[
                        *("rounding", "adjustments", "idle", "overhead", "platform", "infrastructure", "exchange"),
                        *("commitment", "commitment_unused", "commitment_covered", "purchases"),
                    ],
                    tenant__isnull=True,
                    cluster__isnull=True,
                ),
                name="account_is_of_what_its_kind_says",
            ),
        ]

    def __str__(self) -> str:
        return self.kind


class LedgerEntry(models.Model):
    """One posting. Its lines add up to zero in each currency, and its digest covers them (trigger at commit).

    `charge_day` is the day of use, also if the entry is in a later period because the day's month was closed.
    """

    class Kind(models.TextChoices):
        USAGE = "usage"
        REVERSAL = "reversal"
        REENTRY = "reentry"
        ADJUSTMENT = "adjustment"
        IDLE = "idle"
        PLATFORM = "platform"
        CREDIT = "credit"
        CONVERSION = "conversion"
        COMMITMENT = "commitment"
        PURCHASE = "purchase"

    id = models.BigAutoField(primary_key=True)
    organisation = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="ledger_entries")
    period = models.ForeignKey(LedgerPeriod, on_delete=models.PROTECT, related_name="entries")
    key = models.CharField(
        max_length=KEY_LENGTH, unique=True, help_text="What it is; posting it twice changes nothing."
    )
    kind = models.CharField(max_length=10, choices=Kind.choices)
    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.PROTECT, related_name="+")
    tenant_path = models.CharField(max_length=1100, db_collation="C", blank=True)
    cluster = models.ForeignKey(Cluster, null=True, on_delete=models.PROTECT, related_name="+")
    flavor = models.CharField(max_length=120, blank=True)
    charge_day = models.DateField()
    reverses = models.OneToOneField("self", null=True, on_delete=models.PROTECT, related_name="reversed_by")
    converts = models.ForeignKey(
        "self",
        null=True,
        on_delete=models.PROTECT,
        related_name="conversions",
        help_text="Whose amounts it converts; of its conversions, one is not reversed.",
    )
    correction = models.ForeignKey(
        PriceCorrection,
        null=True,
        on_delete=models.PROTECT,
        related_name="entries",
        help_text="The latest that counts.",
    )
    reason = models.CharField(max_length=REASON_LENGTH, blank=True)
    line_count = models.PositiveIntegerField()
    digest = models.CharField(max_length=64, help_text="SHA-256 of its canonical text.")
    posted_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=(Q(kind="reversal") & Q(reverses__isnull=False))
                | (~Q(kind="reversal") & Q(reverses__isnull=True)),
                name="only_a_reversal_reverses",
            ),
            models.CheckConstraint(
                condition=(Q(kind="adjustment", tenant__isnull=True, cluster__isnull=True) & ~Q(reason=""))
                | (Q(kind="idle", tenant__isnull=True, cluster__isnull=False) & ~Q(reason=""))
                | (Q(kind="platform", tenant__isnull=True, cluster__isnull=True) & ~Q(reason=""))
                | (Q(kind="credit", tenant__isnull=False, cluster__isnull=False) & ~Q(reason=""))
                | (Q(kind="commitment", tenant__isnull=True) & ~Q(reason=""))
                | (Q(kind="purchase", tenant__isnull=True, cluster__isnull=True) & ~Q(reason=""))
                | Q(kind="reversal")
                | Q(kind="conversion")
                | Q(kind__in=["usage", "reentry"], tenant__isnull=False, cluster__isnull=False),
                name="entry_says_what_it_is_for",
            ),
            models.CheckConstraint(condition=Q(line_count__gte=2), name="entry_has_two_sides"),
            models.CheckConstraint(
                condition=Q(kind="conversion", converts__isnull=False)
                | (~Q(kind="conversion") & Q(converts__isnull=True)),
                name="only_a_conversion_converts",
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "charge_day", "cluster"], name="entries_by_day"),
            models.Index(fields=["period", "key"], name="entries_by_period"),
            models.Index(fields=["organisation", "charge_day"], name="entries_by_charge_day"),
        ]

    def __str__(self) -> str:
        return self.key


class LedgerLine(models.Model):
    """One side of an entry: a debit is positive, a credit negative. Append-only, written with its entry."""

    id = models.BigAutoField(primary_key=True)
    entry = models.ForeignKey(LedgerEntry, on_delete=models.PROTECT, related_name="lines")
    account = models.ForeignKey(LedgerAccount, on_delete=models.PROTECT, related_name="lines")
    amount = models.DecimalField(max_digits=38, decimal_places=12)
    currency = models.CharField(max_length=3)
    quantity = models.BigIntegerField(
        null=True,
        help_text="What was used for it, in thousandths of a GPU (or slice, or core) times milliseconds; null: not known.",
    )
    priced_amount = models.DecimalField(
        max_digits=38, decimal_places=12, null=True, help_text="Of a converted amount: what it was before."
    )
    priced_currency = models.CharField(max_length=3, blank=True, default="", db_default="")
    rate = models.DecimalField(max_digits=38, decimal_places=18, null=True, help_text="Of the priced currency.")
    rate_day = models.DateField(null=True)
    rate_source = models.CharField(max_length=BOTH_SOURCES, blank=True, default="", db_default="")

    class Meta:
        constraints = [
            finite("ledger_line_numbers_are_finite", "amount", "priced_amount", "rate"),
            models.UniqueConstraint(
                fields=["entry", "account", "currency", "priced_currency"], name="one_line_per_account"
            ),
            models.CheckConstraint(
                condition=Q(
                    priced_amount__isnull=True,
                    priced_currency="",
                    rate__isnull=True,
                    rate_day__isnull=True,
                    rate_source="",
                )
                | Q(
                    priced_amount__isnull=False,
                    priced_currency__regex=r"^[A-Z]{3}$",
                    rate__isnull=False,
                    rate__gt=0,
                    rate_day__isnull=False,
                    amount=Round(F("priced_amount") * F("rate"), 12),
                )
                & ~Q(priced_currency=F("currency"))
                & ~Q(rate_source=""),
                name="line_says_what_it_was_converted_from",
            ),
            models.CheckConstraint(condition=~Q(amount=0), name="line_moves_money"),
            models.CheckConstraint(condition=Q(currency__regex=r"^[A-Z]{3}$"), name="line_currency_is_three_letters"),
        ]

    def __str__(self) -> str:
        return f"{self.amount} {self.currency}"


class LedgerStep(models.Model):
    """A count of one tenant's day by the ledger. Its trigger locks the day's sums and marks them as counted."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    tenant_path = models.CharField(max_length=1100, db_collation="C")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    flavor = models.CharField(max_length=120)
    day = models.DateField()
    made_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"{self.tenant_path}, {self.day}"


class PostingConflict(models.Model):
    """An entry that was offered under a key that another entry has. The first one remains, until a person decides.

    If the offered one is to stand, its replacement and the reversal of the first one are posted with the decision (trigger).
    """

    class Decision(models.TextChoices):
        POSTED = "posted"
        OFFERED = "offered"

    id = models.UUIDField(primary_key=True, editable=False)
    organisation = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    key = models.CharField(max_length=KEY_LENGTH)
    month = models.DateField(help_text="Of the charge.")
    standing_digest = models.CharField(max_length=64)
    offered_digest = models.CharField(max_length=64)
    offered = models.TextField(help_text="Its canonical text.")
    seen_at = models.DateTimeField(db_default=Now())
    resolved_at = models.DateTimeField(null=True)
    resolved_by_id = models.UUIDField(null=True)
    resolved_by_name = models.CharField(max_length=254, blank=True, default="", db_default="")
    decision = models.CharField(
        max_length=7, choices=Decision.choices, blank=True, default="", db_default="", help_text="Which content stands."
    )
    note = models.CharField(max_length=REASON_LENGTH, blank=True, default="", db_default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["key", "offered_digest"], name="one_conflict_per_offer"),
            models.CheckConstraint(
                condition=Q(resolved_at__isnull=True, decision="")
                | Q(resolved_at__isnull=False, decision__in=["posted", "offered"]),
                name="resolved_conflict_says_which_stands",
            ),
            models.CheckConstraint(
                condition=Q(resolved_at__isnull=True, note="") | (Q(resolved_at__isnull=False) & ~Q(note="")),
                name="resolved_conflict_says_how",
            ),
        ]

    def __str__(self) -> str:
        return f"conflict at {self.key}"

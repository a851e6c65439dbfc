"""Capacity, or a spend, that organisations committed to: commitments by version, and how each hour of them was split."""

from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import Now

from foundation.finite import finite
from foundation.ids import new_id
from tenancy.models import Tenant

from .exchange import CODE

MONEY: dict[str, Any] = {"max_digits": 38, "decimal_places": 12}
QUANTITY: dict[str, Any] = {"max_digits": 38, "decimal_places": 0}
NAME_LENGTH = 63
MOST_UNITS = 1_000_000
SPLIT = Q(amortised=F("used") + F("unused"), used__gte=0, unused__gte=0, used_quantity__gte=0) & Q(
    used_quantity__lte=F("quantity")
)


class Commitment(models.Model):
    """A commitment of an organisation, by name. What it is for is in its versions. Append-only."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organisation = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="commitments")
    name = models.CharField(max_length=NAME_LENGTH)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organisation", "name"], name="one_commitment_of_a_name"),
            models.CheckConstraint(
                condition=Q(name__regex=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), name="commitment_has_a_plain_name"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class CommitmentVersion(models.Model):
    """What a commitment is for and what it costs: the newest version applies to the whole term. Append-only.

    `clusters` are ids, sorted; each belongs to the organisation (trigger). `total` is all that is paid over the term.
    A savings plan has `hourly` and `rates` in place of flavor, capacity type, units and `recurring`; what `upfront` does not pay of
    its total is paid each month.
    """

    class Kind(models.TextChoices):
        RESERVED_INSTANCE = "reserved_instance"
        OWN_PURCHASE = "own_purchase"
        SAVINGS_PLAN = "savings_plan"

    id = models.BigAutoField(primary_key=True)
    commitment = models.ForeignKey(Commitment, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField()
    kind = models.CharField(max_length=17, choices=Kind.choices)
    clusters = ArrayField(models.UUIDField())
    flavor = models.CharField(max_length=120, blank=True)
    capacity_type = models.CharField(max_length=20, blank=True)
    units = models.PositiveIntegerField(help_text="GPUs, slices, shares, or cores of a CPU-only flavor.")
    hourly = models.DecimalField(
        max_digits=18, decimal_places=6, default=0, db_default=0, help_text="What a savings plan spends an hour."
    )
    rates = models.JSONField(
        default=list,
        db_default=Value([], output_field=models.JSONField()),
        help_text="Of a savings plan: [flavor, capacity type, price of a unit-hour as text], sorted (trigger).",
    )
    start = models.DateTimeField(help_text="A whole hour, UTC.")
    until = models.DateTimeField(help_text="A whole hour, UTC; the first that is not covered.")
    upfront = models.DecimalField(max_digits=18, decimal_places=6, help_text="Paid at the start.")
    recurring = models.DecimalField(
        max_digits=18, decimal_places=6, help_text="Paid at the start and each month after it."
    )
    total = models.DecimalField(max_digits=24, decimal_places=6)
    currency = models.CharField(max_length=3)
    is_withdrawn = models.BooleanField(default=False, db_default=False, help_text="It never applied, after all.")
    made_by_id = models.UUIDField(null=True)
    made_by_name = models.CharField(max_length=254)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            finite("commitment_version_numbers_are_finite", "hourly", "upfront", "recurring", "total"),
            models.UniqueConstraint(fields=["commitment", "number"], name="one_commitment_version_of_a_number"),
            models.CheckConstraint(
                condition=Q(kind__in=["reserved_instance", "own_purchase", "savings_plan"]),
                name="commitment_kind_is_known",
            ),
            models.CheckConstraint(
                condition=Q(kind="savings_plan", units=0, hourly__gt=0, recurring=0)
                | ~Q(kind="savings_plan") & Q(units__gte=1, units__lte=MOST_UNITS, hourly=0, rates=[]),
                name="commitment_has_units",
            ),
            models.CheckConstraint(condition=Q(until__gt=F("start")), name="commitment_has_a_term"),
            models.CheckConstraint(
                condition=Q(upfront__gte=0, recurring__gte=0, total__gt=0), name="commitment_is_paid"
            ),
            models.CheckConstraint(condition=Q(currency__regex=CODE), name="commitment_currency_is_three_letters"),
            models.CheckConstraint(
                condition=Q(kind="savings_plan", flavor="", capacity_type="")
                | ~Q(kind="savings_plan") & ~Q(flavor="") & ~Q(capacity_type=""),
                name="commitment_names_its_flavor",
            ),
        ]

    def __str__(self) -> str:
        return f"version {self.number}"


class CommitmentDay(models.Model):
    """How a day (UTC) of a commitment was split; of several revisions the newest applies. Append-only, written with the ledger's
    entries of it, which agree with it at commit (trigger).
    """

    id = models.BigAutoField(primary_key=True)
    commitment = models.ForeignKey(Commitment, on_delete=models.PROTECT, related_name="days")
    version = models.ForeignKey(CommitmentVersion, on_delete=models.PROTECT, related_name="days")
    day = models.DateField()
    revision = models.PositiveIntegerField()
    quantity = models.DecimalField(
        **QUANTITY, help_text="In thousandths of a unit times milliseconds; of a savings plan, 10**-12 of its currency."
    )
    used_quantity = models.DecimalField(**QUANTITY)
    amortised = models.DecimalField(**MONEY)
    used = models.DecimalField(**MONEY)
    unused = models.DecimalField(**MONEY)
    split_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            finite("commitment_day_numbers_are_finite", "quantity", "used_quantity", "amortised", "used", "unused"),
            models.UniqueConstraint(fields=["commitment", "day", "revision"], name="one_split_of_a_revision"),
            models.CheckConstraint(condition=SPLIT, name="day_is_used_or_unused"),
        ]

    def __str__(self) -> str:
        return f"{self.day}, revision {self.revision}"


class CommitmentHour(models.Model):
    """An hour of a split day. Append-only."""

    id = models.BigAutoField(primary_key=True)
    day = models.ForeignKey(CommitmentDay, on_delete=models.PROTECT, related_name="hours")
    hour = models.DateTimeField(help_text="Its beginning, UTC.")
    quantity = models.DecimalField(**QUANTITY)
    used_quantity = models.DecimalField(**QUANTITY)
    amortised = models.DecimalField(**MONEY)
    used = models.DecimalField(**MONEY)
    unused = models.DecimalField(**MONEY)

    class Meta:
        constraints = [
            finite("commitment_hour_numbers_are_finite", "quantity", "used_quantity", "amortised", "used", "unused"),
            models.UniqueConstraint(fields=["day", "hour"], name="one_row_a_commitment_hour"),
            models.CheckConstraint(condition=SPLIT, name="hour_is_used_or_unused"),
        ]

    def __str__(self) -> str:
        return f"{self.hour}"


class CommitmentDueDay(models.Model):
    """A day of an organisation whose commitments have to be split, or split again. Triggers write it."""

    id = models.BigAutoField(primary_key=True)
    organisation = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    day = models.DateField()
    marks = models.PositiveIntegerField(
        default=1, db_default=1, help_text="A mark locks the row until it is committed."
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["organisation", "day"], name="one_due_commitment_day")]

    def __str__(self) -> str:
        return f"{self.day}"

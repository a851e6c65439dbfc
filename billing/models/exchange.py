"""Rates of exchange by day, and the currency that an organisation is billed in."""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from foundation.finite import finite
from tenancy.models import Tenant

from .periods import REASON_LENGTH

SOURCE_LENGTH = 60
BOTH_SOURCES = 2 * SOURCE_LENGTH + 2
CODE = r"^[A-Z]{3}$"


class BillingCurrency(models.Model):
    """The currency of an organisation's documents from a month on. Of two for a month, the later one applies.

    Append-only, for no month that is closed, and for none in which amounts were converted (triggers). Without one, documents
    are in the currencies of the prices.
    """

    id = models.BigAutoField(primary_key=True)
    organisation = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="billing_currencies")
    effective_from = models.DateField(help_text="The first day of a month, UTC.")
    currency = models.CharField(max_length=3)
    made_by_id = models.UUIDField(null=True)
    made_by_name = models.CharField(max_length=254)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "billing currencies"
        constraints = [
            models.CheckConstraint(condition=Q(effective_from__day=1), name="billing_currency_begins_with_a_month"),
            models.CheckConstraint(condition=Q(currency__regex=CODE), name="billing_currency_is_three_letters"),
        ]
        indexes = [
            models.Index(fields=["organisation", "-effective_from", "-id"], name="billing_currency_newest_first")
        ]

    def __str__(self) -> str:
        return f"{self.currency} from {self.effective_from:%Y-%m}"


class ExchangeRate(models.Model):
    """One unit of `base` is worth `rate` of `quote` from a day on. Append-only: of two for the same day, the later one applies.

    A `reference` rate is of the euro, and counts until the next one, at most a week; without an organisation, for all of them. An
    `override` is of one organisation and any two currencies, and counts for its days before all reference rates.
    """

    class Kind(models.TextChoices):
        REFERENCE = "reference"
        OVERRIDE = "override"

    id = models.BigAutoField(primary_key=True)
    organisation = models.ForeignKey(Tenant, null=True, on_delete=models.PROTECT, related_name="exchange_rates")
    kind = models.CharField(max_length=9, choices=Kind.choices)
    base = models.CharField(max_length=3)
    quote = models.CharField(max_length=3)
    rate = models.DecimalField(max_digits=24, decimal_places=12)
    valid_from = models.DateField()
    valid_until = models.DateField(null=True, help_text="The first day on which an override no longer counts.")
    source = models.CharField(max_length=SOURCE_LENGTH)
    reason = models.CharField(max_length=REASON_LENGTH, blank=True, default="", db_default="")
    made_by_id = models.UUIDField(null=True)
    made_by_name = models.CharField(max_length=254)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            finite("exchange_rate_numbers_are_finite", "rate"),
            models.CheckConstraint(
                condition=Q(rate__gt=0, base__regex=CODE, quote__regex=CODE) & ~Q(base=F("quote")) & ~Q(source=""),
                name="exchange_rate_is_of_two_currencies",
            ),
            models.CheckConstraint(
                condition=Q(kind="reference", base="EUR", valid_until__isnull=True)
                | Q(
                    kind="override",
                    organisation__isnull=False,
                    valid_until__isnull=False,
                    valid_until__gt=F("valid_from"),
                )
                & ~Q(reason=""),
                name="exchange_rate_counts_for_its_days",
            ),
        ]
        indexes = [
            models.Index(fields=["quote", "-valid_from", "-id"], condition=Q(kind="reference"), name="reference_rates_by_day"),
            models.Index(fields=["organisation", "-id"], condition=Q(kind="override"), name="overrides_newest_first"),
        ]  # fmt: skip

    def __str__(self) -> str:
        return f"1 {self.base} = {self.rate} {self.quote} from {self.valid_from}"


class ConversionDay(models.Model):
    """A day of an organisation whose charges are to be converted, again or at last. Written with each rate (trigger)."""

    id = models.BigAutoField(primary_key=True)
    organisation = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    day = models.DateField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["organisation", "day"], name="one_row_a_conversion_day")]

    def __str__(self) -> str:
        return f"{self.day}"

"""Budgets of tenants, what running work holds of them, and the journal that changes their counters."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Greatest, Now

from foundation.finite import finite
from foundation.ids import new_id
from tenancy.models import Tenant

from .exchange import BOTH_SOURCES, CODE
from .ledger import LedgerLine

DIGITS, PLACES = 38, 12
"""Enough for the highest price of the largest jobs: no amount that a tenant sets may stop a cycle."""
MOST_AMOUNT = 10**12


class Budget(models.Model):
    """How much money, or how many GPU-hours, a tenant and its descendants may use in each period.

    What a budget is for (`tenant`, `measure`, `currency`, `period` and its dates) never changes (trigger). A budget of
    GPU-hours has no currency. Only a budget with `period` dates has `starts_at` and `ends_at`.
    """

    class Measure(models.TextChoices):
        MONEY = "money"
        GPU_HOURS = "gpu_hours"

    class Period(models.TextChoices):
        MONTH = "month"
        QUARTER = "quarter"
        YEAR = "year"
        DATES = "dates"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="budgets")
    measure = models.CharField(max_length=10, choices=Measure.choices)
    currency = models.CharField(max_length=3, blank=True, default="")
    period = models.CharField(max_length=10, choices=Period.choices)
    starts_at = models.DateTimeField(null=True)
    ends_at = models.DateTimeField(null=True)
    amount = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES)
    notify_at = ArrayField(models.PositiveSmallIntegerField(), help_text="Percent of the amount; sorted, distinct.")
    notify_forecast_at = ArrayField(
        models.PositiveSmallIntegerField(),
        db_default=[],
        default=list,
        help_text="The same, of what is expected at the end of the period.",
    )
    stops_admission = models.BooleanField()
    counts_from = models.DateTimeField(help_text="The start of its first period; what ran earlier does not count.")
    removed_at = models.DateTimeField(null=True, editable=False)
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            finite("budget_numbers_are_finite", "amount"),
            models.UniqueConstraint(
                fields=["tenant", "measure", "period", "starts_at", "ends_at"],
                condition=Q(removed_at__isnull=True),
                nulls_distinct=False,
                name="one_budget_per_tenant_measure_and_period",
            ),
            models.CheckConstraint(condition=Q(amount__gte=0, amount__lte=MOST_AMOUNT), name="budget_is_in_range"),
            models.CheckConstraint(
                condition=Q(measure="gpu_hours", currency="") | Q(measure="money", currency__regex=r"^[A-Z]{3}$"),
                name="budget_of_money_has_a_currency",
            ),
            models.CheckConstraint(
                condition=Q(period="dates", starts_at__lt=F("ends_at"))
                | Q(period__in=["month", "quarter", "year"], starts_at__isnull=True, ends_at__isnull=True),
                name="budget_has_dates_or_a_period",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.amount} {self.currency or 'GPU-hours'} per {self.period}"


class BudgetPeriod(models.Model):
    """The counters of a budget in one of its periods, [starts_at, ends_at) in UTC.

    Only triggers change `granted`, `cap`, `held` and `spent`. `held` and `spent` are the sums of the journal; a credit for
    time that was counted elsewhere can bring `spent` below zero. `granted` is
    what approved overrides add. `cap` is `amount` + `granted`; if running work went beyond that, it is what is spent
    and held. A take at a stopping budget never raises `cap`.
    """

    id = models.BigAutoField(primary_key=True)
    budget = models.ForeignKey(Budget, on_delete=models.PROTECT, related_name="periods")
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    amount = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES)
    granted = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES, default=0, editable=False)
    cap = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES, editable=False)
    held = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES, default=0, editable=False)
    spent = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES, default=0, editable=False)

    class Meta:
        constraints = [
            finite("budget_period_numbers_are_finite", "amount", "granted", "cap", "held", "spent"),
            models.UniqueConstraint(fields=["budget", "starts_at"], name="one_row_per_budget_and_period"),
            models.CheckConstraint(condition=Q(held__gte=0), name="budget_held_is_not_negative"),
            models.CheckConstraint(condition=Q(cap__gte=F("spent") + F("held")), name="budget_is_never_exceeded"),
            models.CheckConstraint(
                condition=Q(cap=Greatest(F("amount") + F("granted"), F("spent") + F("held"))),
                name="budget_surplus_cap_is_what_is_used",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.starts_at:%Y-%m-%d}: {self.spent} spent, {self.held} held"


class BudgetHold(models.Model):
    """The worst case of a run (an attempt): `money_an_hour` and `gpus` for `seconds` from `starts_at` on.

    It ends exactly once: posted if the run was metered, voided if nothing ran. A run without a price has no currency.
    """

    class State(models.TextChoices):
        PENDING = "pending"
        POSTED = "posted"
        VOIDED = "voided"

    holder_id = models.UUIDField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="budget_holds")
    money_an_hour = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES)
    currency = models.CharField(max_length=3, blank=True)
    gpus = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES)
    starts_at = models.DateTimeField()
    seconds = models.PositiveBigIntegerField()
    state = models.CharField(max_length=10, choices=State.choices, default=State.PENDING)
    created_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            finite("budget_hold_numbers_are_finite", "money_an_hour", "gpus"),
            models.CheckConstraint(condition=Q(money_an_hour__gte=0, gpus__gte=0), name="budget_hold_is_not_negative"),
            models.CheckConstraint(
                condition=Q(state="pending", ended_at__isnull=True)
                | Q(state__in=["posted", "voided"], ended_at__isnull=False),
                name="budget_hold_ends_with_a_time",
            ),
        ]
        indexes = [models.Index(fields=["tenant"], condition=Q(state="pending"), name="pending_budget_holds_by_tenant")]

    def __str__(self) -> str:
        return f"{self.state} hold of {self.holder_id}"


class BudgetMovement(models.Model):
    """One journal line: what a run adds (+) to or returns (-) from one period. Append-only; its trigger moves counters.

    `take` holds the worst case at placement. `adjust` turns held into spent as time is metered, and corrects what is
    held of running work. `post` and `void` return the rest at the end; a `post` without held is of time that is metered
    after the end. `open` counts what was metered and held before the budget was set. `correct` is of a line of the ledger
    instead of a run: what a correction changes in the period of the day of use. `revise` returns what was counted of time that a run
    did not use (trigger).
    """

    class Kind(models.TextChoices):
        OPEN = "open"
        TAKE = "take"
        ADJUST = "adjust"
        POST = "post"
        VOID = "void"
        CORRECT = "correct"
        REVISE = "revise"

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField(null=True, help_text="The holder; runs from before an upgrade have no hold.")
    line = models.ForeignKey(
        LedgerLine, null=True, on_delete=models.PROTECT, related_name="+", db_index=False, help_text="What it follows."
    )
    period = models.ForeignKey(BudgetPeriod, on_delete=models.PROTECT, related_name="movements", db_index=False)
    kind = models.CharField(max_length=7, choices=Kind.choices)
    held = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES)
    spent = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            finite("budget_movement_numbers_are_finite", "held", "spent"),
            models.UniqueConstraint(
                fields=["run_id", "period"],
                condition=Q(kind__in=["take", "open"]),
                name="a_run_is_taken_once_per_budget_period",
            ),
            models.CheckConstraint(
                condition=Q(kind__in=["open", "take"], held__gte=0)
                | Q(kind="adjust")
                | Q(kind__in=["correct", "revise"], held=0)
                | Q(kind__in=["post", "void"], held__lte=0),
                name="takes_add_and_ends_return",
            ),
            models.CheckConstraint(
                condition=Q(spent=0)
                | Q(kind__in=["open", "adjust", "post"], spent__gt=0)
                | Q(kind="correct")
                | Q(kind="revise", spent__lt=0),
                name="only_metered_time_is_spent",
            ),
            models.CheckConstraint(
                condition=Q(kind="correct", run_id__isnull=True, line__isnull=False)
                | (~Q(kind="correct") & Q(run_id__isnull=False, line__isnull=True)),
                name="a_correction_is_of_a_ledger_line",
            ),
            models.UniqueConstraint(
                fields=["line", "period"],
                condition=Q(line__isnull=False),
                name="a_ledger_line_corrects_once_per_budget_period",
            ),
        ]
        indexes = [
            models.Index(fields=["run_id", "period"], name="budget_lines_by_run"),
            models.Index(fields=["period"], name="budget_lines_by_period"),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.held} held, {self.spent} spent"


class BudgetRate(models.Model):
    """What one unit of `base` was worth in `quote` on a day, as budgets of the organisation count it. Append-only.

    Kept when a budget first counts `base` on that day, so that a later rate moves nothing that was counted. A trigger fills the rate
    with the one that is known for the day; zero if none ever was. `rate_day` is that of the rate that it is made from.
    """

    id = models.BigAutoField(primary_key=True)
    organisation = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    base = models.CharField(max_length=3)
    quote = models.CharField(max_length=3)
    day = models.DateField()
    rate = models.DecimalField(max_digits=DIGITS, decimal_places=18)
    rate_day = models.DateField(null=True)
    source = models.CharField(max_length=BOTH_SOURCES)
    kept_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            finite("budget_rate_numbers_are_finite", "rate"),
            models.UniqueConstraint(
                fields=["organisation", "base", "quote", "day"], name="one_budget_rate_per_currencies_and_day"
            ),
            models.CheckConstraint(
                condition=Q(rate__gte=0, base__regex=CODE, quote__regex=CODE) & ~Q(base=F("quote")),
                name="budget_rate_is_of_two_currencies",
            ),
        ]

    def __str__(self) -> str:
        return f"1 {self.base} = {self.rate} {self.quote} on {self.day}"


class BudgetAlert(models.Model):
    """What was spent in a period reached a threshold. Once for each threshold and period; a trigger writes it."""

    id = models.BigAutoField(primary_key=True)
    period = models.ForeignKey(BudgetPeriod, on_delete=models.PROTECT, related_name="alerts", db_index=False)
    percent = models.PositiveSmallIntegerField()
    spent = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES, help_text="When it was reached.")
    amount = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES, help_text="When it was reached.")
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            finite("budget_alert_numbers_are_finite", "spent", "amount"),
            models.UniqueConstraint(fields=["period", "percent"], name="each_threshold_alerts_once_per_period"),
        ]
        indexes = [models.Index(fields=["at"], name="budget_alerts_by_time")]

    def __str__(self) -> str:
        return f"{self.percent} %"


class BudgetForecastAlert(models.Model):
    """What is expected at the end of a period reached a threshold. Once for each threshold and period. It informs only:
    admission never reads it.
    """

    id = models.BigAutoField(primary_key=True)
    period = models.ForeignKey(BudgetPeriod, on_delete=models.PROTECT, related_name="forecast_alerts", db_index=False)
    percent = models.PositiveSmallIntegerField()
    spent = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES, help_text="When it was expected.")
    amount = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES, help_text="When it was expected.")
    expected = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES)
    low = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES)
    high = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES)
    reached_on = models.DateField(help_text="The day on which the threshold is expected to be reached.")
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            finite("budget_forecast_alert_numbers_are_finite", "spent", "amount", "expected", "low", "high"),
            models.UniqueConstraint(
                fields=["period", "percent"], name="each_forecast_threshold_alerts_once_per_period"
            ),
            models.CheckConstraint(
                condition=Q(low__lte=F("expected"), high__gte=F("expected")), name="forecast_is_within_its_range"
            ),
        ]
        indexes = [models.Index(fields=["at"], name="forecast_alerts_by_time")]

    def __str__(self) -> str:
        return f"{self.percent} % on {self.reached_on}"


class BudgetOverride(models.Model):
    """More than the amount, in one period until `expires_at`: requested by one user and approved by another."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    period = models.ForeignKey(BudgetPeriod, on_delete=models.PROTECT, related_name="overrides")
    amount = models.DecimalField(max_digits=DIGITS, decimal_places=PLACES)
    reason = models.CharField(max_length=500)
    expires_at = models.DateTimeField()
    requested_by = models.UUIDField()
    requester_name = models.CharField(max_length=254)
    requested_at = models.DateTimeField(db_default=Now())
    approved_by = models.UUIDField(null=True)
    approver_name = models.CharField(max_length=254, blank=True, default="")
    approved_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            finite("budget_override_numbers_are_finite", "amount"),
            models.CheckConstraint(condition=Q(amount__gt=0, amount__lte=MOST_AMOUNT), name="override_adds_something"),
            models.CheckConstraint(condition=~Q(reason=""), name="override_has_a_reason"),
            models.CheckConstraint(
                condition=Q(approved_by__isnull=True, approved_at__isnull=True)
                | (Q(approved_by__isnull=False, approved_at__isnull=False) & ~Q(approved_by=F("requested_by"))),
                name="override_needs_a_second_person",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.amount} until {self.expires_at:%Y-%m-%d %H:%M}"

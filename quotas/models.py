"""Limits on tenants, holds against them, and the journal that changes the counters."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Case, F, Func, Q, Value, When
from django.db.models.functions import Coalesce, Greatest, Now
from django.db.models.lookups import Exact

from foundation.ids import new_id
from tenancy.models import Tenant

from .engine.amounts import MAX_AMOUNT

WHOLE_AMOUNTS = (
    '$.keyvalue() ? (!(@.key like_regex "^(gpu|gpu:[A-Za-z0-9][A-Za-z0-9._-]*|cpu|memory|jobs)$") || @.value.type() != "number"'
    " || @.value < 0 || @.value > 1000000000000000 || @.value != @.value.floor())"
)
"""A JSON path that finds every entry of a hold's amounts that is not a whole number of base units of a
known resource.
"""


def _whole_amounts() -> Q:
    """A condition on `amounts`: an object of whole numbers of base units."""
    return Exact(Func(F("amounts"), function="jsonb_typeof", output_field=models.TextField()), "object") & ~Q(
        Func(
            F("amounts"),
            Value(WHOLE_AMOUNTS),
            template="jsonb_path_exists(%(expressions)s::jsonpath)",
            output_field=models.BooleanField(),
        )
    )


BORROWED_AT_MOST = Case(
    When(parent__isnull=True, then=Value(0)),
    default=Coalesce(F("borrowing_limit"), Value(MAX_AMOUNT)),
    output_field=models.BigIntegerField(),
)
"""What a limit may hold above `nominal`. Without a parent there is no limit to borrow from."""

MOST_RECLAIM_SECONDS = 30 * 24 * 3600
"""The longest delay before what is held beyond a limit is taken back."""


class QuotaLimit(models.Model):
    """How much of a resource a tenant and its descendants may hold at the same time.

    Amounts are integers in base units: `gpu` and `gpu:MODEL` in milli-GPU, `cpu` in millicores, `memory` in MiB,
    `jobs` in jobs.

    `parent` is the nearest limit of equal resource and scope above. The limit borrows from it what it holds above
    `nominal`, at most `borrowing_limit` (null: no bound here), and lends to it what it does not hold, at most
    `lending_limit` (null: all). `claim` is what counts at the parent: what is held, and at least what is not lent.

    Only triggers change `parent`, `held` and `cap`. `held` is the sum of the limit's own lines in the journal and of the
    claims of its children. `cap` is the most that may be held; if the limit was reduced below use, it starts at the
    amount then held and shrinks as holds end. A removed limit only counts down as the holds against it end.

    With `reclaim_after`, what is held beyond the limit (the surplus) is taken back from `reclaim_at` on. Only a trigger writes
    that time: it begins again with each reduction, and ends with the surplus (`migrations/0006_surplus.sql`).
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="quota_limits")
    resource = models.CharField(max_length=80)
    clusters = ArrayField(
        models.CharField(max_length=63),
        default=list,
        blank=True,
        help_text="Cluster names; empty means the whole fleet.",
    )
    parent = models.ForeignKey("self", on_delete=models.DO_NOTHING, null=True, editable=False, related_name="children")
    nominal = models.BigIntegerField()
    borrowing_limit = models.BigIntegerField(null=True, default=0, db_default=0)
    lending_limit = models.BigIntegerField(null=True)
    reclaims = models.BooleanField(
        default=False, db_default=False, help_text="Whether jobs within nominal stop jobs that borrow what it lent."
    )
    cap = models.BigIntegerField(editable=False)
    held = models.BigIntegerField(default=0, editable=False)
    claim = models.GeneratedField(
        expression=Case(
            When(removed_at__isnull=True, then=Greatest(F("held"), F("nominal") - F("lending_limit"))),
            default=F("held"),
        ),
        output_field=models.BigIntegerField(),
        db_persist=True,
    )
    reclaim_after = models.PositiveIntegerField(
        null=True, help_text="Seconds after which what is held beyond the limit is taken back. Null: never."
    )
    reclaim_at = models.DateTimeField(null=True, editable=False)
    lowered_by = models.CharField(max_length=254, default="", db_default="", editable=False)
    removed_at = models.DateTimeField(null=True, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(reclaim_after__isnull=True) | Q(reclaim_after__lte=MOST_RECLAIM_SECONDS),
                name="quota_reclaim_delay_is_in_range",
            ),
            models.CheckConstraint(
                condition=Q(reclaim_at__isnull=True)
                | Q(
                    reclaim_after__isnull=False,
                    removed_at__isnull=True,
                    held__gt=F("nominal") + BORROWED_AT_MOST,
                ),
                name="quota_is_taken_back_only_beyond_a_limit",
            ),
            models.UniqueConstraint(
                fields=["tenant", "resource", "clusters"],
                condition=Q(removed_at__isnull=True),
                name="one_limit_per_tenant_resource_and_scope",
            ),
            models.CheckConstraint(condition=Q(nominal__gte=0, nominal__lte=10**15), name="quota_nominal_is_in_range"),
            models.CheckConstraint(condition=Q(held__gte=0), name="quota_held_is_not_negative"),
            models.CheckConstraint(condition=Q(held__lte=F("cap")), name="quota_is_never_exceeded"),
            models.CheckConstraint(
                condition=Q(cap=Greatest(F("nominal") + BORROWED_AT_MOST, F("held"))),
                name="quota_surplus_cap_is_what_is_held",
            ),
            models.CheckConstraint(
                condition=Q(borrowing_limit__isnull=True) | Q(borrowing_limit__gte=0, borrowing_limit__lte=MAX_AMOUNT),
                name="quota_borrowing_limit_is_in_range",
            ),
            models.CheckConstraint(
                condition=Q(lending_limit__isnull=True) | Q(lending_limit__gte=0, lending_limit__lte=MAX_AMOUNT),
                name="quota_lending_limit_is_in_range",
            ),
            models.CheckConstraint(
                condition=Q(resource__regex=r"^(gpu|gpu:[A-Za-z0-9][A-Za-z0-9._-]*|cpu|memory|jobs)$"),
                name="quota_resource_is_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.resource} {self.held}/{self.nominal}"

    @property
    def guaranteed(self) -> int:
        """The part of `nominal` that is not lent. It counts at the parent even if it is not held."""
        return 0 if self.lending_limit is None else max(0, self.nominal - self.lending_limit)

    @property
    def most(self) -> int:
        """The most that may be held, apart from a surplus."""
        if self.parent_id is None:
            return self.nominal
        return self.nominal + (MAX_AMOUNT if self.borrowing_limit is None else self.borrowing_limit)

    @property
    def surplus(self) -> int:
        """What is held beyond the limit."""
        return max(0, self.held - self.most)


class ReservedQuota(models.Model):
    """Quota that a tenant reserved on a cluster from `starts_at` until `until_at`, for an opaque purpose.

    `amounts` are by resource in base units. At every time, what is reserved stays within the nominal amounts of the limits on
    the tenant's path; a trigger adds it up when a row begins. Only the end changes, and only to an earlier time.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="reserved_quota")
    cluster_name = models.CharField(max_length=63)
    amounts = models.JSONField()
    starts_at = models.DateTimeField()
    until_at = models.DateTimeField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "reserved quota"
        constraints = [
            models.UniqueConstraint(fields=["id", "starts_at", "until_at"], name="reserved_quota_times_are_referenced"),
            models.CheckConstraint(
                condition=Q(until_at__gte=F("starts_at")), name="reserved_quota_ends_after_it_starts"
            ),
            models.CheckConstraint(condition=_whole_amounts(), name="reserved_quota_amounts_are_whole"),
        ]
        indexes = [models.Index(fields=["until_at"], name="reserved_quota_by_end")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.starts_at} {self.until_at}"


class Hold(models.Model):
    """Capacity reserved for an opaque holder (an attempt). It ends exactly once: posted if the holder ran, voided if
    not.

    `amounts` is the full request by resource in base units, including resources that no limit counts yet. `user_id` is
    whose work it is, for limits on users; it is opaque. `within` is the reserved quota that it is part of.
    """

    class State(models.TextChoices):
        PENDING = "pending"
        POSTED = "posted"
        VOIDED = "voided"

    holder_id = models.UUIDField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="holds")
    user_id = models.UUIDField(null=True)
    within = models.ForeignKey(ReservedQuota, on_delete=models.PROTECT, null=True, related_name="holds", db_index=False)
    cluster_name = models.CharField(max_length=63)
    amounts = models.JSONField()
    state = models.CharField(max_length=10, choices=State.choices, default=State.PENDING)
    created_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(state="pending", ended_at__isnull=True)
                | Q(state__in=["posted", "voided"], ended_at__isnull=False),
                name="hold_ends_with_a_time",
            ),
            models.CheckConstraint(condition=Q(ended_at__gte=F("created_at")), name="hold_ends_after_it_began"),
            models.CheckConstraint(condition=_whole_amounts(), name="hold_amounts_are_whole"),
        ]
        indexes = [
            models.Index(fields=["tenant"], condition=Q(state="pending"), name="pending_holds_by_tenant"),
            models.Index(fields=["within"], condition=Q(within__isnull=False), name="holds_within_reserved_quota"),
        ]

    def __str__(self) -> str:
        return f"{self.state} hold of {self.holder_id}"


class HoldMovement(models.Model):
    """One journal line: `amount` taken (+) or returned (-) at one limit. Append-only; its trigger changes `held`.

    A pending hold has one line that is not returned for each resource and scope: at the limit that was the nearest one
    above its tenant. The limits above that one count the claim of the limit below.
    """

    class Kind(models.TextChoices):
        TAKE = "take"
        END = "end"

    id = models.BigAutoField(primary_key=True)
    hold = models.ForeignKey(Hold, on_delete=models.PROTECT, related_name="movements", db_index=False)
    limit = models.ForeignKey(QuotaLimit, on_delete=models.PROTECT, related_name="movements")
    kind = models.CharField(max_length=4, choices=Kind.choices)
    amount = models.BigIntegerField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["hold", "limit", "kind"], name="each_hold_is_taken_and_ended_once_per_limit"
            ),
            models.CheckConstraint(
                condition=Q(kind="take", amount__gt=0) | Q(kind="end", amount__lt=0), name="takes_add_and_ends_subtract"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.amount}"


class UserLimit(models.Model):
    """How much of a resource each user may hold at a tenant and below it, in base units. It neither borrows nor lends."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="user_limits")
    resource = models.CharField(max_length=80)
    most = models.BigIntegerField()
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "resource"], name="one_user_limit_per_tenant_and_resource"),
            models.CheckConstraint(condition=Q(most__gte=0, most__lte=MAX_AMOUNT), name="user_limit_is_in_range"),
            models.CheckConstraint(
                condition=Q(resource__regex=r"^(gpu|gpu:[A-Za-z0-9][A-Za-z0-9._-]*|cpu|memory|jobs)$"),
                name="user_limit_resource_is_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.resource} {self.most} each"


class UserHolding(models.Model):
    """What a user holds under a limit on users: the sum of the user's pending holds at its tenant and below. Only triggers
    change it; the gateway only begins rows at 0.
    """

    limit = models.ForeignKey(UserLimit, on_delete=models.DO_NOTHING, related_name="holdings")
    user_id = models.UUIDField()
    held = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["limit", "user_id"], name="one_holding_per_limit_and_user"),
            models.CheckConstraint(condition=Q(held__gte=0), name="user_holding_is_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} {self.held}"


MOST_WAITING = 10_000_000
MOST_PER_MINUTE = 1_000_000


class SubmissionLimit(models.Model):
    """How many jobs of a tenant and all below it may wait at the same time, and how many may be submitted in a minute.

    `tokens` is what was left of the latter at `tokens_at`: a job takes one, and an empty bucket is full after a minute.
    Only triggers change both.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.OneToOneField(Tenant, on_delete=models.PROTECT, related_name="submission_limit")
    most_waiting = models.PositiveIntegerField(null=True)
    jobs_per_minute = models.PositiveIntegerField(null=True)
    tokens = models.FloatField(default=0, editable=False)
    tokens_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(most_waiting__isnull=False) | Q(jobs_per_minute__isnull=False),
                name="submission_limit_limits_something",
            ),
            models.CheckConstraint(
                condition=Q(jobs_per_minute__isnull=True)
                | Q(jobs_per_minute__gte=1, jobs_per_minute__lte=MOST_PER_MINUTE),
                name="submission_rate_is_in_range",
            ),
            models.CheckConstraint(
                condition=Q(most_waiting__isnull=True) | Q(most_waiting__lte=MOST_WAITING),
                name="submission_limit_of_waiting_jobs_is_in_range",
            ),
            models.CheckConstraint(condition=Q(tokens__gte=0), name="submission_tokens_are_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.most_waiting} waiting, {self.jobs_per_minute} a minute"


class PastUse(models.Model):
    """How much of a resource a tenant itself held in the past: the mean, at `at`, with a weight that halves with every
    half-life.

    Ended holds count from their beginning to their end, pending ones not yet. Between two ends it fades in closed form,
    so nothing rewrites it. Only triggers write it; a proof recomputes it from the holds.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    resource = models.CharField(max_length=10)
    level = models.FloatField(help_text="In base units.")
    at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "past use"
        constraints = [
            models.UniqueConstraint(fields=["tenant", "resource"], name="one_past_use_per_tenant_and_resource"),
            models.CheckConstraint(condition=Q(resource__in=["gpu", "cpu", "memory"]), name="past_use_resource_counts"),
            models.CheckConstraint(condition=Q(level__gte=0), name="past_use_is_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.resource} {self.level}"


class KeptIdle(models.Model):
    """What is kept idle for a tenant, for an opaque holder: it counts as used by the tenant, but is not held.

    It counts from `created_at` to `ended_at`, and never beyond `until_at`. Another amount is another row. Only the end is
    ever written; a trigger chooses its time and adds it to the past use (`migrations/0008_kept_idle.sql`).
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    holder_id = models.UUIDField()
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    amounts = models.JSONField()
    created_at = models.DateTimeField(db_default=Now())
    until_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "kept idle"
        constraints = [
            models.UniqueConstraint(
                fields=["holder_id"], condition=Q(ended_at__isnull=True), name="one_open_kept_idle_per_holder"
            ),
            models.CheckConstraint(condition=Q(ended_at__gte=F("created_at")), name="kept_idle_ends_after_it_began"),
            models.CheckConstraint(condition=_whole_amounts(), name="kept_idle_amounts_are_whole"),
        ]
        indexes = [models.Index(fields=["holder_id"], name="kept_idle_by_holder")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.amounts}"


class PastHalfLife(models.Model):
    """The half-life with which past use is counted: one row. A change counts the past use again from all holds."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    half_life_seconds = models.PositiveIntegerField()

    class Meta:
        verbose_name_plural = "half-life of past use"
        constraints = [
            models.CheckConstraint(condition=Q(id=1), name="there_is_one_half_life"),
            models.CheckConstraint(
                condition=Q(half_life_seconds__gte=60, half_life_seconds__lte=366 * 86_400),
                name="half_life_is_in_range",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.half_life_seconds} s"

"""Limits on tenants."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Coalesce, Greatest

from foundation.ids import new_id
from quotas.engine.amounts import MAX_AMOUNT
from tenancy.models import Tenant

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
    that time: it begins again with each reduction, and ends with the surplus (`sql/limits.sql`).
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

"""Jobs, their attempts and what is known of their runs.

`0001_tables.sql` has what Django cannot say of the tables, `federation/sql/` their rules.
"""

from pathlib import Path

import django.contrib.postgres.constraints
import django.contrib.postgres.fields
import django.contrib.postgres.fields.ranges
import django.contrib.postgres.indexes
import django.db.models.deletion
import django.db.models.functions.comparison
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

import federation.engine.lifecycle
import foundation.ids
from foundation.rules import rules

TABLES = Path(__file__).with_name("0001_tables.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):
    replaces = [
        ("federation", "0001_initial"),
        ("federation", "0002_mounts"),
        ("federation", "0003_secrets"),
        ("federation", "0004_failures"),
        ("federation", "0005_resources"),
        ("federation", "0006_suspension"),
        ("federation", "0007_reports"),
        ("federation", "0008_maintenance"),
        ("federation", "0009_priority_classes"),
        ("federation", "0010_proven_images"),
        ("federation", "0011_rules_read_by_index"),
        ("federation", "0012_estimate_records"),
        ("federation", "0013_preemption"),
        ("federation", "0014_init_steps"),
        ("federation", "0015_submission_limits"),
        ("federation", "0016_reclaim"),
        ("federation", "0017_rests"),
        ("federation", "0018_moves"),
        ("federation", "0019_surplus"),
        ("federation", "0020_ends_are_dated_now"),
        ("federation", "0021_artifacts"),
        ("federation", "0022_database_history"),
        ("federation", "0023_lost_work"),
        ("federation", "0024_reserved_quota"),
        ("federation", "0025_fewer_indexes"),
        ("federation", "0026_prepulls"),
        ("federation", "0027_kept_room"),
    ]

    initial = True

    dependencies = [
        ("tenancy", "0001_squashed_0002_weight"),
        ("clusters", "0001_squashed_0010_nodes_of_images"),
        ("quotas", "0001_squashed_0008_kept_idle"),
        ("billing", "0001_squashed_0012_currencies"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="BookProof",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "began_at",
                    models.DateTimeField(help_text="On the database's clock: the proof covers rows written before."),
                ),
                ("finished_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("is_full", models.BooleanField()),
                (
                    "meter",
                    models.BigIntegerField(help_text="The last meter when the proof began; the next fields likewise."),
                ),
                ("segment", models.BigIntegerField()),
                ("movement", models.BigIntegerField()),
                ("found", models.PositiveIntegerField(help_text="The number of findings.")),
                ("told", models.JSONField(default=list, help_text="The first findings, as sentences.")),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("finished_at__gte", models.F("began_at"))), name="proof_ends_after_it_began"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ClusterUpkeep",
            fields=[
                (
                    "cluster",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="clusters.cluster",
                    ),
                ),
                ("compare_due_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "compare_claimed_until",
                    models.DateTimeField(
                        help_text="The comparing process claims it until this time, or until its session ends.",
                        null=True,
                    ),
                ),
                ("compared_at", models.DateTimeField(help_text="When a comparison was last completed.", null=True)),
                (
                    "slow_dispatch_until",
                    models.DateTimeField(
                        help_text="It counts as slow for dispatch until this time, because it recently delayed a dispatcher.",
                        null=True,
                    ),
                ),
                (
                    "slow_compare_until",
                    models.DateTimeField(
                        help_text="It counts as slow for comparison until this time, because it recently delayed one.",
                        null=True,
                    ),
                ),
                (
                    "rests_until",
                    models.DateTimeField(
                        help_text="Dispatch leaves it alone until this time, because it answered no call of the last visit.",
                        null=True,
                    ),
                ),
                (
                    "silent_visits",
                    models.PositiveSmallIntegerField(
                        db_default=0, default=0, help_text="The number of visits in a row in which it answered no call."
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["compare_due_at"], name="clusters_to_compare")],
            },
        ),
        migrations.CreateModel(
            name="PriorityClass",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("name", models.CharField(max_length=63)),
                ("value", models.IntegerField(help_text="The larger number goes first.")),
                ("description", models.CharField(blank=True, default="", max_length=500)),
                (
                    "is_open",
                    models.BooleanField(default=False, help_text="Whether everyone who may submit a job may use it."),
                ),
                ("is_default", models.BooleanField(default=False)),
                ("changed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "preempts",
                    models.CharField(
                        choices=[("never", "never"), ("lower", "lower")],
                        db_default="never",
                        default="never",
                        help_text="`lower`: its waiting jobs may replace running ones of lower priority in their organisation.",
                        max_length=5,
                    ),
                ),
                (
                    "shield_seconds",
                    models.PositiveIntegerField(
                        db_default=300,
                        default=300,
                        help_text="How long its jobs run at least before others may replace them.",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "priority classes",
                "constraints": [
                    models.UniqueConstraint(fields=("name",), name="priority_class_name_is_unique"),
                    models.UniqueConstraint(
                        models.Value(1),
                        condition=models.Q(("is_default", True)),
                        name="one_priority_class_is_the_default",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("name__regex", "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\Z")),
                        name="priority_class_name_is_a_dns_label",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("value__gte", -1000000), ("value__lte", 1000000)),
                        name="priority_class_value_is_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("preempts__in", ("never", "lower"))),
                        name="priority_class_preempts_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("shield_seconds__gte", 0), ("shield_seconds__lte", 2592000)),
                        name="priority_class_shield_is_in_range",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Job",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("name", models.CharField(max_length=63)),
                ("spec", models.JSONField()),
                (
                    "shape",
                    models.CharField(help_text="Hex digest of everything that placement considers.", max_length=32),
                ),
                ("labels", models.JSONField(default=dict)),
                ("priority", models.IntegerField(default=0, help_text="The value of its class when it was submitted.")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("queued", "queued"),
                            ("dispatching", "dispatching"),
                            ("running", "running"),
                            ("suspended", "suspended"),
                            ("cancelling", "cancelling"),
                            ("succeeded", "succeeded"),
                            ("failed", "failed"),
                            ("cancelled", "cancelled"),
                        ],
                        default=federation.engine.lifecycle.JobState["QUEUED"],
                        max_length=12,
                    ),
                ),
                ("reason_code", models.CharField(blank=True, default="new", max_length=40)),
                ("reason_message", models.TextField(blank=True, default="")),
                ("reason_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "explanation",
                    models.JSONField(
                        default=dict, help_text="For each cluster, why the job does not run there now, with numbers."
                    ),
                ),
                ("attempts_made", models.PositiveIntegerField(default=0)),
                ("exit_code", models.IntegerField(null=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="jobs", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="jobs",
                        to="tenancy.tenant",
                    ),
                ),
                (
                    "retry_at",
                    models.DateTimeField(help_text="While it is queued: its next attempt starts no sooner.", null=True),
                ),
                (
                    "suspend_requested_at",
                    models.DateTimeField(help_text="When a user suspended it, until it is resumed.", null=True),
                ),
                (
                    "priority_class",
                    models.ForeignKey(
                        db_index=False,
                        help_text="Empty for jobs that were submitted before classes had rows; the spec names it.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="jobs",
                        to="federation.priorityclass",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("finished_at__isnull", False), ("state__in", ["cancelled", "failed", "succeeded"])
                            ),
                            models.Q(
                                models.Q(("state__in", ["cancelled", "failed", "succeeded"]), _negated=True),
                                ("finished_at__isnull", True),
                            ),
                            _connector="OR",
                        ),
                        name="job_is_finished_exactly_when_terminal",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "state__in",
                                [
                                    "queued",
                                    "dispatching",
                                    "running",
                                    "suspended",
                                    "cancelling",
                                    "succeeded",
                                    "failed",
                                    "cancelled",
                                ],
                            )
                        ),
                        name="job_state_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "queued"), _negated=True),
                            ("suspend_requested_at__isnull", True),
                            _connector="OR",
                        ),
                        name="no_suspended_job_is_queued",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "suspended"), _negated=True),
                            ("suspend_requested_at__isnull", False),
                            _connector="OR",
                        ),
                        name="only_users_suspend_jobs",
                    ),
                ],
                "indexes": [
                    models.Index(condition=models.Q(("state", "queued")), fields=["-priority", "id"], name="job_queue"),
                    models.Index(
                        condition=models.Q(("state", "queued")),
                        fields=["tenant", "shape", "-priority", "id"],
                        name="job_queue_of_tenant",
                    ),
                    models.Index(fields=["tenant", "-id"], name="jobs_of_tenant"),
                    models.Index(
                        condition=models.Q(("state", "suspended")), fields=["tenant"], name="suspended_jobs_of_tenant"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Attempt",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("number", models.PositiveIntegerField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("reserved", "reserved"),
                            ("created", "created"),
                            ("starting", "starting"),
                            ("running", "running"),
                            ("unknown", "unknown"),
                            ("succeeded", "succeeded"),
                            ("failed", "failed"),
                            ("cancelled", "cancelled"),
                            ("preempted", "preempted"),
                            ("abandoned", "abandoned"),
                            ("lost", "lost"),
                        ],
                        default=federation.engine.lifecycle.AttemptState["RESERVED"],
                        max_length=12,
                    ),
                ),
                ("state_before_unknown", models.CharField(blank=True, max_length=12)),
                (
                    "flavor",
                    models.CharField(
                        help_text="The flavor of the first pod set; each object has its own.", max_length=120
                    ),
                ),
                (
                    "domain",
                    models.CharField(
                        blank=True, help_text="The chosen topology domain, as a path below the cluster.", max_length=500
                    ),
                ),
                ("unit_price", models.DecimalField(decimal_places=6, max_digits=18, null=True)),
                ("currency", models.CharField(default="USD", max_length=3)),
                (
                    "estimate",
                    models.JSONField(
                        db_default={},
                        default=dict,
                        help_text="The expected duration and cost when it was placed, in parts (`placement.answers.estimates`).",
                    ),
                ),
                (
                    "pace",
                    models.FloatField(
                        db_default=1,
                        default=1,
                        help_text="How long one hour of its work takes on the chosen GPU model.",
                    ),
                ),
                ("namespace", models.CharField(max_length=63)),
                ("spec_hash", models.CharField(max_length=32)),
                ("claim_token", models.BigIntegerField(default=0)),
                ("claim_expires_at", models.DateTimeField(null=True)),
                (
                    "next_action_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        help_text="When dispatch must visit it again; null: not before an observation.",
                        null=True,
                    ),
                ),
                ("tries", models.PositiveIntegerField(default=0)),
                ("reserved_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "sent_at",
                    models.DateTimeField(
                        help_text="Set before the first create request: from this time an object may exist.", null=True
                    ),
                ),
                ("created_at", models.DateTimeField(null=True)),
                ("starting_at", models.DateTimeField(null=True)),
                ("released_at", models.DateTimeField(null=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("end_reason", models.CharField(blank=True, max_length=60)),
                ("end_message", models.TextField(blank=True)),
                (
                    "stop_requested_at",
                    models.DateTimeField(help_text="Tombstone: this attempt must not start, or must stop.", null=True),
                ),
                (
                    "stop_reason",
                    models.CharField(
                        blank=True, help_text="`cancelled`, or why it must stop on its cluster.", max_length=60
                    ),
                ),
                (
                    "stop_message",
                    models.TextField(blank=True, help_text="The cluster's message, if that is why it must stop there."),
                ),
                (
                    "lost_seconds",
                    models.PositiveIntegerField(
                        help_text="Seconds of work that the next attempt repeats; known once settled.", null=True
                    ),
                ),
                ("settled_at", models.DateTimeField(help_text="When usage was posted and the hold ended.", null=True)),
                (
                    "pods_told_at",
                    models.DateTimeField(
                        help_text="When its cluster last listed its pods after the end; null: its usage is estimated.",
                        null=True,
                    ),
                ),
                (
                    "settle_at",
                    models.DateTimeField(help_text="When settlement is retried; null: immediately.", null=True),
                ),
                (
                    "settle_error",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Why its usage cannot be recorded.",
                        max_length=300,
                    ),
                ),
                (
                    "reopened_at",
                    models.DateTimeField(
                        help_text="When a pod of it was first seen running after it was settled.", null=True
                    ),
                ),
                (
                    "removed_at",
                    models.DateTimeField(help_text="When the cluster confirmed that its objects are gone.", null=True),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="attempts", to="clusters.cluster"
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="attempts",
                        to="federation.job",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state__in", ["created", "reserved", "running", "starting", "unknown"])),
                        fields=("job",),
                        name="one_live_attempt_per_job",
                    ),
                    models.UniqueConstraint(fields=("job", "number"), name="attempt_numbers_are_unique_per_job"),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "state__in",
                                [
                                    "reserved",
                                    "created",
                                    "starting",
                                    "running",
                                    "unknown",
                                    "succeeded",
                                    "failed",
                                    "cancelled",
                                    "preempted",
                                    "abandoned",
                                    "lost",
                                ],
                            )
                        ),
                        name="attempt_state_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("finished_at__isnull", True),
                                ("state__in", ["created", "reserved", "running", "starting", "unknown"]),
                            ),
                            models.Q(
                                models.Q(
                                    ("state__in", ["created", "reserved", "running", "starting", "unknown"]),
                                    _negated=True,
                                ),
                                ("finished_at__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="attempt_is_finished_exactly_when_terminal",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("released_at__isnull", True), ("starting_at__isnull", False), _connector="OR"
                        ),
                        name="nothing_is_released_before_the_gateway_commits_to_it",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("settled_at__isnull", True), ("finished_at__isnull", False), _connector="OR"
                        ),
                        name="only_finished_attempts_settle",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("estimate__contains", {})), name="attempt_estimate_is_an_object"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("pace__gt", 0), ("pace__lte", 1)), name="work_takes_its_time_or_less"
                    ),
                ],
                "indexes": [
                    models.Index(
                        condition=models.Q(("next_action_at__isnull", False)),
                        fields=["cluster", "next_action_at"],
                        name="attempts_due",
                    ),
                    models.Index(
                        condition=models.Q(("state__in", ["created", "reserved", "running", "starting", "unknown"])),
                        fields=["cluster", "state"],
                        name="live_attempts_of_cluster",
                    ),
                    models.Index(
                        condition=models.Q(("removed_at__isnull", True), ("settled_at__isnull", False)),
                        fields=["cluster", "finished_at"],
                        name="attempts_to_confirm",
                    ),
                    models.Index(
                        condition=models.Q(("finished_at__isnull", False), ("settled_at__isnull", True)),
                        fields=["finished_at"],
                        name="attempts_to_settle",
                    ),
                    models.Index(
                        condition=models.Q(("settle_error", ""), _negated=True),
                        fields=["id"],
                        name="attempts_in_trouble",
                    ),
                    django.contrib.postgres.indexes.BrinIndex(
                        autosummarize=True, fields=["settled_at"], name="attempts_by_settlement", pages_per_range=32
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="JobEvent",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("kind", models.CharField(max_length=40)),
                ("message", models.TextField(blank=True)),
                (
                    "attempt",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="federation.attempt",
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="events",
                        to="federation.job",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["job", "id"], name="job_timeline")],
            },
        ),
        migrations.CreateModel(
            name="PlacementPolicy",
            fields=[
                (
                    "tenant",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="placement_policy",
                        serialize=False,
                        to="tenancy.tenant",
                    ),
                ),
                ("default_strategy", models.CharField(blank=True, max_length=20)),
                (
                    "strategies",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=20), blank=True, default=list, size=5
                    ),
                ),
                (
                    "clusters",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=253), blank=True, default=list, size=100
                    ),
                ),
                (
                    "regions",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=253), blank=True, default=list, size=100
                    ),
                ),
                (
                    "capacity_types",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=20), blank=True, default=list, size=3
                    ),
                ),
                (
                    "flavors",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=253), blank=True, default=list, size=100
                    ),
                ),
                ("changed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "default_priority_class",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="default_of",
                        to="federation.priorityclass",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "placement policies",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("default_strategy__in", ["", "balanced", "cheapest", "soonest", "pack", "spread"])
                        ),
                        name="policy_default_strategy_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("strategies__contained_by", ["balanced", "cheapest", "soonest", "pack", "spread"])
                        ),
                        name="policy_strategies_are_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("default_strategy", ""),
                            ("strategies", []),
                            ("strategies__contains", [models.F("default_strategy")]),
                            _connector="OR",
                        ),
                        name="policy_default_strategy_is_allowed",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("capacity_types__contained_by", ["on_demand", "spot", "reserved"])),
                        name="policy_capacity_types_are_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("clusters__len__lte", 100), ("flavors__len__lte", 100), ("regions__len__lte", 100)
                        ),
                        name="policy_lists_are_short",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="PolicyWeight",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("strategy", models.CharField(max_length=20)),
                ("term", models.CharField(max_length=20)),
                ("value", models.DecimalField(decimal_places=3, max_digits=7)),
                (
                    "policy",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="weights",
                        to="federation.placementpolicy",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("policy", "strategy", "term"), name="one_weight_per_strategy_and_term"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("strategy__in", ("balanced", "cheapest", "soonest", "pack", "spread"))),
                        name="weighed_strategy_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("term", "price"), ("value__gte", 0), ("value__lte", 1000)),
                            models.Q(("term", "free"), ("value__gte", -10), ("value__lte", 10)),
                            models.Q(("term", "cluster_free"), ("value__gte", -10), ("value__lte", 10)),
                            models.Q(("term", "stranding"), ("value__gte", 0), ("value__lte", 10)),
                            _connector="OR",
                        ),
                        name="weight_is_of_a_known_term_and_within_bounds",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="RemoteObject",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("position", models.PositiveSmallIntegerField()),
                ("name", models.CharField(max_length=63)),
                ("flavor", models.CharField(max_length=120)),
                ("capacity_type", models.CharField(max_length=20)),
                ("pods", models.PositiveIntegerField(help_text="The number of pods that run at the same time.")),
                (
                    "completions",
                    models.PositiveIntegerField(
                        help_text="The total number of pods to complete; null if the spec does not set it.", null=True
                    ),
                ),
                ("gpu_units", models.PositiveIntegerField(help_text="Devices per pod, in units of the flavor.")),
                ("cpu_millicores", models.PositiveBigIntegerField(help_text="Per pod.")),
                ("memory_mib", models.PositiveBigIntegerField(help_text="Per pod.")),
                (
                    "assumed_nodes",
                    models.JSONField(
                        default=dict,
                        help_text="{node name: number of pods}, deducted from the nodes' free capacity until the pods are seen bound.",
                    ),
                ),
                (
                    "domain_selectors",
                    models.JSONField(
                        blank=True,
                        default=list,
                        help_text="Label selectors of the chosen topology domain, each for some of its nodes; empty: no domain.",
                    ),
                ),
                (
                    "topology_label",
                    models.CharField(
                        blank=True,
                        help_text="The node label of the cluster for the topology level that the job requested.",
                        max_length=316,
                    ),
                ),
                (
                    "stretches",
                    models.JSONField(
                        blank=True,
                        default=list,
                        help_text="Nodes and domains in the order of its pods' indices (`engine.objects.ranks`); empty: any order.",
                    ),
                ),
                (
                    "promised",
                    models.JSONField(
                        editable=False,
                        help_text="The flavor as it was when the attempt was created (trigger); null: it no longer existed.",
                        null=True,
                    ),
                ),
                (
                    "cluster_id",
                    models.UUIDField(help_text="The attempt's cluster; null until it has returned the uid.", null=True),
                ),
                ("uid", models.CharField(blank=True, max_length=64)),
                (
                    "outcome",
                    models.CharField(
                        blank=True, help_text="`succeeded` or `failed`, once its Job has ended.", max_length=10
                    ),
                ),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "began_at",
                    models.DateTimeField(
                        help_text="When its Job was unsuspended, on our clock; set when the Job has ended.", null=True
                    ),
                ),
                ("over_at", models.DateTimeField(help_text="When its Job ended, on our clock.", null=True)),
                (
                    "pods_over",
                    models.PositiveIntegerField(
                        help_text="The number of ended pods of its ended Job, as the cluster counted them.", null=True
                    ),
                ),
                (
                    "attempt",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="remote_objects",
                        to="federation.attempt",
                    ),
                ),
                (
                    "mounts",
                    models.JSONField(
                        blank=True,
                        db_default=[],
                        default=list,
                        help_text="The parts of volumes that its pods mount (`engine.objects.mounts`), as they were when it was placed.",
                    ),
                ),
                (
                    "secrets",
                    models.JSONField(
                        blank=True,
                        db_default={},
                        default=dict,
                        help_text="Names of its Secrets and versions of secrets (`engine.objects.job_secrets`), never values.",
                    ),
                ),
                (
                    "resources",
                    models.JSONField(
                        blank=True, db_default={}, default=dict, help_text="Other resources per pod, by name."
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("attempt", "position"), name="one_object_per_pod_set_of_an_attempt"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("uid", ""), _negated=True),
                        fields=("cluster_id", "uid"),
                        name="an_object_serves_one_attempt",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("uid", ""), ("cluster_id__isnull", False), _connector="OR"),
                        name="a_uid_is_known_with_its_cluster",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("pods_over__isnull", True), ("over_at__gte", models.F("began_at")), _connector="OR"
                        ),
                        name="a_job_ends_after_it_began",
                    ),
                ],
                "indexes": [
                    models.Index(
                        condition=models.Q(("resources", {}), _negated=True),
                        fields=["attempt"],
                        name="objects_with_other_resources",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="PodRun",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "cluster_id",
                    models.UUIDField(
                        help_text="The attempt's cluster (trigger): a uid is unique only within its cluster."
                    ),
                ),
                ("index", models.PositiveIntegerField(default=0, help_text="The pod's index in its Job.")),
                (
                    "place",
                    models.PositiveIntegerField(
                        help_text="Which of the object's places it occupies, from 0 (trigger: below `pods`).", null=True
                    ),
                ),
                ("uid", models.CharField(max_length=64)),
                ("name", models.CharField(max_length=253)),
                ("position", models.PositiveSmallIntegerField(default=0, help_text="The pod set's position.")),
                ("node", models.CharField(blank=True, max_length=253)),
                ("phase", models.CharField(max_length=20)),
                (
                    "reason",
                    models.CharField(
                        blank=True, help_text="Why it waits or failed, with the cluster's own message.", max_length=300
                    ),
                ),
                (
                    "disruption",
                    models.CharField(
                        blank=True,
                        db_default="",
                        help_text="The component that evicted it from its node; empty if none did.",
                        max_length=60,
                    ),
                ),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("exit_code", models.IntegerField(null=True)),
                ("is_gone", models.BooleanField(default=False)),
                (
                    "last_seen_at",
                    models.DateTimeField(
                        help_text="When it was last seen, if it then disappeared from the list without a reported end; otherwise null.",
                        null=True,
                    ),
                ),
                ("is_estimated", models.BooleanField(db_default=False, default=False)),
                (
                    "part",
                    models.PositiveSmallIntegerField(
                        db_default=0, default=0, help_text="The number of the meter that counts it now."
                    ),
                ),
                (
                    "resumed_at",
                    models.DateTimeField(help_text="The start of that meter; null: the pod's start.", null=True),
                ),
                ("observed_at", models.DateTimeField()),
                (
                    "attempt",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="pods",
                        to="federation.attempt",
                    ),
                ),
                (
                    "remote_object",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="federation.remoteobject",
                    ),
                ),
                (
                    "ending",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Why its container ended: `OOMKilled`.",
                        max_length=60,
                    ),
                ),
                (
                    "message",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="What the cluster or the program said of its end.",
                        max_length=300,
                    ),
                ),
                (
                    "signal",
                    models.PositiveSmallIntegerField(
                        help_text="The signal that ended its program, if reported.", null=True
                    ),
                ),
                (
                    "init_step",
                    models.PositiveSmallIntegerField(
                        help_text="The number of the init step that failed, from 1; the end is then that of this step.",
                        null=True,
                    ),
                ),
                (
                    "initializing_at",
                    models.DateTimeField(
                        help_text="When it was last seen to begin or leave an init step; null if it never was.",
                        null=True,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("cluster_id", "uid"), name="one_row_per_observed_pod"),
                    django.contrib.postgres.constraints.ExclusionConstraint(
                        condition=models.Q(("place__isnull", False), ("started_at__isnull", False)),
                        expressions=[
                            (
                                models.Func(
                                    models.F("remote_object_id"),
                                    models.F("remote_object_id"),
                                    models.Value("[]"),
                                    function="int8range",
                                    output_field=django.contrib.postgres.fields.ranges.BigIntegerRangeField(),
                                ),
                                "&&",
                            ),
                            (
                                models.Func(
                                    models.F("place"),
                                    models.F("place"),
                                    models.Value("[]"),
                                    function="int8range",
                                    output_field=django.contrib.postgres.fields.ranges.BigIntegerRangeField(),
                                ),
                                "&&",
                            ),
                            (
                                models.Func(
                                    models.F("started_at"),
                                    models.Case(
                                        models.When(
                                            finished_at__isnull=False,
                                            then=django.db.models.functions.comparison.Greatest(
                                                "started_at", "finished_at", "observed_at"
                                            ),
                                        ),
                                        models.When(
                                            is_gone=True,
                                            then=django.db.models.functions.comparison.Greatest(
                                                "started_at", "observed_at"
                                            ),
                                        ),
                                    ),
                                    function="tstzrange",
                                    output_field=django.contrib.postgres.fields.ranges.DateTimeRangeField(),
                                ),
                                "&&",
                            ),
                        ],
                        name="one_pod_at_a_time_has_a_place",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("finished_at__isnull", True),
                            ("started_at__isnull", True),
                            ("finished_at__gte", models.F("started_at")),
                            _connector="OR",
                        ),
                        name="pod_ends_after_it_starts",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("init_step__isnull", True),
                            models.Q(("finished_at__isnull", False), ("init_step__range", (1, 8))),
                            _connector="OR",
                        ),
                        name="an_init_step_that_failed_has_ended",
                    ),
                ],
                "indexes": [models.Index(fields=["attempt", "position", "index"], name="pods_of_attempts")],
            },
        ),
        migrations.CreateModel(
            name="Reservation",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("name", models.CharField(max_length=63)),
                ("shape", models.JSONField(help_text="Pod sets, topology and constraints, as in a job's spec.")),
                (
                    "count",
                    models.PositiveIntegerField(
                        help_text="The number of jobs of the shape that its nodes can run at the same time."
                    ),
                ),
                ("starts_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField(help_text="The requested end.")),
                (
                    "until_at",
                    models.DateTimeField(
                        help_text="The end in effect: earlier than `ends_at` if it was shortened or cancelled."
                    ),
                ),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("cancelled_at", models.DateTimeField(null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "created_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="reservations", to="tenancy.tenant"
                    ),
                ),
                (
                    "quota",
                    models.OneToOneField(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="quotas.reservedquota",
                    ),
                ),
                (
                    "recall_seconds",
                    models.PositiveIntegerField(
                        help_text="Other jobs that end within this time may use what is unused. Null: none may.",
                        null=True,
                    ),
                ),
                (
                    "no_show_seconds",
                    models.PositiveIntegerField(
                        help_text="It is released if none of its jobs has come this long after the start. Null: never.",
                        null=True,
                    ),
                ),
                (
                    "released_at",
                    models.DateTimeField(help_text="When it ended because none of its jobs had come.", null=True),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("name__regex", "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\Z")),
                        name="reservation_name_is_a_dns_label",
                    ),
                    models.CheckConstraint(condition=models.Q(("count__gte", 1)), name="reservation_is_for_something"),
                    models.CheckConstraint(
                        condition=models.Q(("ends_at__gt", models.F("starts_at"))),
                        name="reservation_ends_after_it_starts",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("until_at__gte", models.F("starts_at")), ("until_at__lte", models.F("ends_at"))
                        ),
                        name="reservation_is_kept_within_what_was_asked",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("cancelled_at__isnull", True),
                            models.Q(("cancelled_at__lte", models.F("starts_at")), ("until_at", models.F("starts_at"))),
                            ("until_at", models.F("cancelled_at")),
                            _connector="OR",
                        ),
                        name="a_cancelled_reservation_ends_at_once",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("cancelled_at__isnull", True)),
                        fields=("tenant", "name"),
                        name="reservation_name_is_unique_in_its_tenant",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("recall_seconds__isnull", True),
                            models.Q(("recall_seconds__gte", 180), ("recall_seconds__lte", 86400)),
                            _connector="OR",
                        ),
                        name="reservation_recall_is_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("released_at__isnull", True),
                            models.Q(
                                ("cancelled_at__isnull", True),
                                ("no_show_seconds__isnull", False),
                                ("released_at", models.F("until_at")),
                                ("released_at__gte", models.F("starts_at")),
                            ),
                            _connector="OR",
                        ),
                        name="a_released_reservation_ends_then",
                    ),
                ],
                "indexes": [models.Index(fields=["until_at"], name="reservations_by_end")],
            },
        ),
        migrations.CreateModel(
            name="ReservedNode",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("node", models.CharField(max_length=253)),
                ("starts_at", models.DateTimeField()),
                ("until_at", models.DateTimeField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "reservation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="reserved_nodes",
                        to="federation.reservation",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("reservation", "node"), name="a_node_is_in_a_reservation_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="RunGroup",
            fields=[
                (
                    "key",
                    models.CharField(
                        help_text="A digest of what the runs have in common.",
                        max_length=32,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("level", models.CharField(choices=[("job", "job"), ("name", "name"), ("pods", "pods")], max_length=4)),
                (
                    "recent_seconds",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.IntegerField(),
                        help_text="Durations of the last runs, newest first.",
                        size=None,
                    ),
                ),
                ("runs", models.PositiveBigIntegerField(help_text="The total number of runs.")),
                ("last_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("level__in", ["job", "name", "pods"])), name="run_group_level_is_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("recent_seconds__len__gte", 1), ("recent_seconds__len__lte", 50)),
                        name="run_group_remembers_a_bounded_number_of_runs",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("runs__gte", models.F("recent_seconds__len"))),
                        name="run_group_counts_what_it_remembers",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Standstill",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("began_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("reason", models.TextField()),
                ("ended_at", models.DateTimeField(null=True)),
                ("ended_by", models.TextField(blank=True, help_text="Who resumed dispatch, and their note.")),
                (
                    "needs_operator",
                    models.BooleanField(
                        db_default=True,
                        default=True,
                        help_text="Whether only an operator ends it: an operator began it, or something was found.",
                    ),
                ),
                (
                    "compare_from",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        help_text="Comparisons that began earlier do not count: calls of before may still arrive.",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        models.Value(1), condition=models.Q(("ended_at__isnull", True)), name="one_standstill_at_a_time"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("ended_at__isnull", True), ("ended_by", "")),
                            models.Q(("ended_at__isnull", False), models.Q(("ended_by", ""), _negated=True)),
                            _connector="OR",
                        ),
                        name="a_standstill_is_ended_by_somebody",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ComparedCluster",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("compared_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "strangers",
                    models.PositiveIntegerField(
                        help_text="The gateway's objects that may run and belong to no known attempt."
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "standstill",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="compared", to="federation.standstill"
                    ),
                ),
                (
                    "adopted",
                    models.PositiveIntegerField(
                        db_default=0,
                        default=0,
                        help_text="Attempts that were taken in or caught up, in all comparisons.",
                    ),
                ),
                (
                    "vanished",
                    models.PositiveIntegerField(
                        db_default=0, default=0, help_text="Objects of live attempts that may have run and are gone."
                    ),
                ),
                (
                    "history",
                    models.TextField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="The database's history when the cluster was listed.",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("standstill", "cluster"), name="a_cluster_is_compared_once_in_a_standstill"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="TenantFailureRules",
            fields=[
                (
                    "tenant",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="failure_rules",
                        serialize=False,
                        to="tenancy.tenant",
                    ),
                ),
                ("rules", models.JSONField()),
                ("changed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "verbose_name_plural": "tenant failure rules",
            },
        ),
        migrations.CreateModel(
            name="Diagnosis",
            fields=[
                (
                    "attempt",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="diagnosis",
                        serialize=False,
                        to="federation.attempt",
                    ),
                ),
                ("failure_class", models.CharField(blank=True, max_length=20)),
                (
                    "own_class",
                    models.CharField(
                        blank=True,
                        help_text="The class by the gateway's own rules: the only one that counts for others.",
                        max_length=20,
                    ),
                ),
                ("text", models.CharField(blank=True, max_length=500)),
                (
                    "rule",
                    models.CharField(
                        blank=True, help_text="The owner of the rule that decided, and its name.", max_length=1200
                    ),
                ),
                ("step", models.CharField(blank=True, max_length=20)),
                ("next_step", models.CharField(blank=True, help_text="The next step, for people.", max_length=500)),
                (
                    "retry",
                    models.PositiveIntegerField(
                        default=0, help_text="The number of retries by this rule, with the next one."
                    ),
                ),
                ("most", models.PositiveIntegerField(default=0, help_text="The most retries by this rule.")),
                ("wait_seconds", models.PositiveIntegerField(default=0, help_text="The wait before the retry.")),
                (
                    "avoid",
                    models.CharField(
                        blank=True, help_text="`node` or `cluster`: what the retry avoids.", max_length=10
                    ),
                ),
                ("avoid_until", models.DateTimeField(null=True)),
                (
                    "node",
                    models.CharField(
                        blank=True, help_text="The node of the pod that the rule matched.", max_length=253
                    ),
                ),
                (
                    "memory",
                    models.JSONField(
                        default=dict, help_text="{pod set: bytes}, the memory of the next attempt if it grows."
                    ),
                ),
                ("asked_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("judged_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("judged_at__isnull", True)), fields=["asked_at"], name="failures_to_examine"
                    ),
                    models.Index(
                        condition=models.Q(("avoid", ""), _negated=True),
                        fields=["avoid_until"],
                        name="diagnoses_that_avoid",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("failure_class", ""), ("judged_at__isnull", True), ("own_class", ""), ("step", "")
                            ),
                            models.Q(
                                (
                                    "failure_class__in",
                                    [
                                        "program",
                                        "out_of_memory",
                                        "node",
                                        "device",
                                        "network",
                                        "image",
                                        "storage",
                                        "preempted",
                                        "infrastructure",
                                        "deadline",
                                        "unknown",
                                    ],
                                ),
                                ("judged_at__isnull", False),
                                (
                                    "own_class__in",
                                    [
                                        "program",
                                        "out_of_memory",
                                        "node",
                                        "device",
                                        "network",
                                        "image",
                                        "storage",
                                        "preempted",
                                        "infrastructure",
                                        "deadline",
                                        "unknown",
                                    ],
                                ),
                                ("step__in", ["stop", "again", "again_elsewhere", "more_memory"]),
                            ),
                            _connector="OR",
                        ),
                        name="a_diagnosis_is_judged_as_a_whole",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("step__in", ["", "stop"]),
                            models.Q(("retry__gte", 1), ("retry__lte", models.F("most"))),
                            _connector="OR",
                        ),
                        name="a_retry_is_within_its_rule",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("wait_seconds__lte", 86400)), name="a_retry_waits_for_a_bounded_time"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("avoid", ""), ("avoid_until__isnull", True)),
                            models.Q(
                                ("avoid__in", ["node", "cluster"]),
                                ("avoid_until__isnull", False),
                                ("step", "again_elsewhere"),
                            ),
                            _connector="OR",
                        ),
                        name="what_a_retry_avoids_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("memory", {}), ("step", "more_memory"), _connector="OR"),
                        name="memory_grows_by_its_step",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="RetryBrake",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("began_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "failures",
                    models.PositiveIntegerField(help_text="How many of the latest attempts failed so, when it began."),
                ),
                ("attempts", models.PositiveIntegerField(help_text="The number of the latest attempts that counted.")),
                (
                    "cluster",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=("cluster",),
                        name="a_brake_is_pulled_once",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("ended_at__isnull", True), ("ended_at__gte", models.F("began_at")), _connector="OR"
                        ),
                        name="a_brake_ends_after_it_began",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("failures__gte", 1), ("failures__lte", models.F("attempts"))),
                        name="a_brake_names_its_failures",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Progress",
            fields=[
                (
                    "attempt",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="progress",
                        serialize=False,
                        to="federation.attempt",
                    ),
                ),
                (
                    "sequence",
                    models.BigIntegerField(
                        db_default=-1,
                        default=-1,
                        help_text="Of the newest report; a report counts only if it is newer.",
                    ),
                ),
                ("step", models.BigIntegerField(null=True)),
                ("total_steps", models.BigIntegerField(null=True)),
                ("loss", models.FloatField(null=True)),
                (
                    "series",
                    models.JSONField(
                        db_default={},
                        default=dict,
                        help_text="By name, a short list of pairs: step (or sequence) and value.",
                    ),
                ),
                ("first_step", models.BigIntegerField(help_text="The first reported step.", null=True)),
                ("first_step_at", models.DateTimeField(null=True)),
                (
                    "reported_at",
                    models.DateTimeField(help_text="When the newest report arrived, by our clock.", null=True),
                ),
                ("window_began_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "window_reports",
                    models.PositiveIntegerField(
                        db_default=1, default=1, help_text="The number of reports since `window_began_at`."
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("step__isnull", True), ("step__gte", 0), _connector="OR"),
                            models.Q(("total_steps__isnull", True), ("total_steps__gte", 1), _connector="OR"),
                        ),
                        name="progress_counts_steps",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("step__isnull", True),
                            ("total_steps__isnull", True),
                            ("step__lte", models.F("total_steps")),
                            _connector="OR",
                        ),
                        name="progress_is_at_most_all",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Checkpoint",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("sequence", models.BigIntegerField(help_text="Of the newest report that has it.")),
                ("reference", models.CharField(max_length=1024)),
                ("size_bytes", models.BigIntegerField(null=True)),
                ("step", models.BigIntegerField(null=True)),
                (
                    "flavors",
                    models.JSONField(default=list, help_text="The flavors on which it can be resumed; empty: any."),
                ),
                ("written_at", models.DateTimeField(help_text="As reported, but no later than the report.")),
                ("reported_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "attempt",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="checkpoints", to="federation.attempt"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["attempt", "-sequence"], name="newest_checkpoints")],
                "constraints": [
                    models.UniqueConstraint(fields=("attempt", "reference"), name="a_checkpoint_is_listed_once"),
                    models.CheckConstraint(
                        condition=models.Q(("reference", ""), _negated=True), name="a_checkpoint_has_a_reference"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("flavors__contains", [])), name="checkpoint_flavors_are_a_list"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("written_at__lte", models.F("reported_at"))),
                        name="a_checkpoint_is_written_before_its_report",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="PriorityClassGrant",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "role",
                    models.CharField(
                        blank=True, default="", help_text="Empty: any role that may submit jobs.", max_length=20
                    ),
                ),
                (
                    "priority_class",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="grants",
                        to="federation.priorityclass",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        help_text="Empty: every tenant.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="priority_class_grants",
                        to="tenancy.tenant",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "grants of priority classes",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("priority_class", "role", "tenant"),
                        name="a_priority_class_is_granted_once",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("role__in", ["", "viewer", "submitter", "manager", "finance", "admin"])),
                        name="granted_role_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("role", ""), _negated=True), ("tenant__isnull", False), _connector="OR"
                        ),
                        name="grant_names_a_role_or_a_tenant",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ProvenImage",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.CharField(help_text="The normal name (`clusters.engine.images`).", max_length=600)),
                (
                    "last_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        help_text="About when a run last succeeded with it.",
                    ),
                ),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["-last_at"], name="newest_proven_images"),
                    models.Index(fields=["organisation", "last_at"], name="proven_images_by_age"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("organisation", "name"), name="image_is_proven_once_for_an_organisation"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("name", ""), _negated=True), name="proven_image_has_a_name"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="EstimateRecord",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("stated_seconds", models.FloatField(help_text="The sum, in which later runs count more.")),
                ("taken_seconds", models.FloatField(help_text="Likewise of what the runs took.")),
                ("last_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenancy.tenant"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "user"), name="one_estimate_record_per_tenant_and_user"),
                    models.CheckConstraint(
                        condition=models.Q(("stated_seconds__gte", 60), ("taken_seconds__gte", 60)),
                        name="estimate_record_is_of_runs",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Preemption",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                (
                    "organisation",
                    models.CharField(help_text="The tenant at the top of their paths at that time.", max_length=63),
                ),
                ("nodes", models.JSONField(help_text="The names of the nodes that are kept for the beneficiary.")),
                ("cost_gpu_seconds", models.FloatField(help_text="What it costs to stop the victims.")),
                ("is_exact", models.BooleanField(help_text="Whether no cheaper choice existed on that cluster.")),
                (
                    "considered",
                    models.JSONField(
                        default=list, help_text="The jobs that might have been stopped there, with their costs."
                    ),
                ),
                ("alternatives", models.JSONField(default=list, help_text="The costs on other clusters.")),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("deadline_at", models.DateTimeField(help_text="When the claim is given up.")),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "outcome",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("placed", "placed"),
                            ("expired", "expired"),
                            ("withdrawn", "withdrawn"),
                            ("reduced", "reduced"),
                        ],
                        default="",
                        max_length=10,
                    ),
                ),
                (
                    "beneficiary",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="preemptions",
                        to="federation.job",
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "amounts",
                    models.JSONField(
                        db_default={},
                        default=dict,
                        help_text="What the beneficiary's hold will take; this quota is kept for it.",
                    ),
                ),
                (
                    "limits",
                    models.JSONField(
                        db_default=[],
                        default=list,
                        help_text="The lowered limits for which jobs are stopped, if not for another job.",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["created_at"], name="preemptions_by_time"),
                    models.Index(
                        condition=models.Q(("ended_at__isnull", True)), fields=["id"], name="live_preemptions"
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=("beneficiary",),
                        name="one_live_preemption_per_beneficiary",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("deadline_at__gt", models.F("created_at"))),
                        name="a_claim_has_a_deadline_ahead",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("cost_gpu_seconds__gte", 0)), name="a_preemption_costs_nothing_or_more"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("nodes__contains", []), ("considered__contains", []), ("alternatives__contains", [])
                        ),
                        name="a_preemption_lists_its_nodes",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("ended_at__isnull", True), ("outcome", "")),
                            models.Q(
                                ("ended_at__isnull", False),
                                ("outcome__in", ["placed", "expired", "withdrawn", "reduced"]),
                            ),
                            _connector="OR",
                        ),
                        name="a_preemption_ends_with_an_outcome",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("beneficiary__isnull", False),
                                ("cluster__isnull", False),
                                ("limits", []),
                                models.Q(("outcome", "reduced"), _negated=True),
                            ),
                            models.Q(
                                ("beneficiary__isnull", True),
                                ("cluster__isnull", True),
                                ("limits__contains", []),
                                ("nodes", []),
                                ("outcome", "reduced"),
                                models.Q(("limits", []), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="a_preemption_has_a_beneficiary_or_limits",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="PreemptionVictim",
            fields=[
                (
                    "attempt",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="preemption",
                        serialize=False,
                        to="federation.attempt",
                    ),
                ),
                (
                    "lost_seconds",
                    models.PositiveIntegerField(help_text="Of work since its last checkpoint, at the decision."),
                ),
                ("ran_seconds", models.PositiveIntegerField(help_text="How long it had run.")),
                (
                    "shield_seconds",
                    models.PositiveIntegerField(help_text="How long its class shielded it at that time."),
                ),
                (
                    "times_preempted",
                    models.PositiveSmallIntegerField(help_text="How often its job was stopped for others before."),
                ),
                (
                    "gpu_milli",
                    models.PositiveBigIntegerField(help_text="Its size; without GPUs, sixteen cores count as one."),
                ),
                ("cost_gpu_seconds", models.FloatField()),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="evictions", to="federation.job"
                    ),
                ),
                (
                    "preemption",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="victims", to="federation.preemption"
                    ),
                ),
                (
                    "loan",
                    models.JSONField(
                        help_text="The limit by which it borrowed, and by how much; null if the beneficiary is more urgent.",
                        null=True,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("ran_seconds__gte", models.F("shield_seconds"))),
                        name="a_victims_shield_is_kept",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("times_preempted__lt", 3)), name="a_job_is_preempted_a_few_times_at_most"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("cost_gpu_seconds__gte", 0)), name="a_victim_costs_nothing_or_more"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Move",
            fields=[
                (
                    "attempt",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="move",
                        serialize=False,
                        to="federation.attempt",
                    ),
                ),
                (
                    "cause",
                    models.CharField(
                        choices=[
                            ("user", "a user's request"),
                            ("drain", "its cluster is drained"),
                            ("maintenance", "a maintenance window that drains begins before it ends"),
                            ("spot", "its node is about to be taken away"),
                        ],
                        max_length=11,
                    ),
                ),
                (
                    "clusters",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.UUIDField(),
                        db_default=[],
                        default=list,
                        help_text="The clusters that the user named: for a while it continues on one of these only. Empty: anywhere else.",
                        size=None,
                    ),
                ),
                ("expected_id", models.UUIDField(help_text="The cluster that had room for it.")),
                ("lost_seconds", models.PositiveIntegerField(help_text="Of work that it repeats.")),
                (
                    "cost_seconds",
                    models.PositiveIntegerField(help_text="What moving costs: work that it repeats, and the restart."),
                ),
                (
                    "stay_seconds",
                    models.PositiveIntegerField(
                        help_text="What staying would cost; null for a user's request.", null=True
                    ),
                ),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="moves", to="federation.job"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["job", "created_at"], name="moves_of_job")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("cause__in", ["user", "drain", "maintenance", "spot"])),
                        name="a_moves_cause_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("cause", "user"), ("stay_seconds__isnull", True)),
                            models.Q(
                                models.Q(("cause", "user"), _negated=True),
                                ("clusters", []),
                                ("stay_seconds__gt", models.F("cost_seconds")),
                                ("stay_seconds__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="the_gateway_moves_only_what_gains",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("cost_seconds__gte", models.F("lost_seconds"))),
                        name="a_move_costs_what_it_repeats_or_more",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("clusters__len__isnull", True), ("clusters__len__lte", 100), _connector="OR"
                        ),
                        name="a_move_names_a_bounded_number_of_clusters",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Artifact",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=63)),
                (
                    "storage",
                    models.CharField(blank=True, help_text="On the attempt's cluster; empty for a URL.", max_length=63),
                ),
                (
                    "reference",
                    models.CharField(
                        help_text="A path below the tenant's part of the storage, or a URL.", max_length=1025
                    ),
                ),
                ("sha256", models.CharField(help_text="In hexadecimal, as the run computed it.", max_length=64)),
                ("size_bytes", models.BigIntegerField()),
                ("sequence", models.BigIntegerField(help_text="Of the newest report that has it.")),
                ("announced_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "attempt",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="artifacts",
                        to="federation.attempt",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("attempt", "name"), name="an_artifact_is_listed_once"),
                    models.CheckConstraint(
                        condition=models.Q(("name__regex", "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\Z")),
                        name="an_artifacts_name_is_a_dns_label",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("sha256__regex", "^[0-9a-f]{64}\\Z")),
                        name="an_artifacts_digest_is_a_sha256",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("sequence__gte", 0), ("size_bytes__gte", 0), ("size_bytes__lte", 9007199254740991)
                        ),
                        name="an_artifact_has_a_size",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                models.Q(
                                    ("storage", ""),
                                    (
                                        "reference__regex",
                                        "^(s3|gs|az|https)://[A-Za-z0-9][A-Za-z0-9._-]{0,252}(:[0-9]{1,5})?(/[A-Za-z0-9._=+@,~-]+)+\\Z",
                                    ),
                                ),
                                models.Q(
                                    ("storage__regex", "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\Z"),
                                    ("reference__regex", "^[A-Za-z0-9._=+@,~-]+(/[A-Za-z0-9._=+@,~-]+)*\\Z"),
                                ),
                                _connector="OR",
                            ),
                            models.Q(("reference__regex", "(^|/)\\.{1,2}(/|$)"), _negated=True),
                        ),
                        name="an_artifacts_reference_leads_nowhere_else",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="DatabaseHistory",
            fields=[
                ("id", models.PositiveSmallIntegerField(db_default=1, default=1, primary_key=True, serialize=False)),
                ("accepted", models.TextField()),
                ("accepted_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "constraints": [models.CheckConstraint(condition=models.Q(("id", 1)), name="one_history_is_accepted")],
            },
        ),
        migrations.CreateModel(
            name="PrepullPolicy",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("name", models.CharField(max_length=63)),
                (
                    "images",
                    django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=512), size=20),
                ),
                (
                    "flavor",
                    models.CharField(
                        blank=True, help_text="Only the nodes that offer it; empty for all nodes.", max_length=120
                    ),
                ),
                ("pull_secret", models.CharField(blank=True, max_length=63)),
                (
                    "at_once",
                    models.PositiveSmallIntegerField(default=2, help_text="The most pulls under way at the same time."),
                ),
                ("is_paused", models.BooleanField(default=False)),
                ("created_by", models.CharField(max_length=300)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("changed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "removed_at",
                    models.DateTimeField(help_text="Its pulls are being stopped; then the row goes.", null=True),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="prepull_policies",
                        to="clusters.cluster",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="prepull_policies",
                        to="tenancy.tenant",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "prepull policies",
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("removed_at", None)),
                        fields=("cluster", "name"),
                        name="prepull_name_is_unique_on_its_cluster",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("name__regex", "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\Z")),
                        name="prepull_name_is_a_dns_label",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("images__len__gte", 1), ("images__len__lte", 20)),
                        name="prepull_images_are_few",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("at_once__gte", 1), ("at_once__lte", 10)), name="prepulls_at_once_are_few"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("created_by", ""), _negated=True), name="prepull_was_made_by_someone"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Prepull",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("image", models.CharField(max_length=512)),
                ("node", models.CharField(max_length=253)),
                (
                    "phase",
                    models.CharField(
                        choices=[
                            ("idle", "Idle"),
                            ("planned", "Planned"),
                            ("created", "Created"),
                            ("released", "Released"),
                            ("ending", "Ending"),
                        ],
                        default="idle",
                        max_length=10,
                    ),
                ),
                ("slot", models.PositiveSmallIntegerField(null=True)),
                (
                    "object_id",
                    models.UUIDField(help_text="The name of its object comes from this id.", null=True, unique=True),
                ),
                ("namespace", models.CharField(blank=True, max_length=63)),
                (
                    "secrets",
                    models.JSONField(blank=True, default=dict, help_text="The promised secret, by which it pulls."),
                ),
                ("uid", models.CharField(blank=True, max_length=64)),
                ("begun_at", models.DateTimeField(null=True)),
                ("released_at", models.DateTimeField(null=True)),
                ("outcome", models.CharField(blank=True, max_length=10)),
                ("message", models.CharField(blank=True, max_length=300)),
                ("failures", models.PositiveSmallIntegerField(default=0, help_text="In a row.")),
                ("pulls", models.PositiveIntegerField(default=0)),
                ("ended_at", models.DateTimeField(null=True)),
                ("pulled_at", models.DateTimeField(null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "policy",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="prepulls",
                        to="federation.prepullpolicy",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("policy", "image", "node"), name="image_is_pulled_once_to_a_node"),
                    models.UniqueConstraint(
                        condition=models.Q(("slot__isnull", False)),
                        fields=("cluster", "slot"),
                        name="a_slot_has_one_prepull",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("slot", None), models.Q(("slot__gte", 0), ("slot__lt", 10)), _connector="OR"
                        ),
                        name="prepull_slot_exists",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("object_id", None), ("phase", "idle"), ("slot", None), ("uid", "")),
                            models.Q(
                                ("begun_at__isnull", False),
                                ("object_id__isnull", False),
                                ("phase__in", ["planned", "created", "released", "ending"]),
                                ("slot__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="live_prepull_has_a_slot_and_an_object",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("phase__in", ["created", "released"]), _negated=True),
                            models.Q(("uid", ""), _negated=True),
                            _connector="OR",
                        ),
                        name="created_prepull_has_a_uid",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("phase", "released"), _negated=True),
                            ("released_at__isnull", False),
                            _connector="OR",
                        ),
                        name="released_prepull_has_its_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("outcome__in", ["", "pulled", "failed"])), name="prepull_outcome_is_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("ended_at", None), ("outcome", "")),
                            models.Q(models.Q(("outcome", ""), _negated=True), ("ended_at__isnull", False)),
                            _connector="OR",
                        ),
                        name="ended_prepull_has_its_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("outcome", "pulled"), _negated=True),
                            models.Q(("failures", 0), ("pulled_at__isnull", False)),
                            _connector="OR",
                        ),
                        name="pulled_prepull_has_its_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("pulled_at", None), ("pulls", 0)),
                            models.Q(("pulled_at__isnull", False), ("pulls__gte", 1)),
                            _connector="OR",
                        ),
                        name="prepulls_are_counted",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="KeptRoom",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("nodes", models.JSONField(help_text="Their names.")),
                ("expected_at", models.DateTimeField(help_text="When the job is expected to start there.", null=True)),
                ("since_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("until_at", models.DateTimeField()),
                ("again_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "outcome",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("placed", "placed"),
                            ("withdrawn", "withdrawn"),
                            ("given_up", "given_up"),
                            ("released", "released"),
                        ],
                        default="",
                        max_length=10,
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="clusters.cluster",
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="kept_room", to="federation.job"
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("outcome", "given_up")), fields=["again_at"], name="kept_rooms_that_rest"
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=("job",),
                        name="one_room_is_kept_for_a_job",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("ended_at__isnull", True), ("outcome", "")),
                            models.Q(
                                ("ended_at__isnull", False),
                                ("outcome__in", ("placed", "withdrawn", "given_up", "released")),
                            ),
                            _connector="OR",
                        ),
                        name="kept_room_ends_with_an_outcome",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("again_at__gt", models.F("until_at")), ("until_at__gt", models.F("since_at"))
                        ),
                        name="kept_room_is_given_up_in_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("ended_at__gte", models.F("since_at"))),
                        name="kept_room_ends_after_it_began",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("nodes__contains", [])), name="kept_room_lists_its_nodes"
                    ),
                ],
            },
        ),
        migrations.RunSQL(TABLES, migrations.RunSQL.noop),
        rules("federation/jobs.sql"),
        rules("federation/objects.sql"),
        rules("federation/pods.sql"),
        rules("federation/reservations.sql"),
        rules("federation/failures.sql"),
        rules("federation/maintenance.sql"),
        rules("federation/priority_classes.sql"),
        rules("federation/preemption.sql"),
        rules("federation/submission_limits.sql"),
        rules("federation/moves.sql"),
        rules("federation/artifacts.sql"),
        rules("federation/standstill.sql"),
        rules("federation/lost_work.sql"),
        rules("federation/kept_room.sql"),
    ]

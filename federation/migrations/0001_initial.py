"""Jobs and what is known of their runs; `0001_rules.sql` has what the tables themselves refuse."""

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


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("clusters", "0001_initial"),
        ("tenancy", "0001_initial"),
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
            ],
            options={
                "indexes": [models.Index(fields=["compare_due_at"], name="clusters_to_compare")],
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
                ("priority", models.IntegerField(default=0)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("queued", "queued"),
                            ("dispatching", "dispatching"),
                            ("running", "running"),
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
                        on_delete=django.db.models.deletion.PROTECT, related_name="jobs", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "state__in",
                                ["queued", "dispatching", "running", "cancelling", "succeeded", "failed", "cancelled"],
                            )
                        ),
                        name="job_state_is_known",
                    ),
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
                ],
                "indexes": [
                    models.Index(condition=models.Q(("state", "queued")), fields=["-priority", "id"], name="job_queue"),
                    models.Index(
                        condition=models.Q(("state", "queued")),
                        fields=["tenant", "shape", "-priority", "id"],
                        name="job_queue_of_tenant",
                    ),
                    models.Index(fields=["tenant", "-id"], name="jobs_of_tenant"),
                    models.Index(fields=["-id"], name="jobs_newest_first"),
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
                        on_delete=django.db.models.deletion.PROTECT, related_name="attempts", to="federation.job"
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
                        on_delete=django.db.models.deletion.CASCADE, related_name="events", to="federation.job"
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["job", "id"], name="job_timeline"),
                ],
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
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="remote_objects",
                        to="federation.attempt",
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
                        help_text="Which of the object's places it occupies, from 0 (trigger: below `pods`).",
                        null=True,
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
                ],
                "indexes": [
                    models.Index(fields=["attempt", "position", "index"], name="pods_of_attempts"),
                ],
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
                ],
                "indexes": [
                    models.Index(fields=["until_at"], name="reservations_by_end"),
                ],
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
                    models.UniqueConstraint(fields=("reservation", "node"), name="a_node_is_in_a_reservation_once"),
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
                (
                    "ended_by",
                    models.TextField(blank=True, help_text="Who resumed dispatch, and their note."),
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
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("standstill", "cluster"), name="a_cluster_is_compared_once_in_a_standstill"
                    ),
                ],
            },
        ),
        migrations.RunSQL(
            Path(__file__).with_name("0001_rules.sql").read_text(encoding="utf-8"),
            "DROP TRIGGER cluster_stays_while_attempts_live ON clusters_cluster",
        ),
    ]

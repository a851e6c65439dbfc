"""Plans to move running jobs so that a larger one fits."""

import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
from django.db import migrations, models

import foundation.ids
from foundation.rules import rules


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0001_squashed_0010_nodes_of_images"),
        ("federation", "0001_squashed_0027_kept_room"),
        ("tenancy", "0001_squashed_0002_weight"),
    ]

    operations = [
        migrations.CreateModel(
            name="Consolidation",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                (
                    "size_milli",
                    models.PositiveBigIntegerField(help_text="The size of the job, in thousandths of a GPU."),
                ),
                ("nodes", models.JSONField(help_text="The names of the nodes that are kept for it.")),
                ("amounts", models.JSONField(help_text="What its hold will take; this quota is kept for it.")),
                (
                    "gain_gpu_seconds",
                    models.FloatField(help_text="The work that it does earlier than without the moves."),
                ),
                (
                    "cost_gpu_seconds",
                    models.FloatField(help_text="What the moves cost, with earlier stops and moves of their jobs."),
                ),
                ("lost_gpu_seconds", models.FloatField(help_text="The work that is repeated.")),
                ("share", models.FloatField(help_text="The part of the gain that the moves may cost.")),
                (
                    "otherwise_at",
                    models.DateTimeField(help_text="When it was expected to start without them, if known.", null=True),
                ),
                ("is_exact", models.BooleanField(help_text="Whether no cheaper choice existed on that cluster.")),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("deadline_at", models.DateTimeField(help_text="When the places are given up.")),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "outcome",
                    models.CharField(
                        blank=True,
                        choices=[("placed", "placed"), ("expired", "expired"), ("withdrawn", "withdrawn")],
                        default="",
                        max_length=10,
                    ),
                ),
            ],
        ),
        migrations.RemoveConstraint(
            model_name="move",
            name="a_moves_cause_is_known",
        ),
        migrations.RemoveConstraint(
            model_name="move",
            name="the_gateway_moves_only_what_gains",
        ),
        migrations.AddField(
            model_name="move",
            name="amounts",
            field=models.JSONField(
                db_default={},
                default=dict,
                help_text="Of a move of a plan: what its new hold will take; this quota is kept for it.",
            ),
        ),
        migrations.AddField(
            model_name="move",
            name="nodes",
            field=models.JSONField(
                db_default=[],
                default=list,
                help_text="Of a move of a plan: the names of the nodes that are kept for the job.",
            ),
        ),
        migrations.AddField(
            model_name="move",
            name="size_milli",
            field=models.PositiveBigIntegerField(
                help_text="Of a move of a plan: the size of the job, in thousandths of a GPU.", null=True
            ),
        ),
        migrations.AddField(
            model_name="placementpolicy",
            name="consolidation",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Which running jobs may move so that others fit.",
                max_length=10,
            ),
        ),
        migrations.AlterField(
            model_name="move",
            name="cause",
            field=models.CharField(
                choices=[
                    ("user", "a user's request"),
                    ("drain", "its cluster is drained"),
                    ("maintenance", "a maintenance window that drains begins before it ends"),
                    ("spot", "its node is about to be taken away"),
                    ("consolidation", "a larger job fits then"),
                ],
                max_length=13,
            ),
        ),
        migrations.AddConstraint(
            model_name="placementpolicy",
            constraint=models.CheckConstraint(
                condition=models.Q(("consolidation__in", ["", "never", "willing", "resumable", "any"])),
                name="policy_consolidation_is_known",
            ),
        ),
        migrations.AddField(
            model_name="consolidation",
            name="beneficiary",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="consolidations", to="federation.job"
            ),
        ),
        migrations.AddField(
            model_name="consolidation",
            name="cluster",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="clusters.cluster"
            ),
        ),
        migrations.AddField(
            model_name="move",
            name="consolidation",
            field=models.ForeignKey(
                help_text="The plan that it is part of.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="moves",
                to="federation.consolidation",
            ),
        ),
        migrations.AddConstraint(
            model_name="move",
            constraint=models.CheckConstraint(
                condition=models.Q(("cause__in", ["user", "drain", "maintenance", "spot", "consolidation"])),
                name="a_moves_cause_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="move",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("cause", "user"), ("stay_seconds__isnull", True)),
                    models.Q(("cause", "consolidation"), ("clusters", []), ("stay_seconds__isnull", True)),
                    models.Q(
                        models.Q(("cause__in", ["user", "consolidation"]), _negated=True),
                        ("clusters", []),
                        ("stay_seconds__gt", models.F("cost_seconds")),
                        ("stay_seconds__isnull", False),
                    ),
                    _connector="OR",
                ),
                name="the_gateway_moves_only_what_gains",
            ),
        ),
        migrations.AddConstraint(
            model_name="move",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("cause", "consolidation"),
                        ("consolidation__isnull", False),
                        ("size_milli__isnull", False),
                        ("nodes__contains", []),
                    ),
                    models.Q(
                        models.Q(("cause", "consolidation"), _negated=True),
                        ("amounts", {}),
                        ("consolidation__isnull", True),
                        ("nodes", []),
                        ("size_milli__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="a_move_of_a_plan_has_its_place",
            ),
        ),
        migrations.AddIndex(
            model_name="consolidation",
            index=models.Index(fields=["deadline_at"], name="consolidations_by_deadline"),
        ),
        migrations.AddConstraint(
            model_name="consolidation",
            constraint=models.UniqueConstraint(
                condition=models.Q(("ended_at__isnull", True)),
                fields=("beneficiary",),
                name="one_live_consolidation_per_job",
            ),
        ),
        migrations.AddConstraint(
            model_name="consolidation",
            constraint=models.UniqueConstraint(
                condition=models.Q(("ended_at__isnull", True)),
                fields=("cluster",),
                name="one_live_consolidation_per_cluster",
            ),
        ),
        migrations.AddConstraint(
            model_name="consolidation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("ended_at__isnull", True), ("outcome", "")),
                    models.Q(("ended_at__isnull", False), ("outcome__in", ["placed", "expired", "withdrawn"])),
                    _connector="OR",
                ),
                name="a_consolidation_ends_with_an_outcome",
            ),
        ),
        migrations.AddConstraint(
            model_name="consolidation",
            constraint=models.CheckConstraint(
                condition=models.Q(("deadline_at__gt", models.F("created_at"))),
                name="a_consolidation_has_a_deadline_ahead",
            ),
        ),
        migrations.AddConstraint(
            model_name="consolidation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("cost_gpu_seconds__gte", models.F("lost_gpu_seconds")), ("lost_gpu_seconds__gte", 0)
                ),
                name="a_consolidation_costs_what_is_repeated_or_more",
            ),
        ),
        migrations.AddConstraint(
            model_name="consolidation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "cost_gpu_seconds__lte",
                        django.db.models.expressions.CombinedExpression(
                            models.F("share"), "*", models.F("gain_gpu_seconds")
                        ),
                    )
                ),
                name="a_consolidation_costs_a_share_of_its_gain",
            ),
        ),
        migrations.AddConstraint(
            model_name="consolidation",
            constraint=models.CheckConstraint(
                condition=models.Q(("nodes__contains", []), ("size_milli__gt", 0)),
                name="a_consolidation_lists_its_nodes",
            ),
        ),
        rules("federation/moves.sql", "FUNCTION federation_check_move"),
        rules("federation/consolidation.sql"),
    ]

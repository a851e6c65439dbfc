"""A smaller place is kept for an elastic job that is stopped for a more urgent one, and a larger one for one that grows."""

from django.db import migrations, models
from django.db.models import Q

from foundation.rules import rules


class Migration(migrations.Migration):
    dependencies = [
        ("federation", "0031_elastic"),
    ]

    operations = [
        migrations.AddField(
            model_name="preemptionvictim",
            name="nodes",
            field=models.JSONField(
                db_default=[],
                default=list,
                help_text="Of an elastic job: the names of the nodes that are kept for it, to go on with fewer pods. Empty: none.",
            ),
        ),
        migrations.AddField(
            model_name="preemptionvictim",
            name="amounts",
            field=models.JSONField(
                db_default={}, default=dict, help_text="What its new hold will take there; this quota is kept for it."
            ),
        ),
        migrations.AddConstraint(
            model_name="preemptionvictim",
            constraint=models.CheckConstraint(
                condition=Q(nodes=[], amounts={}) | Q(nodes__contains=[], amounts__contains={}) & ~Q(nodes=[]),
                name="what_is_kept_for_a_victim_has_nodes",
            ),
        ),
        migrations.AddIndex(
            model_name="preemptionvictim",
            index=models.Index(fields=["preemption"], condition=~Q(nodes=[]), name="places_kept_for_victims"),
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
                    ("growth", "it continues with more pods"),
                ],
                max_length=13,
            ),
        ),
        migrations.AlterField(
            model_name="move",
            name="nodes",
            field=models.JSONField(
                db_default=[],
                default=list,
                help_text="Of a move of a plan, or of a job that grows: the names of the nodes that are kept for the job.",
            ),
        ),
        migrations.AlterField(
            model_name="move",
            name="amounts",
            field=models.JSONField(
                db_default={},
                default=dict,
                help_text="Likewise what its new hold will take; this quota is kept for it.",
            ),
        ),
        migrations.AlterField(
            model_name="move",
            name="stay_seconds",
            field=models.PositiveIntegerField(
                help_text="What staying would cost, or growth saves; null for a user's request.", null=True
            ),
        ),
        migrations.RemoveConstraint(model_name="move", name="a_moves_cause_is_known"),
        migrations.AddConstraint(
            model_name="move",
            constraint=models.CheckConstraint(
                condition=Q(cause__in=["user", "drain", "maintenance", "spot", "consolidation", "growth"]),
                name="a_moves_cause_is_known",
            ),
        ),
        migrations.RemoveConstraint(model_name="move", name="a_move_of_a_plan_has_its_place"),
        migrations.AddConstraint(
            model_name="move",
            constraint=models.CheckConstraint(
                condition=Q(cause="consolidation", consolidation__isnull=False, size_milli__isnull=False)
                & Q(nodes__contains=[])
                | Q(cause="growth", consolidation__isnull=True, size_milli__isnull=True)
                & Q(nodes__contains=[], amounts__contains={})
                & ~Q(nodes=[])
                | ~Q(cause__in=["consolidation", "growth"])
                & Q(consolidation__isnull=True, size_milli__isnull=True, nodes=[], amounts={}),
                name="a_move_of_a_plan_has_its_place",
            ),
        ),
        migrations.AddIndex(
            model_name="move",
            index=models.Index(fields=["created_at"], condition=Q(cause="growth"), name="growing_moves"),
        ),
        rules("federation/moves.sql", "FUNCTION federation_check_move"),
        rules("federation/lost_work.sql", "FUNCTION federation_lost_work"),
    ]

"""The gateway moves jobs to cheaper places, and to places where they meet their deadline."""

from django.db import migrations, models
from django.db.models import F, Q

from foundation.rules import rules


class Migration(migrations.Migration):
    dependencies = [
        ("federation", "0034_sessions"),
    ]

    operations = [
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
                    ("price", "it costs less there"),
                    ("deadline", "it finishes in time there"),
                ],
                max_length=13,
            ),
        ),
        migrations.AddField(
            model_name="move",
            name="price_from",
            field=models.DecimalField(
                decimal_places=6,
                help_text="Of a move for a lower price: an hour of all its pods where it ran, then.",
                max_digits=18,
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="move",
            name="price_to",
            field=models.DecimalField(
                decimal_places=6, help_text="Likewise at the new place.", max_digits=18, null=True
            ),
        ),
        migrations.AddField(
            model_name="move",
            name="currency",
            field=models.CharField(db_default="", default="", max_length=3),
        ),
        migrations.AddField(
            model_name="move",
            name="saving",
            field=models.DecimalField(
                decimal_places=6,
                help_text="What the work that is certainly left costs less there.",
                max_digits=18,
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="move",
            name="price_of_move",
            field=models.DecimalField(decimal_places=6, help_text="What the move costs.", max_digits=18, null=True),
        ),
        migrations.AddField(
            model_name="move",
            name="finish_by",
            field=models.DateTimeField(help_text="Of a move for a deadline: that deadline.", null=True),
        ),
        migrations.AddField(
            model_name="move",
            name="late_at",
            field=models.DateTimeField(help_text="Likewise: when it could have ended where it ran.", null=True),
        ),
        migrations.RemoveConstraint(model_name="move", name="a_moves_cause_is_known"),
        migrations.AddConstraint(
            model_name="move",
            constraint=models.CheckConstraint(
                condition=Q(
                    cause__in=["user", "drain", "maintenance", "spot", "consolidation", "growth", "price", "deadline"]
                ),
                name="a_moves_cause_is_known",
            ),
        ),
        migrations.RemoveConstraint(model_name="move", name="the_gateway_moves_only_what_gains"),
        migrations.AddConstraint(
            model_name="move",
            constraint=models.CheckConstraint(
                condition=Q(cause="user", stay_seconds__isnull=True)
                | Q(cause__in=["consolidation", "price", "deadline"], stay_seconds__isnull=True, clusters=[])
                | (
                    ~Q(cause__in=["user", "consolidation", "price", "deadline"])
                    & Q(stay_seconds__isnull=False, stay_seconds__gt=F("cost_seconds"), clusters=[])
                ),
                name="the_gateway_moves_only_what_gains",
            ),
        ),
        migrations.AddConstraint(
            model_name="move",
            constraint=models.CheckConstraint(
                condition=Q(cause="price", currency__regex=r"^[A-Z]{3}$", saving__gt=F("price_of_move"))
                & Q(price_of_move__gte=0, price_from__gt=0, price_to__gte=0)
                & Q(saving__isnull=False, price_of_move__isnull=False, price_from__isnull=False, price_to__isnull=False)
                | ~Q(cause="price") & Q(saving=None, price_of_move=None, price_from=None, price_to=None, currency=""),
                name="a_move_for_a_price_saves_more_than_it_costs",
            ),
        ),
        migrations.AddConstraint(
            model_name="move",
            constraint=models.CheckConstraint(
                condition=Q(cause="deadline", late_at__gt=F("finish_by"))
                & Q(finish_by__isnull=False, late_at__isnull=False)
                | ~Q(cause="deadline") & Q(finish_by=None, late_at=None),
                name="a_move_for_a_deadline_would_be_late_else",
            ),
        ),
        migrations.AddIndex(
            model_name="move",
            index=models.Index(fields=["created_at"], condition=Q(cause="price"), name="saving_moves"),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                fields=["id"],
                condition=Q(finished_at=None)
                & (Q(spec__moves="when_cheaper") | Q(spec__has_key="finish_within_seconds")),
                name="jobs_that_may_move_to_save",
            ),
        ),
        rules("federation/moves.sql", "FUNCTION federation_check_move"),
        rules("federation/lost_work.sql", "FUNCTION federation_lost_work"),
    ]

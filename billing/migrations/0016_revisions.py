"""A report of an earlier end than was assumed replaces the tail of a meter; `sql/revisions.sql` does it."""

import django.contrib.postgres.fields.ranges
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

from foundation.rules import rules


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0015_commitments_in_linear_time"),
        ("clusters", "0013_networks"),
        ("tenancy", "0001_squashed_0002_weight"),
    ]

    operations = [
        migrations.CreateModel(
            name="MeterRevision",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("number", models.PositiveSmallIntegerField(help_text="From 1, of its meter.")),
                ("counted_until", models.DateTimeField(help_text="What was assumed.")),
                ("until", models.DateTimeField(help_text="What was reported; whole milliseconds.")),
                ("is_estimated", models.BooleanField(help_text="Its start or this end is still an estimate.")),
                ("recorded_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name="ReplacedSegment",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("segment_id", models.BigIntegerField(help_text="The id that it had.", unique=True)),
                ("period", django.contrib.postgres.fields.ranges.DateTimeRangeField()),
                ("gpu_milliseconds", models.PositiveBigIntegerField()),
                ("cpu_millicore_milliseconds", models.PositiveBigIntegerField()),
                ("cost", models.DecimalField(decimal_places=12, max_digits=30)),
                ("currency", models.CharField(blank=True, max_length=3)),
                ("is_estimated", models.BooleanField()),
                ("recorded_at", models.DateTimeField(help_text="When it had been recorded.")),
            ],
        ),
        migrations.RemoveConstraint(
            model_name="budgetmovement",
            name="takes_add_and_ends_return",
        ),
        migrations.RemoveConstraint(
            model_name="budgetmovement",
            name="only_metered_time_is_spent",
        ),
        migrations.AddField(
            model_name="meter",
            name="certain_until",
            field=models.DateTimeField(
                help_text="No report shortens the run below this time: it was seen until then, or its end is known. Null: from before this was kept.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="meter",
            name="revisions",
            field=models.PositiveSmallIntegerField(
                db_default=0, default=0, help_text="How often a report shortened it (trigger)."
            ),
        ),
        migrations.AlterField(
            model_name="budgetmovement",
            name="kind",
            field=models.CharField(
                choices=[
                    ("open", "Open"),
                    ("take", "Take"),
                    ("adjust", "Adjust"),
                    ("post", "Post"),
                    ("void", "Void"),
                    ("correct", "Correct"),
                    ("revise", "Revise"),
                ],
                max_length=7,
            ),
        ),
        migrations.AddConstraint(
            model_name="budgetmovement",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("held__gte", 0), ("kind__in", ["open", "take"])),
                    ("kind", "adjust"),
                    models.Q(("held", 0), ("kind__in", ["correct", "revise"])),
                    models.Q(("held__lte", 0), ("kind__in", ["post", "void"])),
                    _connector="OR",
                ),
                name="takes_add_and_ends_return",
            ),
        ),
        migrations.AddConstraint(
            model_name="budgetmovement",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("spent", 0),
                    models.Q(("kind__in", ["open", "adjust", "post"]), ("spent__gt", 0)),
                    ("kind", "correct"),
                    models.Q(("kind", "revise"), ("spent__lt", 0)),
                    _connector="OR",
                ),
                name="only_metered_time_is_spent",
            ),
        ),
        migrations.AddConstraint(
            model_name="meter",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("certain_until__isnull", True),
                    models.Q(
                        ("certain_until__gte", models.F("metered_from")),
                        ("certain_until__lte", models.F("metered_until")),
                    ),
                    _connector="OR",
                ),
                name="a_meter_is_certain_of_its_own_time",
            ),
        ),
        migrations.AddField(
            model_name="meterrevision",
            name="meter",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.meter"
            ),
        ),
        migrations.AddField(
            model_name="replacedsegment",
            name="meter",
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.meter"),
        ),
        migrations.AddField(
            model_name="replacedsegment",
            name="price",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="billing.price",
            ),
        ),
        migrations.AddField(
            model_name="replacedsegment",
            name="revision",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="replaced", to="billing.meterrevision"
            ),
        ),
        migrations.AddIndex(
            model_name="meterrevision",
            index=models.Index(fields=["recorded_at"], name="revisions_by_time"),
        ),
        migrations.AddIndex(
            model_name="replacedsegment",
            index=models.Index(
                models.Func(models.F("period"), function="lower", output_field=models.DateTimeField()),
                name="replaced_by_start",
            ),
        ),
        migrations.AddConstraint(
            model_name="meterrevision",
            constraint=models.UniqueConstraint(fields=("meter", "number"), name="one_revision_of_a_number"),
        ),
        migrations.AddConstraint(
            model_name="meterrevision",
            constraint=models.CheckConstraint(
                condition=models.Q(("number__gte", 1)), name="revisions_are_numbered_from_one"
            ),
        ),
        migrations.AddConstraint(
            model_name="meterrevision",
            constraint=models.CheckConstraint(
                condition=models.Q(("until__lt", models.F("counted_until"))), name="a_revision_shortens"
            ),
        ),
        rules(
            "billing/meters.sql",
            "FUNCTION billing_guard_meter",
            "FUNCTION billing_meter_is_covered",
            "TRIGGER billing_keep_segments",
        ),
        rules("billing/budgets.sql", "FUNCTION billing_spend"),
        rules("billing/revisions.sql"),
    ]

"""How long the last runs of each kind took, so that nobody has to walk through old attempts to know."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("federation", "0004_domain_selectors"),
        ("tenancy", "0002_triggers"),
    ]
    operations = [
        migrations.CreateModel(
            name="RunGroup",
            fields=[
                (
                    "key",
                    models.CharField(
                        help_text="What the runs share, as a digest.", max_length=32, primary_key=True, serialize=False
                    ),
                ),
                (
                    "level",
                    models.CharField(choices=[("job", "job"), ("name", "name"), ("pods", "pods")], max_length=4),
                ),
                (
                    "recent_seconds",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.IntegerField(), help_text="The last runs, the newest first.", size=None
                    ),
                ),
                ("runs", models.PositiveBigIntegerField(help_text="How many there have been in all.")),
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
                        condition=models.Q(level__in=["job", "name", "pods"]), name="run_group_level_is_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(recent_seconds__len__gte=1, recent_seconds__len__lte=50),
                        name="run_group_remembers_a_bounded_number_of_runs",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(runs__gte=models.F("recent_seconds__len")),
                        name="run_group_counts_what_it_remembers",
                    ),
                ]
            },
        ),
        migrations.RunSQL(
            "ALTER TABLE federation_rungroup ADD CONSTRAINT run_group_seconds_are_not_negative"
            " CHECK (0 <= ALL (recent_seconds) AND array_position(recent_seconds, NULL) IS NULL)",
            "ALTER TABLE federation_rungroup DROP CONSTRAINT run_group_seconds_are_not_negative",
        ),
    ]

"""Reservations have quota, lend what is unused, and are released if none of their jobs comes (`0024_reserved_quota.sql`)."""

from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import F, Q

HERE = Path(__file__)
SQL = HERE.with_name("0024_reserved_quota.sql").read_text(encoding="utf-8")
_, _, REST = HERE.with_name("0001_rules.sql").read_text(encoding="utf-8").partition(
    "CREATE OR REPLACE FUNCTION federation_guard_reservation"
)
BEFORE, _, _ = REST.partition("CREATE TRIGGER")
UNDO = f"""
CREATE OR REPLACE FUNCTION federation_guard_reservation{BEFORE}
ALTER TABLE federation_reservation DROP CONSTRAINT reservation_times_follow_its_quota;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("federation", "0023_lost_work"),
        ("quotas", "0007_reserved"),
    ]

    operations = [
        migrations.AddField(
            model_name="reservation",
            name="quota",
            field=models.OneToOneField(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="quotas.reservedquota",
            ),
        ),
        migrations.AddField(
            model_name="reservation",
            name="recall_seconds",
            field=models.PositiveIntegerField(
                help_text="Other jobs that end within this time may use what is unused. Null: none may.", null=True
            ),
        ),
        migrations.AddField(
            model_name="reservation",
            name="no_show_seconds",
            field=models.PositiveIntegerField(
                help_text="It is released if none of its jobs has come this long after the start. Null: never.", null=True
            ),
        ),
        migrations.AddField(
            model_name="reservation",
            name="released_at",
            field=models.DateTimeField(help_text="When it ended because none of its jobs had come.", null=True),
        ),
        migrations.AddConstraint(
            model_name="reservation",
            constraint=models.CheckConstraint(
                condition=Q(
                    ("recall_seconds__isnull", True),
                    Q(("recall_seconds__gte", 180), ("recall_seconds__lte", 86400)),
                    _connector="OR",
                ),
                name="reservation_recall_is_in_range",
            ),
        ),
        migrations.AddConstraint(
            model_name="reservation",
            constraint=models.CheckConstraint(
                condition=Q(
                    ("released_at__isnull", True),
                    Q(
                        ("cancelled_at__isnull", True),
                        ("no_show_seconds__isnull", False),
                        ("released_at", F("until_at")),
                        ("released_at__gte", F("starts_at")),
                    ),
                    _connector="OR",
                ),
                name="a_released_reservation_ends_then",
            ),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]

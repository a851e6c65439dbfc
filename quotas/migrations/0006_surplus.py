"""What is held beyond a limit is taken back after a delay (`0006_surplus.sql`)."""

from pathlib import Path

from django.db import migrations, models
from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Coalesce

HERE = Path(__file__)
SQL = HERE.with_name("0006_surplus.sql").read_text(encoding="utf-8")
_, _, REST = HERE.with_name("0002_borrowing.sql").read_text(encoding="utf-8").partition(
    "CREATE OR REPLACE FUNCTION quotas_guard_limit"
)
BEFORE, _, _ = REST.partition("-- Waits for takers")
UNDO = f"CREATE OR REPLACE FUNCTION quotas_guard_limit{BEFORE}\nDROP FUNCTION quotas_held_without;"


class Migration(migrations.Migration):
    dependencies = [
        ("quotas", "0005_reclaim"),
    ]

    operations = [
        migrations.AddField(
            model_name="quotalimit",
            name="reclaim_after",
            field=models.PositiveIntegerField(
                help_text="Seconds after which what is held beyond the limit is taken back. Null: never.", null=True
            ),
        ),
        migrations.AddField(
            model_name="quotalimit",
            name="reclaim_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="quotalimit",
            name="lowered_by",
            field=models.CharField(db_default="", default="", editable=False, max_length=254),
        ),
        migrations.AddConstraint(
            model_name="quotalimit",
            constraint=models.CheckConstraint(
                condition=Q(("reclaim_after__isnull", True), ("reclaim_after__lte", 2592000), _connector="OR"),
                name="quota_reclaim_delay_is_in_range",
            ),
        ),
        migrations.AddConstraint(
            model_name="quotalimit",
            constraint=models.CheckConstraint(
                condition=Q(
                    ("reclaim_at__isnull", True),
                    Q(
                        (
                            "held__gt",
                            F("nominal")
                            + Case(
                                When(parent__isnull=True, then=Value(0)),
                                default=Coalesce(F("borrowing_limit"), Value(10**15)),
                                output_field=models.BigIntegerField(),
                            ),
                        ),
                        ("reclaim_after__isnull", False),
                        ("removed_at__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="quota_is_taken_back_only_beyond_a_limit",
            ),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]

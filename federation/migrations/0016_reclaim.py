"""What victims borrowed, and the quota that is kept for their beneficiaries (`0016_reclaim.sql`)."""

from pathlib import Path

from django.db import migrations, models

SQL = Path(__file__).with_name("0016_reclaim.sql").read_text(encoding="utf-8")
BEFORE = Path(__file__).with_name("0013_preemption.sql").read_text(encoding="utf-8").partition("CREATE TRIGGER")[0]
UNDO = f"{BEFORE}\nDROP FUNCTION federation_is_borrowed;"


class Migration(migrations.Migration):
    dependencies = [
        ("federation", "0015_submission_limits"),
        ("quotas", "0005_reclaim"),
    ]

    operations = [
        migrations.AddField(
            model_name="preemption",
            name="amounts",
            field=models.JSONField(
                db_default={},
                default=dict,
                help_text="What the beneficiary's hold will take; this quota is kept for it.",
            ),
        ),
        migrations.AddField(
            model_name="preemptionvictim",
            name="loan",
            field=models.JSONField(
                help_text="The limit by which it borrowed, and by how much; null if the beneficiary is more urgent.",
                null=True,
            ),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]

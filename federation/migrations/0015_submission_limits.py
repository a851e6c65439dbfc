"""Limits on submission, and whose work pending holds are (`0015_submission_limits.sql`)."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).with_name("0015_submission_limits.sql").read_text(encoding="utf-8")
UNDO = """
DROP TRIGGER federation_keep_submission_limits ON federation_job;
DROP FUNCTION federation_keep_submission_limits;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("federation", "0014_init_steps"),
        ("quotas", "0004_people"),
    ]

    operations = [migrations.RunSQL(SQL, UNDO)]

"""Ends of jobs and attempts are dated now by every writer (`0020_ends_are_dated_now.sql`)."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).with_name("0020_ends_are_dated_now.sql").read_text(encoding="utf-8")
UNDO = """
DROP TRIGGER jobs_end_now ON federation_job;
DROP TRIGGER attempts_end_now ON federation_attempt;
DROP FUNCTION federation_ends_now;
"""


class Migration(migrations.Migration):
    dependencies = [("federation", "0019_surplus")]

    operations = [migrations.RunSQL(SQL, UNDO)]

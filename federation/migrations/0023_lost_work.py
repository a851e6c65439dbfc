"""What infrastructure lost of attempts; `0023_lost_work.sql` says it, and judges what billing records of it."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).with_name("0023_lost_work.sql").read_text(encoding="utf-8")
UNDO = """
DROP TRIGGER federation_judge_lost_work ON billing_lostwork;
DROP FUNCTION federation_judge_lost_work;
DROP FUNCTION federation_lost_work;
"""


class Migration(migrations.Migration):
    dependencies = [("federation", "0022_database_history"), ("billing", "0010_credits"), ("clusters", "0009_history")]

    operations = [migrations.RunSQL(SQL, UNDO)]

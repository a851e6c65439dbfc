"""Which maintenance windows an attempt meets (`0008_maintenance.sql`)."""

from pathlib import Path

from django.db import migrations

UNDO = "DROP FUNCTION federation_windows_met(uuid, timestamptz, double precision);"


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0007_maintenance"),
        ("federation", "0007_reports"),
    ]

    operations = [
        migrations.RunSQL(Path(__file__).with_name("0008_maintenance.sql").read_text(encoding="utf-8"), UNDO),
    ]

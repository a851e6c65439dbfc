"""A closed meter says from when on its usage was of work that was lost and done again."""

from django.db import migrations, models
from django.db.models import F, Q

WHOLE_MILLISECONDS = """
ALTER TABLE billing_meter ADD CONSTRAINT meter_redoes_from_a_whole_millisecond CHECK (
    date_trunc('milliseconds', redone_from AT TIME ZONE 'UTC') = redone_from AT TIME ZONE 'UTC');
"""
UNDO = "ALTER TABLE billing_meter DROP CONSTRAINT meter_redoes_from_a_whole_millisecond;"


class Migration(migrations.Migration):
    dependencies = [("billing", "0008_tenant_as_it_was")]

    operations = [
        migrations.AddField(
            "meter",
            "redone_from",
            models.DateTimeField(
                help_text="From here to its end, the usage was of work that was lost and done again; null: none was.",
                null=True,
            ),
        ),
        migrations.AddConstraint(
            "meter",
            models.CheckConstraint(
                condition=Q(redone_from__isnull=True)
                | Q(is_closed=True, redone_from__gte=F("metered_from"), redone_from__lt=F("metered_until")),
                name="redone_work_is_of_a_closed_meters_time",
            ),
        ),
        migrations.RunSQL(WHOLE_MILLISECONDS, UNDO),
    ]

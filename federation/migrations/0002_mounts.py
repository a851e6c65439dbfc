"""What an object's pods mount; `0002_mounts.sql` keeps it as it was when the attempt was placed."""

from pathlib import Path

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("federation", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="remoteobject",
            name="mounts",
            field=models.JSONField(
                blank=True,
                db_default=[],
                default=list,
                help_text="The parts of volumes that its pods mount (`engine.objects.mounts`), as they were when it was placed.",
            ),
        ),
        migrations.RunSQL(
            Path(__file__).with_name("0002_mounts.sql").read_text(encoding="utf-8"),
            "DROP TRIGGER mounts_are_kept ON federation_remoteobject; DROP FUNCTION federation_keep_mounts()",
        ),
    ]

"""Which secrets an object's pods use; `0003_secrets.sql` keeps it as it was when the attempt was placed."""

from pathlib import Path

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("federation", "0002_mounts"),
    ]

    operations = [
        migrations.AddField(
            model_name="remoteobject",
            name="secrets",
            field=models.JSONField(
                blank=True,
                db_default={},
                default=dict,
                help_text="Names of its Secrets and versions of secrets (`engine.objects.job_secrets`), never values.",
            ),
        ),
        migrations.RunSQL(
            Path(__file__).with_name("0003_secrets.sql").read_text(encoding="utf-8"),
            "DROP TRIGGER secrets_are_kept ON federation_remoteobject; DROP FUNCTION federation_keep_secrets()",
        ),
    ]

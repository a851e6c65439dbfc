"""What an object's pods use besides CPU, memory and GPUs; `0005_resources.sql` keeps it as it was when the attempt was placed."""

from pathlib import Path

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("federation", "0004_failures"),
    ]

    operations = [
        migrations.AddField(
            model_name="remoteobject",
            name="resources",
            field=models.JSONField(
                blank=True,
                db_default={},
                default=dict,
                help_text="Other resources per pod, by name.",
            ),
        ),
        migrations.AddIndex(
            model_name="remoteobject",
            index=models.Index(
                condition=models.Q(("resources", {}), _negated=True),
                fields=["attempt"],
                name="objects_with_other_resources",
            ),
        ),
        migrations.RunSQL(
            Path(__file__).with_name("0005_resources.sql").read_text(encoding="utf-8"),
            "DROP TRIGGER resources_are_kept ON federation_remoteobject; DROP FUNCTION federation_keep_resources()",
        ),
    ]

"""What nodes offer besides CPU, memory and GPUs, and what is known of their GPUs."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0005_credential_expiry"),
    ]

    operations = [
        migrations.AddField(
            model_name="node",
            name="resources",
            field=models.JSONField(
                blank=True,
                db_default={},
                default=dict,
                help_text="Other resources, by name.",
            ),
        ),
        migrations.AddField(
            model_name="node",
            name="gpu_facts",
            field=models.JSONField(
                blank=True, db_default={}, default=dict, help_text="What is known of GPUs, by flavor."
            ),
        ),
    ]

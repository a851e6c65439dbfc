"""Moves for a larger job are withdrawn while their runs still go on; objects keep the network attachments of their pods."""

from django.db import migrations, models

from foundation.rules import rules


class Migration(migrations.Migration):
    dependencies = [
        ("federation", "0029_staging"),
    ]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="deletion_at",
            field=models.DateTimeField(
                help_text="Of a run that moves so that a larger job fits: when its deletion was decided. Until then it can go on.",
                null=True,
            ),
        ),
        rules("federation/withdrawn_moves.sql"),
        migrations.AddField(
            model_name="remoteobject",
            name="networks",
            field=models.JSONField(
                blank=True,
                db_default=[],
                default=list,
                help_text="The network attachments of its pods (`engine.objects.networks`), likewise.",
            ),
        ),
        rules("federation/networks.sql"),
    ]

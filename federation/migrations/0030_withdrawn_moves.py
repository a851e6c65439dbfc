"""Moves for a larger job are withdrawn while their runs still go on."""

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
    ]

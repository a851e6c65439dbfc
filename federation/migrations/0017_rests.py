"""Clusters that answer no call of a visit rest."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("federation", "0016_reclaim"),
    ]

    operations = [
        migrations.AddField(
            model_name="clusterupkeep",
            name="rests_until",
            field=models.DateTimeField(
                help_text="Dispatch leaves it alone until this time, because it answered no call of the last visit.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="clusterupkeep",
            name="silent_visits",
            field=models.PositiveSmallIntegerField(
                db_default=0, default=0, help_text="The number of visits in a row in which it answered no call."
            ),
        ),
    ]

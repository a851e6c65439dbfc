"""What a cluster's clock was measured to be off by, since when: so that its instants can be told on ours."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("clusters", "0007_datasets")]

    operations = [
        migrations.AddField(
            model_name="cluster",
            name="clock_eras",
            field=models.JSONField(
                blank=True,
                db_default=[],
                default=list,
                help_text="By how much its clock was ahead of the database's, since when (`engine.clocks`).",
            ),
        ),
    ]

"""A meter that was closed stays closed: a pod that runs on after that gets another, whose name is a little longer."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0005_egress_prices")]

    operations = [
        migrations.AlterField(
            model_name="meter",
            name="source_uid",
            field=models.CharField(
                help_text="The pod's uid; with `~1` and so on where a pod runs on whose meter was closed.", max_length=72
            ),
        ),
    ]

from django.db import migrations, models


class Migration(migrations.Migration):
    """A cluster may answer while nobody follows it any more: how old what we know of it is."""

    dependencies = [("clusters", "0004_kueue")]

    operations = [
        migrations.AddField(
            model_name="cluster",
            name="observed_at",
            field=models.DateTimeField(null=True, help_text="When the watches of nodes and pods last both showed life."),
        ),
    ]

from django.db import migrations, models


class Migration(migrations.Migration):
    """What a flavor is beyond a count of devices: parts of an accelerator of several nodes, or out of jobs' reach."""

    dependencies = [("clusters", "0002_pinned")]

    operations = [
        migrations.AddField(
            model_name="flavor",
            name="slice_hosts",
            field=models.PositiveIntegerField(default=1, help_text="So many nodes make up one accelerator."),
        ),
        migrations.AddField(
            model_name="flavor",
            name="unplaceable",
            field=models.CharField(blank=True, help_text="Why no job can be started on it.", max_length=300),
        ),
        migrations.AddConstraint(
            model_name="flavor",
            constraint=models.CheckConstraint(
                condition=models.Q(("slice_hosts__gte", 1)), name="a_slice_has_a_host"
            ),
        ),
    ]

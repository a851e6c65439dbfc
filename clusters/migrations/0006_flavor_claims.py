from django.db import migrations, models


class Migration(migrations.Migration):
    """Flavors whose devices are claimed (Kubernetes' dynamic resource allocation) instead of counted by a name."""

    dependencies = [("clusters", "0005_observed_at")]

    operations = [
        migrations.AddField(
            model_name="flavor",
            name="device_class",
            field=models.CharField(
                blank=True, help_text="Set where its devices are claimed: their DeviceClass.", max_length=63
            ),
        ),
        migrations.AddField(
            model_name="flavor",
            name="cel",
            field=models.CharField(
                blank=True, help_text="Tells its devices from others of their DeviceClass.", max_length=1000
            ),
        ),
        migrations.AlterField(
            model_name="flavor",
            name="resource_name",
            field=models.CharField(
                blank=True,
                help_text="What its devices are counted by: an extended resource, e.g. nvidia.com/mig-1g.10gb, or a name of ours.",
                max_length=120,
            ),
        ),
        migrations.AddConstraint(
            model_name="flavor",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("device_class", ""),
                    models.Q(("cel", ""), _negated=True),
                    models.Q(("unplaceable", ""), _negated=True),
                    _connector="OR",
                ),
                name="what_is_claimed_can_be_told_apart",
            ),
        ),
    ]

from django.db import migrations, models
from django.db.models import F, Q


class Migration(migrations.Migration):
    dependencies = [("federation", "0021_standstill")]

    operations = [
        migrations.AddField(
            model_name="remoteobject",
            name="began_at",
            field=models.DateTimeField(help_text="When its ended Job was unsuspended, on our clock.", null=True),
        ),
        migrations.AddField(
            model_name="remoteobject",
            name="over_at",
            field=models.DateTimeField(help_text="When its Job ended, on our clock.", null=True),
        ),
        migrations.AddField(
            model_name="remoteobject",
            name="pods_over",
            field=models.PositiveIntegerField(
                help_text="How many pods of its ended Job have ended, as the cluster counted them.", null=True
            ),
        ),
        migrations.AddField(
            model_name="podrun",
            name="last_seen_at",
            field=models.DateTimeField(
                help_text="When it was last seen before a list lacked it; null: it did not vanish unseen.", null=True
            ),
        ),
        migrations.AddConstraint(
            model_name="remoteobject",
            constraint=models.CheckConstraint(
                condition=Q(pods_over__isnull=True) | Q(over_at__gte=F("began_at")), name="a_job_ends_after_it_began"
            ),
        ),
    ]

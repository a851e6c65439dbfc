"""A job is in no state that nothing writes (`suspended` never was), and the database says when an event happened."""

from django.db import migrations, models
from django.db.models.functions import Now

STATES = ["queued", "dispatching", "running", "cancelling", "succeeded", "failed", "cancelled"]


class Migration(migrations.Migration):
    dependencies = [("federation", "0014_pods_by_cluster_and_place")]
    operations = [
        migrations.RemoveConstraint("job", "job_state_is_known"),
        migrations.AlterField(
            "job", "state", models.CharField(choices=[(s, s) for s in STATES], default="queued", max_length=12)
        ),
        migrations.AlterField("jobevent", "at", models.DateTimeField(db_default=Now())),
        migrations.AddConstraint(
            "job", models.CheckConstraint(condition=models.Q(state__in=STATES), name="job_state_is_known")
        ),
    ]

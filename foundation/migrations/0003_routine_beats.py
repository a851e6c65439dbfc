"""Workers that take turns at a routine show that they are there."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("foundation", "0002_lease_tokens")]
    operations = [migrations.AddField("routine", "beat_at", models.DateTimeField(null=True))]

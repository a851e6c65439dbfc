"""Who took a pod from its node, and how much work that cost."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("federation", "0019_book_proofs")]

    operations = [
        migrations.AddField(
            model_name="podrun",
            name="disruption",
            field=models.CharField(
                blank=True,
                db_default="",
                help_text="Who took it from its node; empty = nobody.",
                max_length=60,
            ),
        ),
        migrations.AddField(
            model_name="attempt",
            name="lost_seconds",
            field=models.PositiveIntegerField(
                help_text="What the next attempt does again, once settled.", null=True
            ),
        ),
    ]

"""What the nightly proof of the books found, and how far it went."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("federation", "0018_settled_on_evidence")]

    operations = [
        migrations.CreateModel(
            name="BookProof",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "began_at",
                    models.DateTimeField(help_text="By the database's clock: what was written before is proven."),
                ),
                ("finished_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("is_full", models.BooleanField()),
                (
                    "meter",
                    models.BigIntegerField(help_text="The last there was when it began; likewise the others."),
                ),
                ("segment", models.BigIntegerField()),
                ("movement", models.BigIntegerField()),
                ("found", models.PositiveIntegerField(help_text="How much is wrong.")),
                ("told", models.JSONField(default=list, help_text="The first of it, in sentences.")),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("finished_at__gte", models.F("began_at"))), name="proof_ends_after_it_began"
                    )
                ],
            },
        ),
    ]

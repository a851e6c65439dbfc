"""When pods were first seen, when clusters were asked for the rest of attempts that run in part, and what those lost."""

import django.db.models.functions.datetime
from django.db import migrations, models

from foundation.rules import rules


class Migration(migrations.Migration):
    dependencies = [("federation", "0036_policies_name_greenest")]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="in_part_asked_at",
            field=models.DateTimeField(
                help_text="When its cluster was last asked whether more than a part of it can run.", null=True
            ),
        ),
        migrations.AddField(
            model_name="podrun",
            name="first_seen_at",
            field=models.DateTimeField(
                db_default=django.db.models.functions.datetime.Now(), help_text="When the gateway first recorded it."
            ),
        ),
        migrations.AddIndex(
            model_name="podrun",
            index=models.Index(
                condition=models.Q(("finished_at", None), ("is_gone", False), ("node", ""), ("started_at", None)),
                fields=["attempt"],
                name="pods_without_a_node",
            ),
        ),
        rules("federation/lost_work.sql"),
    ]

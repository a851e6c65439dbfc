"""Copies of datasets from object stores, with an access key."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0014_object_stores"),
        ("federation", "0032_resized_jobs"),
    ]

    operations = [
        migrations.AddField(
            model_name="stagein",
            name="store",
            field=models.JSONField(
                blank=True,
                db_default={},
                default=dict,
                help_text="The promised source of that Job in an object store; empty: it mounts its source.",
            ),
        ),
        migrations.AddField(
            model_name="stagein",
            name="secrets",
            field=models.JSONField(
                blank=True, db_default={}, default=dict, help_text="The promised version of its access key."
            ),
        ),
        migrations.AddConstraint(
            model_name="stagein",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("secrets", {}), ("store", {})),
                    models.Q(
                        models.Q(("store", {}), _negated=True),
                        models.Q(("secrets", {}), _negated=True),
                    ),
                    _connector="OR",
                ),
                name="stage_in_from_a_store_has_a_key",
            ),
        ),
    ]

"""Object stores among the storages of clusters, and secrets with their access keys."""

from django.db import migrations, models

KINDS = ["claim", "object_store"]
CLAIM = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z"
LABEL = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z"
ENDPOINT = r"^https://[a-z0-9.:\[\]-]+\Z"
BUCKET = r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z"
REGISTRY = r"^[a-zA-Z0-9]([a-zA-Z0-9.-]{0,251}[a-zA-Z0-9])?(:[0-9]{1,5})?\Z"


class Migration(migrations.Migration):
    dependencies = [("clusters", "0013_networks")]

    operations = [
        migrations.RemoveConstraint(model_name="storage", name="storage_kind_is_known"),
        migrations.RemoveConstraint(model_name="storage", name="storage_names_a_claim"),
        migrations.AlterField(
            model_name="storage",
            name="kind",
            field=models.CharField(choices=[(kind, kind) for kind in KINDS], default="claim", max_length=20),
        ),
        migrations.AlterField(
            model_name="storage", name="claim", field=models.CharField(blank=True, max_length=253)
        ),
        migrations.AddField(
            model_name="storage",
            name="endpoint",
            field=models.CharField(blank=True, db_default="", default="", max_length=300),
        ),
        migrations.AddField(
            model_name="storage",
            name="region",
            field=models.CharField(blank=True, db_default="", default="", max_length=63),
        ),
        migrations.AddField(
            model_name="storage",
            name="bucket",
            field=models.CharField(blank=True, db_default="", default="", max_length=63),
        ),
        migrations.AddField(
            model_name="storage",
            name="secret",
            field=models.CharField(
                blank=True, db_default="", default="", help_text="Name of the secret with its access key.", max_length=63
            ),
        ),
        migrations.AddConstraint(
            model_name="storage",
            constraint=models.CheckConstraint(condition=models.Q(("kind__in", KINDS)), name="storage_kind_is_known"),
        ),
        migrations.AddConstraint(
            model_name="storage",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(models.Q(("kind", "object_store"), _negated=True), ("claim__regex", CLAIM)),
                    models.Q(("claim", ""), ("kind", "object_store")),
                    _connector="OR",
                ),
                name="storage_names_a_claim",
            ),
        ),
        migrations.AddConstraint(
            model_name="storage",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        models.Q(("kind", "object_store"), _negated=True),
                        ("bucket", ""),
                        ("endpoint", ""),
                        ("region", ""),
                        ("secret", ""),
                    ),
                    models.Q(
                        models.Q(("bucket__regex", r"\.\."), _negated=True),
                        ("bucket__regex", BUCKET),
                        ("endpoint__regex", ENDPOINT),
                        ("kind", "object_store"),
                        ("mode", "read_only"),
                        ("region__regex", LABEL),
                        ("secret__regex", LABEL),
                    ),
                    _connector="OR",
                ),
                name="storage_has_a_bucket_exactly_if_it_is_an_object_store",
            ),
        ),
        migrations.RemoveConstraint(
            model_name="tenantsecret", name="secret_names_a_registry_exactly_if_it_is_for_one"
        ),
        migrations.AlterField(
            model_name="tenantsecret",
            name="kind",
            field=models.CharField(
                choices=[("value", "value"), ("registry", "registry"), ("access_key", "access_key")], max_length=10
            ),
        ),
        migrations.AddConstraint(
            model_name="tenantsecret",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("kind__in", ["value", "access_key"]), ("registry", "")),
                    models.Q(("kind", "registry"), ("registry__regex", REGISTRY)),
                    _connector="OR",
                ),
                name="secret_names_a_registry_exactly_if_it_is_for_one",
            ),
        ),
    ]

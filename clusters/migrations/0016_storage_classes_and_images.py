"""StorageClasses and images among the storages of clusters. The claims and object stores that exist satisfy the new constraints."""

from django.db import migrations, models

KINDS = ["claim", "object_store", "storage_class", "image"]
CLAIM = CLASS = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z"
IMAGE = (
    r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?(:[0-9]{1,5})?"
    r"(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)+(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?@sha256:[0-9a-f]{64}\Z"
)
LEAST_BYTES, MOST_BYTES = 2**20, 64 * 2**40


class Migration(migrations.Migration):
    dependencies = [("clusters", "0015_prometheus")]

    operations = [
        migrations.RemoveConstraint(model_name="storage", name="storage_kind_is_known"),
        migrations.RemoveConstraint(model_name="storage", name="storage_names_a_claim"),
        migrations.AlterField(
            model_name="storage",
            name="kind",
            field=models.CharField(choices=[(kind, kind) for kind in KINDS], default="claim", max_length=20),
        ),
        migrations.AddField(
            model_name="storage",
            name="storage_class",
            field=models.CharField(blank=True, db_default="", default="", max_length=253),
        ),
        migrations.AddField(
            model_name="storage",
            name="most_bytes",
            field=models.BigIntegerField(db_default=0, default=0, help_text="The largest volume of a pod."),
        ),
        migrations.AddField(
            model_name="storage",
            name="image",
            field=models.CharField(blank=True, db_default="", default="", max_length=512),
        ),
        migrations.AddConstraint(
            model_name="storage",
            constraint=models.CheckConstraint(condition=models.Q(("kind__in", KINDS)), name="storage_kind_is_known"),
        ),
        migrations.AddConstraint(
            model_name="storage",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("claim__regex", CLAIM), ("kind", "claim")),
                    models.Q(models.Q(("kind", "claim"), _negated=True), ("claim", "")),
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
                        models.Q(("kind", "storage_class"), _negated=True), ("most_bytes", 0), ("storage_class", "")
                    ),
                    models.Q(
                        ("kind", "storage_class"),
                        ("mode", "read_write"),
                        ("most_bytes__range", (LEAST_BYTES, MOST_BYTES)),
                        ("prefix", ""),
                        ("storage_class__regex", CLASS),
                    ),
                    _connector="OR",
                ),
                name="storage_has_a_class_and_a_size_exactly_if_it_is_one",
            ),
        ),
        migrations.AddConstraint(
            model_name="storage",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(models.Q(("kind", "image"), _negated=True), ("image", "")),
                    models.Q(("image__regex", IMAGE), ("kind", "image"), ("mode", "read_only"), ("prefix", "")),
                    _connector="OR",
                ),
                name="storage_has_an_image_exactly_if_it_is_one",
            ),
        ),
    ]

"""Network attachments that jobs may name."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

import foundation.ids

LABEL = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z"


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0012_offers_once"),
        ("tenancy", "0001_squashed_0002_weight"),
    ]

    operations = [
        migrations.CreateModel(
            name="Network",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("name", models.CharField(max_length=63)),
                (
                    "kind",
                    models.CharField(
                        choices=[("multus", "multus")], db_default="multus", default="multus", max_length=10
                    ),
                ),
                ("definition", models.CharField(max_length=63)),
                ("namespace", models.CharField(blank=True, db_default="", default="", max_length=63)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("changed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="networks", to="clusters.cluster"
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="networks", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "name"), name="network_name_is_unique_on_its_cluster"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("name__regex", LABEL)), name="network_name_is_a_dns_label"
                    ),
                    models.CheckConstraint(condition=models.Q(("kind", "multus")), name="network_kind_is_known"),
                    models.CheckConstraint(
                        condition=models.Q(("definition__regex", LABEL)), name="network_definition_is_a_dns_label"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("namespace", ""), ("namespace__regex", LABEL), _connector="OR"),
                        name="network_namespace_is_a_dns_label",
                    ),
                ],
            },
        ),
    ]

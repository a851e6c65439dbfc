"""Leases, the outbox and idempotency.

`0001_tables.sql` has what Django cannot say of the tables, `foundation/sql/` their rules.
"""

from pathlib import Path

import django.db.models.functions.datetime
from django.db import migrations, models

from foundation.rules import rules

TABLES = Path(__file__).with_name("0001_tables.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Lease",
            fields=[
                ("name", models.CharField(max_length=200, primary_key=True, serialize=False)),
                ("holder", models.CharField(max_length=200)),
                ("token", models.BigIntegerField()),
                ("expires_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="Routine",
            fields=[
                ("name", models.CharField(max_length=60, primary_key=True, serialize=False)),
                ("rung_at", models.DateTimeField(null=True)),
                ("sent_at", models.DateTimeField(null=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("beat_at", models.DateTimeField(null=True)),
                ("seconds", models.FloatField(db_default=0.0, default=0.0)),
                ("error", models.CharField(blank=True, db_default="", default="", max_length=500)),
            ],
        ),
        migrations.CreateModel(
            name="OutboxMessage",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("topic", models.CharField(max_length=60)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "indexes": [models.Index(fields=["topic", "id"], name="outbox_by_topic")],
            },
        ),
        migrations.RunSQL(TABLES, migrations.RunSQL.noop),
        rules("foundation/leases.sql"),
    ]

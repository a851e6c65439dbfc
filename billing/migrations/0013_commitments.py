"""Commitments and how their hours are split; `sql/commitments.sql` has what their tables refuse."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
from django.db import migrations, models

import foundation.ids
from foundation.rules import rules


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0001_squashed_0012_currencies"),
        ("clusters", "0001_squashed_0010_nodes_of_images"),
        ("tenancy", "0001_squashed_0002_weight"),
    ]

    operations = [
        migrations.CreateModel(
            name="Commitment",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("name", models.CharField(max_length=63)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name="CommitmentDay",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("day", models.DateField()),
                ("revision", models.PositiveIntegerField()),
                (
                    "quantity",
                    models.DecimalField(
                        decimal_places=0, help_text="In thousandths of a unit times milliseconds.", max_digits=38
                    ),
                ),
                ("used_quantity", models.DecimalField(decimal_places=0, max_digits=38)),
                ("amortised", models.DecimalField(decimal_places=12, max_digits=38)),
                ("used", models.DecimalField(decimal_places=12, max_digits=38)),
                ("unused", models.DecimalField(decimal_places=12, max_digits=38)),
                ("split_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name="CommitmentDueDay",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("day", models.DateField()),
                (
                    "marks",
                    models.PositiveIntegerField(
                        db_default=1, default=1, help_text="A mark locks the row until it is committed."
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="CommitmentHour",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("hour", models.DateTimeField(help_text="Its beginning, UTC.")),
                ("quantity", models.DecimalField(decimal_places=0, max_digits=38)),
                ("used_quantity", models.DecimalField(decimal_places=0, max_digits=38)),
                ("amortised", models.DecimalField(decimal_places=12, max_digits=38)),
                ("used", models.DecimalField(decimal_places=12, max_digits=38)),
                ("unused", models.DecimalField(decimal_places=12, max_digits=38)),
            ],
        ),
        migrations.CreateModel(
            name="CommitmentVersion",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("number", models.PositiveIntegerField()),
                (
                    "kind",
                    models.CharField(
                        choices=[("reserved_instance", "Reserved Instance"), ("own_purchase", "Own Purchase")],
                        max_length=17,
                    ),
                ),
                ("clusters", django.contrib.postgres.fields.ArrayField(base_field=models.UUIDField(), size=None)),
                ("flavor", models.CharField(max_length=120)),
                ("capacity_type", models.CharField(max_length=20)),
                (
                    "units",
                    models.PositiveIntegerField(help_text="GPUs, slices, shares, or cores of a CPU-only flavor."),
                ),
                ("start", models.DateTimeField(help_text="A whole hour, UTC.")),
                ("until", models.DateTimeField(help_text="A whole hour, UTC; the first that is not covered.")),
                ("upfront", models.DecimalField(decimal_places=6, help_text="Paid at the start.", max_digits=18)),
                (
                    "recurring",
                    models.DecimalField(
                        decimal_places=6, help_text="Paid at the start and each month after it.", max_digits=18
                    ),
                ),
                ("total", models.DecimalField(decimal_places=6, max_digits=24)),
                ("currency", models.CharField(max_length=3)),
                (
                    "is_withdrawn",
                    models.BooleanField(db_default=False, default=False, help_text="It never applied, after all."),
                ),
                ("made_by_id", models.UUIDField(null=True)),
                ("made_by_name", models.CharField(max_length=254)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.RemoveConstraint(
            model_name="ledgeraccount",
            name="account_is_of_what_its_kind_says",
        ),
        migrations.RemoveConstraint(
            model_name="ledgerentry",
            name="entry_says_what_it_is_for",
        ),
        migrations.AlterField(
            model_name="ledgeraccount",
            name="kind",
            field=models.CharField(
                choices=[
                    ("tenant_expense", "Tenant Expense"),
                    ("cluster_pool", "Cluster Pool"),
                    ("rounding", "Rounding"),
                    ("adjustments", "Adjustments"),
                    ("idle", "Idle"),
                    ("overhead", "Overhead"),
                    ("platform", "Platform"),
                    ("infrastructure", "Infrastructure"),
                    ("tenant_converted", "Tenant Converted"),
                    ("exchange", "Exchange"),
                    ("commitment", "Commitment"),
                    ("commitment_unused", "Commitment Unused"),
                    ("commitment_covered", "Commitment Covered"),
                    ("purchases", "Purchases"),
                ],
                max_length=20,
            ),
        ),
        migrations.AlterField(
            model_name="ledgerentry",
            name="kind",
            field=models.CharField(
                choices=[
                    ("usage", "Usage"),
                    ("reversal", "Reversal"),
                    ("reentry", "Reentry"),
                    ("adjustment", "Adjustment"),
                    ("idle", "Idle"),
                    ("platform", "Platform"),
                    ("credit", "Credit"),
                    ("conversion", "Conversion"),
                    ("commitment", "Commitment"),
                    ("purchase", "Purchase"),
                ],
                max_length=10,
            ),
        ),
        migrations.AddConstraint(
            model_name="ledgeraccount",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("cluster__isnull", True),
                        ("kind__in", ["tenant_expense", "tenant_converted"]),
                        ("tenant__isnull", False),
                    ),
                    models.Q(("cluster__isnull", False), ("kind", "cluster_pool"), ("tenant__isnull", True)),
                    models.Q(
                        ("cluster__isnull", True),
                        (
                            "kind__in",
                            [
                                "rounding",
                                "adjustments",
                                "idle",
                                "overhead",
                                "platform",
                                "infrastructure",
                                "exchange",
                                "commitment",
                                "commitment_unused",
                                "commitment_covered",
                                "purchases",
                            ],
                        ),
                        ("tenant__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="account_is_of_what_its_kind_says",
            ),
        ),
        migrations.AddConstraint(
            model_name="ledgerentry",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("cluster__isnull", True),
                        ("kind", "adjustment"),
                        ("tenant__isnull", True),
                        models.Q(("reason", ""), _negated=True),
                    ),
                    models.Q(
                        ("cluster__isnull", False),
                        ("kind", "idle"),
                        ("tenant__isnull", True),
                        models.Q(("reason", ""), _negated=True),
                    ),
                    models.Q(
                        ("cluster__isnull", True),
                        ("kind", "platform"),
                        ("tenant__isnull", True),
                        models.Q(("reason", ""), _negated=True),
                    ),
                    models.Q(
                        ("cluster__isnull", False),
                        ("kind", "credit"),
                        ("tenant__isnull", False),
                        models.Q(("reason", ""), _negated=True),
                    ),
                    models.Q(("kind", "commitment"), ("tenant__isnull", True), models.Q(("reason", ""), _negated=True)),
                    models.Q(
                        ("cluster__isnull", True),
                        ("kind", "purchase"),
                        ("tenant__isnull", True),
                        models.Q(("reason", ""), _negated=True),
                    ),
                    ("kind", "reversal"),
                    ("kind", "conversion"),
                    models.Q(("cluster__isnull", False), ("kind__in", ["usage", "reentry"]), ("tenant__isnull", False)),
                    _connector="OR",
                ),
                name="entry_says_what_it_is_for",
            ),
        ),
        migrations.AddField(
            model_name="commitment",
            name="organisation",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="commitments", to="tenancy.tenant"
            ),
        ),
        migrations.AddField(
            model_name="commitmentday",
            name="commitment",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="days", to="billing.commitment"
            ),
        ),
        migrations.AddField(
            model_name="commitmentdueday",
            name="organisation",
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenancy.tenant"),
        ),
        migrations.AddField(
            model_name="commitmenthour",
            name="day",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="hours", to="billing.commitmentday"
            ),
        ),
        migrations.AddField(
            model_name="commitmentversion",
            name="commitment",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="versions", to="billing.commitment"
            ),
        ),
        migrations.AddField(
            model_name="commitmentday",
            name="version",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="days", to="billing.commitmentversion"
            ),
        ),
        migrations.AddConstraint(
            model_name="commitment",
            constraint=models.UniqueConstraint(fields=("organisation", "name"), name="one_commitment_of_a_name"),
        ),
        migrations.AddConstraint(
            model_name="commitment",
            constraint=models.CheckConstraint(
                condition=models.Q(("name__regex", "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")),
                name="commitment_has_a_plain_name",
            ),
        ),
        migrations.AddConstraint(
            model_name="commitmentdueday",
            constraint=models.UniqueConstraint(fields=("organisation", "day"), name="one_due_commitment_day"),
        ),
        migrations.AddConstraint(
            model_name="commitmenthour",
            constraint=models.UniqueConstraint(fields=("day", "hour"), name="one_row_a_commitment_hour"),
        ),
        migrations.AddConstraint(
            model_name="commitmenthour",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "amortised",
                        django.db.models.expressions.CombinedExpression(models.F("used"), "+", models.F("unused")),
                    ),
                    ("unused__gte", 0),
                    ("used__gte", 0),
                    ("used_quantity__gte", 0),
                    ("used_quantity__lte", models.F("quantity")),
                ),
                name="hour_is_used_or_unused",
            ),
        ),
        migrations.AddConstraint(
            model_name="commitmentversion",
            constraint=models.UniqueConstraint(
                fields=("commitment", "number"), name="one_commitment_version_of_a_number"
            ),
        ),
        migrations.AddConstraint(
            model_name="commitmentversion",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["reserved_instance", "own_purchase"])), name="commitment_kind_is_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="commitmentversion",
            constraint=models.CheckConstraint(
                condition=models.Q(("units__gte", 1), ("units__lte", 1000000)), name="commitment_has_units"
            ),
        ),
        migrations.AddConstraint(
            model_name="commitmentversion",
            constraint=models.CheckConstraint(
                condition=models.Q(("until__gt", models.F("start"))), name="commitment_has_a_term"
            ),
        ),
        migrations.AddConstraint(
            model_name="commitmentversion",
            constraint=models.CheckConstraint(
                condition=models.Q(("recurring__gte", 0), ("total__gt", 0), ("upfront__gte", 0)),
                name="commitment_is_paid",
            ),
        ),
        migrations.AddConstraint(
            model_name="commitmentversion",
            constraint=models.CheckConstraint(
                condition=models.Q(("currency__regex", "^[A-Z]{3}$")), name="commitment_currency_is_three_letters"
            ),
        ),
        migrations.AddConstraint(
            model_name="commitmentversion",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("flavor", ""), _negated=True), models.Q(("capacity_type", ""), _negated=True)
                ),
                name="commitment_names_its_flavor",
            ),
        ),
        migrations.AddConstraint(
            model_name="commitmentday",
            constraint=models.UniqueConstraint(
                fields=("commitment", "day", "revision"), name="one_split_of_a_revision"
            ),
        ),
        migrations.AddConstraint(
            model_name="commitmentday",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "amortised",
                        django.db.models.expressions.CombinedExpression(models.F("used"), "+", models.F("unused")),
                    ),
                    ("unused__gte", 0),
                    ("used__gte", 0),
                    ("used_quantity__gte", 0),
                    ("used_quantity__lte", models.F("quantity")),
                ),
                name="day_is_used_or_unused",
            ),
        ),
        rules("billing/commitments.sql"),
    ]

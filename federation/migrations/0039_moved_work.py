"""Tenants with running work move, if the budgets above them stay the same."""

from django.db import migrations

from foundation.rules import rules


class Migration(migrations.Migration):
    dependencies = [
        ("federation", "0038_kept_moves"),
        ("quotas", "0009_holds_move"),
    ]

    operations = [rules("federation/tenant_moves.sql")]

"""Walks through the tree of tenants end, also while a statement puts two tenants below each other."""

from django.db import migrations

from foundation.rules import rules


class Migration(migrations.Migration):

    dependencies = [
        ('quotas', '0012_finite_numbers'),
    ]

    operations = [
        rules("quotas/moves.sql", "FUNCTION quotas_holds_follow_tenant"),
        rules("quotas/limits.sql", "FUNCTION quotas_nearest_limit", "FUNCTION quotas_limits_follow_tenant"),
    ]

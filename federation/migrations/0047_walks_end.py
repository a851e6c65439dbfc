"""The walk below a tenant that moves ends, also while a statement puts two tenants below each other."""

from django.db import migrations

from foundation.rules import rules


class Migration(migrations.Migration):

    dependencies = [
        ('federation', '0044_pod_devices'),
    ]

    operations = [
        rules("federation/tenant_moves.sql", "FUNCTION federation_moved_work_keeps_budgets"),
    ]

"""Prices in several currencies, of organisations that are billed in one."""

from django.db import migrations

from foundation.rules import rules


class Migration(migrations.Migration):
    dependencies = [("billing", "0018_carbon")]

    operations = [rules("billing/price_currencies.sql")]

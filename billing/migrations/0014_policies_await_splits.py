"""A policy on idle capacity waits for those who split the days of commitments."""

from django.db import migrations

from foundation.rules import rules


class Migration(migrations.Migration):
    dependencies = [("billing", "0013_commitments")]

    operations = [rules("billing/commitments.sql", "TRIGGER billing_a_await_raters")]

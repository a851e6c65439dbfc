"""A day of commitments is judged once for each of them, not once for each entry."""

from django.db import migrations

from foundation.rules import rules


class Migration(migrations.Migration):
    dependencies = [("billing", "0014_policies_await_splits")]

    operations = [
        rules(
            "billing/commitments.sql",
            "FUNCTION billing_commitment_entries",
            "FUNCTION billing_commitment_errors",
            "FUNCTION billing_has_later_entry",
            "FUNCTION billing_judge_commitment_entry",
        ),
    ]

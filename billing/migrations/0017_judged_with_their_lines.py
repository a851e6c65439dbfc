"""What a session sets for itself makes no judge see less: neither when constraints are judged, nor how dates are written."""

from django.db import migrations

from foundation.rules import rules


class Migration(migrations.Migration):
    dependencies = [("billing", "0016_revisions")]

    operations = [
        rules("billing/ledger.sql", "FUNCTION billing_await_lines"),
        rules("billing/credits.sql", "FUNCTION billing_judge_credit"),
        rules("billing/shared_idle.sql", "FUNCTION billing_judge_share"),
        rules("billing/currencies.sql", "FUNCTION billing_judge_conversion"),
        rules(
            "billing/commitments.sql",
            "FUNCTION billing_commitment_prefix",
            "FUNCTION billing_commitment_entries",
            "FUNCTION billing_judge_commitment_entry",
        ),
    ]

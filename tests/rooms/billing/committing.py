"""What the tests of commitments share."""

from datetime import date
from decimal import Decimal

from django.db.models import Sum

from billing.models import LedgerLine, LedgerPeriod
from billing.operations import posting
from billing.operations.commitment_days import split_commitments
from billing.operations.commitments import apply_commitments
from tenancy.queries import SYSTEM
from tests.builders import make_tenant

from .ledgers import settle_pending_checks

MONTH = date(2026, 10, 1)
DAYS = 6
HOURS = DAYS * 24
"""Of the usual commitment, for which 1 an hour was paid. To split and post a day takes as long as most tests."""
GIVEN = {
    "name": "one", "kind": "reserved_instance", "clusters": "[north]", "flavor": "h100", "capacity_type": "on_demand", "units": 2,
    "start": "2026-10-01T00:00:00Z", "until": "2026-10-07T00:00:00Z", "upfront": HOURS, "currency": "USD",
}  # fmt: skip


def file_of(*commitments):
    """The text of a file; of each commitment, what differs from the usual one."""
    text = "commitments:\n" if commitments else "commitments: []\n"
    for given in commitments:
        text += "".join(
            f"{' ' if number else '-'} {name}: {value}\n"
            for number, (name, value) in enumerate((GIVEN | given).items())
        )
    return text


def committed(*commitments, path="acme"):
    """Applies a file to an organisation whose ledger begins in October, and splits what has ended."""
    make_tenant(path)
    for month in (MONTH, date(2026, 11, 1)):
        LedgerPeriod.objects.get_or_create(organisation=make_tenant(path), month=month)
    plan = apply_commitments(SYSTEM, path, file_of(*(commitments or ({},))))
    split()
    return plan


def split():
    """Posts all that has ended, splits commitments, and does the checks of commit; how many days were split."""
    posting.post_days()
    done = split_commitments()
    settle_pending_checks()
    return done


def balances(**which):
    """What each account has, by tenant or kind, without those at zero."""
    lines = LedgerLine.objects.filter(**which)
    rows = lines.values_list("account__kind", "account__tenant__path").annotate(sum=Sum("amount")).order_by()
    found = {}
    for kind, path, amount in rows:
        if amount:
            found[path if kind == "tenant_expense" else kind] = Decimal(amount).normalize() + 0
    return found

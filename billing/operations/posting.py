"""Posts the cost of ended days to the ledger: one transaction for each tenant's day, so that a kill loses nothing.

Any number of workers post side by side, any number of times: an entry has a natural key, and the day's sums are locked
while they are counted.
"""

from uuid import UUID

from django.db import transaction

from billing import locks
from billing.engine.credits import credits_due, missing_credits
from billing.engine.ledger import DayKey, Entry, postings
from billing.models import LedgerStep
from billing.queries.charges import day_charge, days_to_post
from foundation.transactions import retried
from foundation.turns import Turn, endless_turn

from .conversion import convert_new
from .entries import write
from .failures import FirstFailure

MOST_DAYS = 200


def post_days(turn: Turn | None = None, *, organisation_id: UUID | None = None) -> int:
    """Posts the days that `days_to_post` names, of one organisation if given; the number of days that it counted. Another
    worker may have a day. A day that fails keeps no other from being posted; its error is raised at the end.
    """
    turn = turn or endless_turn()
    counted, last, failure = 0, None, FirstFailure()
    while keys := days_to_post(MOST_DAYS, last, organisation_id=organisation_id):
        for key in keys:
            if turn.is_over:
                turn.has_more = True
                return counted
            turn.beat()
            with failure.kept(f"the day {key.name} was not posted"):
                counted += post_day(key)
        last = keys[-1]
    failure.raise_it()
    return counted


@retried
def post_day(key: DayKey) -> bool:
    """Counts a tenant's day and posts what is missing. False if another worker counts it now."""
    with transaction.atomic():
        locks.read_price_book()
        if not locks.claim_day(key.name):
            return False
        LedgerStep.objects.create(
            tenant_id=key.tenant_id,
            tenant_path=key.tenant_path,
            cluster_id=key.cluster_id,
            flavor=key.flavor,
            day=key.day,
        )
        charge = day_charge(key)
        for entry in postings(charge.key, charge.segments, charge.books, charge.standing, charge.replaced):
            post(entry)
        due = credits_due(charge.key, charge.segments, charge.books, charge.losses, charge.policies)
        for entry in missing_credits(due, charge.credits, charge.reversed_credits):
            post(entry)
    return True


def post(entry: Entry) -> bool:
    """Posts an entry in the caller's transaction: into the period of its day, or the first open one after it. With it, the
    conversion of what it charges in other currencies than its organisation is billed in.

    False if its key was posted before: with the same content nothing happens, with another the conflict is kept for
    people to resolve, and the first entry remains.
    """
    is_new = write(entry)
    if is_new:
        convert_new(entry)
    return is_new

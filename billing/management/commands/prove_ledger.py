"""`manage.py prove_ledger`: works the books out again and says what is wrong; exit 0 if nothing is."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing.models import UsageSegment
from billing.queries import discrepancies
from quotas.models import HoldMovement

SHOWN = 100


class Command(BaseCommand):
    help = "Proves that meters, segments, prices and quota counters agree."

    def handle(self, *args: Any, **options: Any) -> None:
        found = discrepancies()
        for sentence in found[:SHOWN]:
            self.stderr.write(sentence)
        if found:
            raise CommandError(f"the books are wrong in {len(found)} places")
        self.stdout.write(
            f"the books are right: {UsageSegment.objects.count()} segments, {HoldMovement.objects.count()} movements"
        )

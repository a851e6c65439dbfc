"""`manage.py prove_ledger`: recomputes the ledger in all rooms and prints what is wrong; exit 0 without findings."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from billing.models import UsageSegment
from federation.operations import prove_books
from foundation.commands import GatewayCommand
from quotas.models import HoldMovement


class Command(GatewayCommand):
    help = "Checks that jobs, attempts, pods, meters, segments, prices, holds and quota counters agree."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--since-last",
            action="store_true",
            help="check only what changed since the last proof without errors, like the nightly run",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        proof = prove_books(full=not options["since_last"])
        for sentence in proof.told:
            self.stderr.write(sentence)
        if proof.found:
            raise CommandError(f"the ledger has {proof.found} errors")
        self.stdout.write(
            f"the ledger is correct: {UsageSegment.objects.count()} segments, {HoldMovement.objects.count()} movements"
        )

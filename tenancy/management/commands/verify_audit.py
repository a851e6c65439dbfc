"""`manage.py verify_audit`: proves that no entry of the audit trail was edited, deleted, cut or put out of order."""

import itertools
import re
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tenancy.engine.chain import Anchor, faults_in
from tenancy.queries import audit_head, audit_links, unchained_entries

MOST_FAULTS = 50


class Command(BaseCommand):
    help = (
        "Recomputes the audit trail's hash chain. Prints its head as POSITION:HASH and exits 0, or says what is wrong "
        "and exits 1. Keep the head somewhere else: given back with --anchor it proves that the tail was not cut."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--anchor", metavar="POSITION:HASH", help="a head printed earlier")

    def handle(self, *args: Any, **options: Any) -> None:
        anchor = _anchor(options["anchor"])
        faults = list(itertools.islice(faults_in(audit_links(), anchor), MOST_FAULTS))
        faults += [
            f"entry {entry_id}: no link vouches for it; its link was deleted" for entry_id in unchained_entries()
        ]
        if faults:
            raise CommandError("the audit trail is not whole\n" + "\n".join(faults), returncode=1)
        head = audit_head()
        self.stdout.write(f"whole, head {head[0]}:{head[1].hex()}" if head else "whole, no entries yet")


def _anchor(text: str | None) -> Anchor | None:
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,18}):([0-9a-f]{64})", text)
    if not match:
        raise CommandError("--anchor takes POSITION:HASH as an earlier run printed it", returncode=2)
    return Anchor(int(match[1]), bytes.fromhex(match[2]))

"""`manage.py verify_audit`: proves that no entry of the audit trail was edited, deleted, cut off or reordered."""

import itertools
import re
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from foundation.commands import GatewayCommand
from foundation.problems import Conflict
from tenancy.engine.chain import Anchor, faults_in
from tenancy.operations import accept_audit
from tenancy.operations.anchoring import anchors_in
from tenancy.queries import SYSTEM, audit_head, audit_links, unchained_entries

MOST_FAULTS = 50


class Command(GatewayCommand):
    help = (
        "Recomputes the audit trail's hash chain and compares it with the anchor file. Prints its head as POSITION:HASH and "
        "exits 0, or reports what is wrong and exits 1."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--anchor", metavar="POSITION:HASH", help="a head printed earlier, or from a log or metric")
        parser.add_argument("--anchors", metavar="FILE", help="an anchor file (default: SWITCHYARD_AUDIT_ANCHORS)")
        parser.add_argument(
            "--accept", metavar="REASON", help="accept the present chain and continue anchoring from it; audited"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["accept"]:
            self._accept(options["accept"])
            return
        anchors, faults = _anchors(options["anchor"], options["anchors"])
        faults += itertools.islice(faults_in(audit_links(), anchors), MOST_FAULTS)
        faults += [f"entry {entry_id}: it has no link; its link was deleted" for entry_id in unchained_entries()]
        if faults:
            raise CommandError("the audit trail is not intact\n" + "\n".join(faults[:MOST_FAULTS]), returncode=1)
        head = audit_head()
        compared = f", {len(anchors)} anchors match" if anchors else ""
        self.stdout.write(f"intact, head {head[0]}:{head[1].hex()}{compared}" if head else "intact, no entries yet")

    def _accept(self, reason: str) -> None:
        try:
            accept_audit(SYSTEM, reason)
        except Conflict as error:
            raise CommandError(error.detail, returncode=2) from None
        self.stdout.write("accepted; anchoring continues from the present chain")


def _anchors(given: str | None, file: str | None) -> tuple[list[Anchor], list[str]]:
    """All anchors by position, from the command line and from the file, and the file's errors."""
    path = file or settings.AUDIT_ANCHORS
    anchors, faults = anchors_in(Path(path)) if path else ([], [])
    if file and not Path(file).is_file():
        raise CommandError(f"--anchors: there is no file {file}", returncode=2)
    if given is not None:
        match = re.fullmatch(r"([0-9]{1,18}):([0-9a-f]{64})", given)
        if not match:
            raise CommandError("--anchor must be POSITION:HASH, as printed by an earlier run", returncode=2)
        anchors.append(Anchor(int(match[1]), bytes.fromhex(match[2])))
    return sorted(anchors, key=lambda anchor: anchor.position), faults

"""Verifies the audit chain and records its head where the database's owner cannot change it.

Every run reads the new links, and some old ones again, so that in time it reads all. Then it writes the head to a log
line, keeps it for /metrics, and adds it to the anchor file if one is configured. An error stops the anchoring, so that
no anchor ever covers a chain that was tampered with. It continues after an operator accepts the error with a reason,
which is audited.
"""

import json
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from django.conf import settings
from django.db import transaction

from foundation import advisory
from foundation.clock import now
from foundation.lines import add_line, last_lines, lines_of
from foundation.plain_json import instant
from foundation.problems import Conflict
from tenancy.engine.chain import BEGINNING, Anchor, LinkSeen, faults_in, judge_anchor
from tenancy.models import AuditWatch
from tenancy.queries import Actor, audit_head, audit_link_at, audit_links, audit_watch, unchained_entries

from .audit import record_audit

log = logging.getLogger(__name__)
NEW_LINKS = 50_000
OLD_LINKS = 5_000
MOST_FAULTS = 20
ROUTINE = "anchor"


@dataclass(slots=True)
class _Reader:
    """Passes links to their verifier and remembers the last."""

    links: Iterable[LinkSeen]
    at: Anchor

    def __iter__(self) -> Iterator[LinkSeen]:
        for link in self.links:
            self.at = Anchor(link.position, link.hash)
            yield link


def anchor_audit() -> None:
    """Verifies the newest links and a range of old ones, then anchors the head. Reports errors; never raises them."""
    watch = audit_watch()
    reached = Anchor(watch.position, bytes(watch.hash))
    faults = [*_judged(reached, "the last check"), *_faults_of_file(watch)]
    if not faults:
        newest = _Reader(audit_links(after=reached.position, most=NEW_LINKS), reached)
        faults += islice(faults_in(newest, after=reached), MOST_FAULTS)
        if newest.at.position - reached.position < NEW_LINKS:  # caught up: an entry without a link now never gets one
            faults += [f"entry {entry}: it has no link" for entry in unchained_entries(behind=reached.position)]
        reached = newest.at if not faults else reached
    swept, old_faults = _look_again(watch.swept_position)
    faults += old_faults
    if reached.position and not faults:
        log.info(
            "audit trail anchored: installation=%s position=%d hash=%s",
            settings.INSTALL_ID, reached.position, reached.hash.hex(),
        )  # fmt: skip
        watch.filed_position, unwritten = _filed(watch.filed_position, reached)
        faults += unwritten
    for fault in faults[:MOST_FAULTS]:
        log.error("the audit trail failed its check: %s", fault)
    watch.position, watch.hash, watch.swept_position = reached.position, reached.hash, swept
    watch.checked_at, watch.fault = now(), "\n".join(faults[:MOST_FAULTS])
    watch.save()


def accept_audit(actor: Actor, reason: str) -> None:
    """Accepts the current chain as intact from now on, for example after a restore. Audited, with the errors found and
    the reason.
    """
    with advisory.held(advisory.Kind.ROUTINE, ROUTINE) as is_ours:
        if not is_ours:
            raise Conflict("The audit trail is being checked right now. Try again.")
        watch = audit_watch()
        with transaction.atomic():
            found = {"reason": reason, "fault": watch.fault[:2000], "position": watch.position}
            record_audit(actor, "audit.accept", object_kind="audit", detail=found)
        position, digest = audit_head() or (0, BEGINNING.hash)
        anew = {"position": position, "hash": digest, "filed_position": 0, "swept_position": 0}
        AuditWatch.objects.update_or_create(id=watch.id, defaults={**anew, "checked_at": now(), "fault": ""})


def anchors_in(path: Path) -> tuple[list[Anchor], list[str]]:
    """The anchors in a file, by position, and the errors of the file itself."""
    anchors: list[Anchor] = []
    faults: list[str] = []
    for number, line in lines_of(path):
        anchor = _read(line)
        if anchor is None:
            faults.append(f"line {number} of {path}: not an anchor")
        elif anchors and anchor.position <= anchors[-1].position:
            faults.append(
                f"line {number} of {path}: position {anchor.position} after {anchors[-1].position}; out of order"
            )
        else:
            anchors.append(anchor)
    return anchors, faults


def _look_again(after: int) -> tuple[int, list[str]]:
    """Where the next verification of old links continues, and what this one found. Starts again at the chain's end."""
    start = audit_link_at(after) or BEGINNING
    old = _Reader(audit_links(after=start.position, most=OLD_LINKS), start)
    faults = list(islice(faults_in(old, after=start), MOST_FAULTS))
    head = audit_head()
    if faults:
        return after, faults
    return (0 if head is None or old.at.position >= head[0] else old.at.position), []


def _judged(anchor: Anchor, source: str) -> list[str]:
    seen, head = audit_link_at(anchor.position), audit_head()
    return list(judge_anchor(anchor, seen.hash if seen else None, head[0] if head else 0, source))


def _faults_of_file(watch: AuditWatch) -> list[str]:
    """The error between the newest line of the anchor file and the chain. It reads only the end: `verify_audit` reads
    it all.
    """
    if not settings.AUDIT_ANCHORS:
        return []
    try:
        last = _last_in(Path(settings.AUDIT_ANCHORS))
    except OSError as error:
        return [f"the anchor file cannot be read: {error.strerror}"]
    if last is None:
        gone = f"the anchor file is gone or empty; it contained positions up to {watch.filed_position}"
        return [gone] if watch.filed_position else []
    if last.position < watch.filed_position:
        return [
            f"the anchor file ends at position {last.position}; positions up to {watch.filed_position} were written to it"
        ]
    return _judged(last, "the anchor file")


def _filed(filed: int, head: Anchor) -> tuple[int, list[str]]:
    """The newest position in the anchor file, after adding the head if it is newer; and why it could not be added."""
    if not settings.AUDIT_ANCHORS:
        return 0, []
    path = Path(settings.AUDIT_ANCHORS)
    try:
        last = _last_in(path)
        if last is None or last.position < head.position:
            line = {"at": instant(now()), "installation": settings.INSTALL_ID}
            add_line(path, json.dumps({**line, "position": head.position, "hash": head.hash.hex()}))
    except OSError as error:
        return filed, [f"the anchor file cannot be written: {error.strerror}"]
    return head.position, []


def _last_in(path: Path) -> Anchor | None:
    return next(filter(None, map(_read, last_lines(path))), None)


def _read(line: str) -> Anchor | None:
    try:
        known = json.loads(line)
        position, digest = known["position"], known["hash"]
    except (ValueError, TypeError, KeyError):
        return None
    if type(position) is not int or position < 1 or not re.fullmatch(r"[0-9a-f]{64}", str(digest)):
        return None
    return Anchor(position, bytes.fromhex(digest))

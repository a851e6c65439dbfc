"""The nightly proof of the books: everything is worked out again, and what does not agree is told to people."""

import logging
from datetime import timedelta

import billing.queries
from billing.queries import Place
from federation.models import BookProof
from federation.queries.proof import disagreements
from foundation.clock import database_now

log = logging.getLogger(__name__)
OVERLAP = timedelta(hours=1)
OVERLAP_ROWS = 100_000
"""Instants and numbers are given before a row is committed: so much of what was proven is proven again."""
MOST_TOLD = 100
MOST_KEPT = 100


def prove_books(*, full: bool = False) -> BookProof:
    """The proof, written down: of what changed since the last that found nothing, or of everything that ever was."""
    clean = None if full else BookProof.objects.filter(found=0).order_by("-id").first()
    began_at, place = database_now(), billing.queries.newest_place()
    if clean is None:
        found = (*billing.queries.discrepancies(), *disagreements())
    else:
        found = (*billing.queries.discrepancies(_from(clean)), *disagreements(clean.began_at - OVERLAP))
    for sentence in found[:MOST_TOLD]:
        log.error("the ledger has an error: %s. manage.py prove_ledger lists all errors.", sentence)
    proof = BookProof.objects.create(
        began_at=began_at,
        is_full=clean is None,
        meter=place.meter,
        segment=place.segment,
        movement=place.movement,
        found=len(found),
        told=[sentence[:500] for sentence in found[:MOST_TOLD]],
    )
    _forget_old()
    return proof


def _from(proof: BookProof) -> Place:
    """From there on, a little earlier. Never zero, which means everything."""
    return Place(*(max(1, last - OVERLAP_ROWS) for last in (proof.meter, proof.segment, proof.movement)))


def _forget_old() -> None:
    """The last that found nothing is kept, however long ago: the next begins there."""
    newest_first = BookProof.objects.order_by("-id").values_list("id", flat=True)
    kept = {*newest_first[:MOST_KEPT], *newest_first.filter(found=0)[:1]}
    BookProof.objects.exclude(id__in=kept).delete()

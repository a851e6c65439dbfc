"""The nightly proof of the ledger: everything is recomputed, and findings are reported to operators."""

import logging
from datetime import timedelta

import billing.queries
from billing.operations.node_hours import judge_node_hours
from billing.queries import Place
from federation.models import BookProof
from federation.queries.proof import disagreements
from foundation.clock import database_now

log = logging.getLogger(__name__)
OVERLAP = timedelta(hours=1)
OVERLAP_ROWS = 100_000
"""The overlap of two proofs: rows get their times and numbers before they are committed."""
MOST_TOLD = 100
MOST_KEPT = 100


def prove_books(*, full: bool = False) -> BookProof:
    """The stored proof: of the changes since the last proof without findings, or, with `full`, of everything."""
    clean = None if full else BookProof.objects.filter(found=0).order_by("-id").first()
    began_at, place = database_now(), billing.queries.newest_place()
    if clean is None:
        found = (*billing.queries.discrepancies(), *judge_node_hours(), *disagreements())
    else:
        since = _from(clean)
        found = (
            *billing.queries.discrepancies(since), *judge_node_hours(since), *disagreements(clean.began_at - OVERLAP)
        )  # fmt: skip
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
    """The start of the next proof, a little earlier than the end of this one. Never zero, which means everything."""
    return Place(*(max(1, last - OVERLAP_ROWS) for last in (proof.meter, proof.segment, proof.movement)))


def _forget_old() -> None:
    """Deletes old proofs. The last proof without findings is kept, whatever its age: the next one starts there."""
    newest_first = BookProof.objects.order_by("-id").values_list("id", flat=True)
    kept = {*newest_first[:MOST_KEPT], *newest_first.filter(found=0)[:1]}
    BookProof.objects.exclude(id__in=kept).delete()

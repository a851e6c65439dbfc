"""The state of the ledger, for operators."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from federation.models import Attempt, BookProof

SHOWN = 5


@dataclass(frozen=True, slots=True)
class Books:
    """The number of findings of the last proof, its first findings, and the number of attempts whose usage cannot be
    recorded.
    """

    proven_at: datetime | None
    found: int
    told: Sequence[str]
    in_trouble: int


def books() -> Books:
    """The last proof, and the attempts that settlement has set aside."""
    proof = BookProof.objects.order_by("-id").first()
    in_trouble = Attempt.objects.exclude(settle_error="").count()
    if proof is None:
        return Books(None, 0, (), in_trouble)
    return Books(proof.began_at, proof.found, tuple(proof.told[:SHOWN]), in_trouble)

"""How the books stand, for those who look after the installation."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from federation.models import Attempt, BookProof

SHOWN = 5


@dataclass(frozen=True, slots=True)
class Books:
    """What the last proof found, its first sentences, and how many attempts' usage cannot be recorded."""

    proven_at: datetime | None
    found: int
    told: Sequence[str]
    in_trouble: int


def books() -> Books:
    """The last proof, and what settlement has set aside."""
    proof = BookProof.objects.order_by("-id").first()
    in_trouble = Attempt.objects.exclude(settle_error="").count()
    if proof is None:
        return Books(None, 0, (), in_trouble)
    return Books(proof.began_at, proof.found, tuple(proof.told[:SHOWN]), in_trouble)

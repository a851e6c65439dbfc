"""What a run is expected to cost, as pages show it: in all, and what makes it up."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from federation.models import Attempt
from placement.answers.estimates import Estimate, estimate_in
from placement.fleet.egress import egress_text
from placement.ranking.runtimes import rough_text
from placement.values.datasets import Move

PART_WORDS = {"run": "running", "interruptions": "lost to interruptions", "egress": "egress"}


@dataclass(frozen=True, slots=True)
class EstimateLine:
    """`parts` are those that arise, in words, None where unknown; `missing` names the unknown ones. While the run's own cost is
    unknown nothing but egress is told beside it. `moves` tells what data is brought from where.
    """

    total: Decimal | None
    parts: tuple[tuple[str, Decimal | None], ...]
    missing: str
    moves: str
    run_time: str


def estimate_line(estimate: Estimate, moves: Sequence[Move], currency: str) -> EstimateLine:
    """The estimate for people."""
    names = PART_WORDS if estimate.run is not None else ("egress",)
    each = {PART_WORDS[name]: getattr(estimate, name) for name in names}
    return EstimateLine(
        total=estimate.total,
        parts=tuple((words, amount) for words, amount in each.items() if amount is None or amount),
        missing="" if estimate.run is None else " and ".join(words for words, amount in each.items() if amount is None),
        moves=egress_text(moves, currency),
        run_time="its run time is unknown"
        if estimate.seconds is None
        else f"runs about {rough_text(estimate.seconds)}",
    )


def estimate_of_attempt(attempt: Attempt) -> EstimateLine | None:
    """What the attempt was expected to cost when it was placed; None for attempts from before that was kept."""
    if not attempt.estimate:
        return None
    estimate, moves = estimate_in(attempt.estimate)
    return estimate_line(estimate, moves, attempt.currency)

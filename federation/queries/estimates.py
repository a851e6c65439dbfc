"""The expected cost of a run, as pages show it: the total and its parts."""

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
    """`parts` are those that arise, as text, None if unknown; `missing` names the unknown ones. While the run's own
    cost is unknown, only egress is shown beside it. `moves` lists the data moves with their sources.
    """

    total: Decimal | None
    parts: tuple[tuple[str, Decimal | None], ...]
    missing: str
    moves: str
    run_time: str


def estimate_line(estimate: Estimate, moves: Sequence[Move], currency: str) -> EstimateLine:
    """The estimate for users."""
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
    """The attempt's expected cost when it was placed; None for attempts made before this was stored."""
    if not attempt.estimate:
        return None
    estimate, moves = estimate_in(attempt.estimate)
    return estimate_line(estimate, moves, attempt.currency)

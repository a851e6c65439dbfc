"""How much of a run's work is left, between what is certain and what is possible."""

from typing import NamedTuple

from placement.ranking.deadlines import LEAST_LEFT
from placement.values.model import Runtime

TOLD_SHARE = 0.1
"""By this part, the end that a program reports may be wrong."""


class Left(NamedTuple):
    """Seconds of the run where it is. `least` is None if nothing is known."""

    least: int | None
    most: int


def left_of(known: Runtime | None, most_seconds: int, done_seconds: float, told_seconds: float | None) -> Left:
    """What is left of a job that has done `done_seconds`. What its program reports, `told_seconds`, counts before the run time that is
    `known` of such jobs. It is doubted as far as the most that the job may take allows.
    """
    most = max(int(most_seconds - done_seconds), most_seconds // LEAST_LEFT)
    if told_seconds is not None:
        doubtful = min(told_seconds * (1 + TOLD_SHARE), most)
        return Left(int(told_seconds * (1 - TOLD_SHARE)), int(max(told_seconds, doubtful)))
    return Left(None if known is None else max(0, int(known.p10_seconds - done_seconds)), most)

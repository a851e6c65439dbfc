"""Whether a running elastic job is stopped so that it continues with more pods (ADR 57).

Both sides are counted in seconds of the job's time. Growing costs the work since its last checkpoint, and a restart. It saves a part of
the time that the run would still take: as much as the pods are more, since the work is assumed to be shared equally. The gateway
stops the run only if it saves more by a margin.
"""

from dataclasses import dataclass

from placement.values.preemption import RESTART_SECONDS

from .relocation import MARGIN_SECONDS


@dataclass(frozen=True, slots=True)
class Growth:
    """A decision to continue with `more` pods. All in seconds of the job's time; `saved_seconds` is what it saves."""

    pods: int
    more: int
    lost_seconds: int
    cost_seconds: int
    saved_seconds: int


def growth(pods: int, more: int, left_seconds: int, lost_seconds: int) -> Growth | None:
    """The growth of a run that would still take `left_seconds` with its pods; None if that does not pay."""
    saved, cost = max(0, left_seconds) * (more - pods) // more, lost_seconds + RESTART_SECONDS
    return Growth(pods, more, lost_seconds, cost, saved) if saved > cost + MARGIN_SECONDS else None

"""Which faults and jobs a run has: those that its seed draws, or those that concern one defect."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Swarm:
    """The faults and jobs among which a seed chooses."""

    rates: Mapping[str, float] | None = None
    """The rates of the faults that happen, without all others; None: the seed draws them."""
    gangs: float = 0.2
    """The share of jobs with two pod sets."""
    cancels: float = 0.3
    """The share of jobs that their clients cancel."""
    cancelled_within: float = 60.0
    """In seconds after the client knows its job."""
    chaos_seconds: tuple[float, float] = (40.0, 150.0)
    """How long faults happen: at least, and at most."""
    run_seconds: tuple[int, ...] = ()
    """How long programs run; empty: between a second and minutes."""
    keeps_books: bool = False
    """Whether accountants work in each world; otherwise in some, if no defect is looked for."""


ANY = Swarm()
"""What a seed draws when no defect is looked for."""


def only(rates: Mapping[str, float], **more: Any) -> Swarm:
    """These faults alone, for a shorter time than usual."""
    return Swarm(**{"rates": rates, "chaos_seconds": (25.0, 60.0)} | more)

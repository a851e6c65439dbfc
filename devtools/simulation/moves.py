"""Moves of running jobs in a world: what users ask for, and which jobs the gateway itself may move."""

import random
from typing import Any

from .stage import CLUSTERS

WILLING = 0.5
"""The share of the jobs that the gateway may move."""
LONG_DEADLINE = 7200
"""Beyond the hour after which a drained cluster is expected to go away: a job that ends before is not moved."""


def wanted_move(turn: int) -> dict[str, Any]:
    """The body of a user's request to move: anywhere else, and in turn to each cluster by name."""
    named = [CLUSTERS[turn // 2 % len(CLUSTERS)]] if turn % 2 else []
    return {"lose_work": True, "clusters": named}


def make_willing(body: dict[str, Any], chance: random.Random) -> None:
    """Lets the gateway move the job, or does not. It saves its work so rarely that a stop would cost more than a move."""
    is_willing, often = chance.random() < WILLING, chance.choice((20, 600, 1500))
    if is_willing:
        body |= {"moves": "when_needed", "checkpoint_seconds": often, "deadline_seconds": LONG_DEADLINE}

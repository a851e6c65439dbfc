"""Moves of running jobs in a world: what users ask for."""

from typing import Any

from .stage import CLUSTERS


def wanted_move(turn: int) -> dict[str, Any]:
    """The body of a user's request to move: anywhere else, and in turn to each cluster by name."""
    named = [CLUSTERS[turn // 2 % len(CLUSTERS)]] if turn % 2 else []
    return {"lose_work": True, "clusters": named}

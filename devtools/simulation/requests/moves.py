"""Moves of running jobs in a world: what users ask for, and which jobs the gateway itself may move."""

import random
from typing import TYPE_CHECKING, Any

from devtools.simulation.clusters.cluster import RUN_SECONDS
from devtools.simulation.setting.stage import CLUSTERS

if TYPE_CHECKING:
    from .clients import Submission

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


def make_threatened(submissions: "list[Submission]", *, is_noticed: bool) -> None:
    """Where nodes go away, lets every second job run long, save its work seldom, and be moved."""
    for one in submissions[::2] if is_noticed else ():
        one.body |= {"moves": "when_needed", "checkpoint_seconds": 600, "deadline_seconds": LONG_DEADLINE}
        one.body["labels"] |= {RUN_SECONDS: "200"}
        one.body["pod_sets"] = one.body["pod_sets"][:1]
        one.body["pod_sets"][0] |= {"count": 1, "gpu": {"count": 1}}
        one.body.pop("completions", None)

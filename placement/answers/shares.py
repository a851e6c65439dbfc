"""The share of each tenant now, and how many of its siblings with waiting jobs have their turn before it."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from placement.cycle.fair_share import OWN, Tree
from placement.fleet.policies import prefixes_of
from placement.fleet.totals import totals_of
from placement.values.model import FleetCluster
from placement.values.shares import FairShare


class ShareLine(NamedTuple):
    """A tenant with all tenants below it. `held` and `used` are its largest parts of what it could use; `share` is the
    largest part of both together by weight, past use as far as it counts: the number that turns compare. `credit` is how
    far past use puts it ahead of its siblings, in units of `share`; negative if it puts it back.

    `turn` is 1 if its next job goes before those of its siblings; None if none of its jobs waits.
    """

    path: str
    weight: float
    held: float
    used: float
    share: float
    credit: float
    waiting: int
    turn: int | None


def share_lines(
    fair: FairShare, clusters: Sequence[FleetCluster], waiting: Mapping[str, int], wanted: Collection[str]
) -> dict[str, ShareLine]:
    """The wanted tenants by path. `waiting` is the number of waiting jobs by path of their tenant."""
    tree = Tree(fair, [(cluster, totals_of(cluster)) for cluster in clusters])
    for path in wanted:
        tree.leaf(path, waits=False)
    for path in waiting:
        tree.leaf(path)
    tree.measure()
    below: dict[str, int] = {}
    for path, count in waiting.items():
        for above in (*prefixes_of(path), path + OWN):
            below[above] = below.get(above, 0) + count
    found = {}
    for path in wanted:
        node = tree.nodes[path]
        parts, count = node.parts(), below.get(path, 0)
        siblings = () if node.parent is None else node.parent.children.values()
        ahead = sum(1 for one in siblings if below.get(one.path) and one.share < node.share)
        found[path] = ShareLine(
            path, parts.weight, parts.held * parts.weight, parts.used * parts.weight, parts.total, parts.credit,
            count,
            ahead + 1 if count else None,
        )  # fmt: skip
    return found

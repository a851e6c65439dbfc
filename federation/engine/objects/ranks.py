"""Assigns the pods of a gang to nodes by index: neighbours by index are neighbours in the network.

All pods of a Job have one template, so a gang that is spread over several domains would be scheduled in any order. Its
pods are created with a scheduling gate. Each pod then gets a preference for the node of its index, and its gate is
opened. It is only a preference, so that every schedulable pod remains schedulable.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from clusters.engine.flavors import match_expressions

GATE = "switchyard.dev/topology"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
NODE_WEIGHT = 50
DOMAIN_WEIGHT = 100
"""The sum of the weights ranks: the node of the index, then the rest of its domain; the domain counts more than the
node."""
HOSTNAME = "kubernetes.io/hostname"

Stretch: TypeAlias = Mapping[str, Any]
"""Pods of consecutive indices in one domain, as stored: `nodes`, pairs of a node's name and its number of pods, and
`domain`, label selectors that each pick some of the domain's nodes."""
Path: TypeAlias = tuple[str, ...]


def stretches_of(
    nodes: Mapping[str, int],
    paths_by_level: Sequence[Sequence[Path | None]],
    selectors: Callable[[int, str], Sequence[Mapping[str, str]]],
) -> list[Stretch]:
    """The order of a pod set over its nodes, with neighbours together; empty if one domain holds them all.

    `paths_by_level` has, for each level from narrow to wide, the domain of each node, None if unknown. The narrowest
    level that is known for all nodes separates the stretches. `selectors` has what selects a node's domain of a level.
    """
    names = list(nodes)
    for level, paths in enumerate(paths_by_level):
        if len(set(paths)) > 1 and None not in paths:
            runs = groupby(zip(paths, names, strict=True), key=lambda pair: pair[0])
            return [_stretch([name for _, name in run], nodes, level, selectors) for _, run in runs]
    return []


def _stretch(
    names: Sequence[str],
    nodes: Mapping[str, int],
    level: int,
    selectors: Callable[[int, str], Sequence[Mapping[str, str]]],
) -> Stretch:
    domain = [dict(selector) for selector in selectors(level, names[0])]
    return {"nodes": [[name, nodes[name]] for name in names], "domain": domain}


def wishes_of(stretches: Sequence[Stretch], index: int) -> list[dict[str, Any]]:
    """The preferred node affinity terms of the pod with this index; empty for an index beyond the stretches."""
    first = 0
    for stretch in stretches:
        for name, pods in stretch["nodes"]:
            if index < first + pods:
                node = [{"key": HOSTNAME, "operator": "In", "values": [name]}]
                wishes = [(NODE_WEIGHT, node), *((DOMAIN_WEIGHT, match_expressions(s)) for s in stretch["domain"])]
                return [{"weight": weight, "preference": {"matchExpressions": terms}} for weight, terms in wishes]
            first += pods
    return []

"""Which pod of a gang stands where: neighbours by index are neighbours in the network.

All pods of a Job are made from one template, so a gang that is spread over several domains would come to stand in any
order. Its pods are made with a scheduling gate; each is then told where pods of its index should go, and let through.
They are told by preference only, so that nothing that was schedulable stops being it.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from clusters.engine.flavors import match_expressions

GATE = "switchyard.dev/topology"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
NODE_WEIGHT = 50
DOMAIN_WEIGHT = 100
"""Added up they rank: the node of the index, then the rest of its domain; the domain matters more than the node."""
HOSTNAME = "kubernetes.io/hostname"

Stretch: TypeAlias = Mapping[str, Any]
"""Pods of consecutive indices in one domain, as it is stored: `nodes`, pairs of a node's name and how many pods it takes,
and `domain`, label selectors that each pick some of the domain's nodes."""
Path: TypeAlias = tuple[str, ...]


def stretches_of(
    nodes: Mapping[str, int],
    paths_by_level: Sequence[Sequence[Path | None]],
    selectors: Callable[[int, str], Sequence[Mapping[str, str]]],
) -> list[Stretch]:
    """The order of a pod set over its nodes, which come with neighbours together; empty if one domain holds them all.

    `paths_by_level` has, for each level from narrow to wide, the domain of each node, None where it is not known. They are
    told apart by the narrowest level that is known of all; `selectors` tells what selects a node's domain of a level.
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
    """What the pod of this index is to prefer, as preferred terms of a node affinity; nothing for an index beyond them."""
    first = 0
    for stretch in stretches:
        for name, pods in stretch["nodes"]:
            if index < first + pods:
                node = [{"key": HOSTNAME, "operator": "In", "values": [name]}]
                wishes = [(NODE_WEIGHT, node), *((DOMAIN_WEIGHT, match_expressions(s)) for s in stretch["domain"])]
                return [{"weight": weight, "preference": {"matchExpressions": terms}} for weight, terms in wishes]
            first += pods
    return []

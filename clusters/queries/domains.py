"""How a cluster's own labels select a topology domain; cached per process until the cluster's inventory changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from uuid import UUID

from clusters.engine.topology import DOMAIN_LABELS, label_of, selector_of
from foundation.caches import cached_all

from .fleet import ClusterView, NodeView, fleet

LEVELS = ("zone", "block", "rack", "clique")
"""The levels that several nodes share, wide to narrow."""
Selectors = tuple[Mapping[str, str], ...]
Path = tuple[str, ...]


@dataclass(frozen=True)
class Domains:
    """The domains of one cluster as last observed."""

    view: ClusterView
    _selectors: dict[str, Mapping[Path, Selectors]] = field(default_factory=dict)

    def selectors(self, level: str, node: str) -> Selectors:
        """The selectors of the domain of that level around a node: each selects some of its nodes, together all of
        them.

        Empty if the node is gone or has no label for that level.
        """
        path = self.path(level, node)
        if path is None:
            return ()
        if level not in self._selectors:
            self._selectors[level] = self._of_level(level)
        return self._selectors[level][path]

    def path(self, level: str, node: str) -> Path | None:
        """The domain of that level that contains a node; None if the node is gone or has no label."""
        found = self._nodes.get(node)
        return None if found is None else _path(level, found)

    def label(self, level: str, node: str) -> str:
        """The label that names the node's domain of that level, or the node itself (`node`); empty if it has none."""
        found = self._nodes.get(node)
        told = None if found is None else label_of(level, found.labels)
        return told[0] if told else ""

    @cached_property
    def _nodes(self) -> Mapping[str, NodeView]:
        return {node.name: node for node in self.view.nodes}

    def _of_level(self, level: str) -> Mapping[Path, Selectors]:
        in_use = {key for node in self.view.nodes for key in node.labels if key in DOMAIN_LABELS}
        found: dict[Path, list[Mapping[str, str]]] = {}
        for node in self.view.nodes:
            path = _path(level, node)
            if path is None:
                continue
            selector, known = selector_of(level, node.labels, in_use), found.setdefault(path, [])
            if selector not in known:
                known.append(selector)
        return {path: tuple(selectors) for path, selectors in found.items()}


def domains() -> Mapping[UUID, Domains]:
    """The domains of every registered cluster, by its id; the same objects until the clusters change."""
    return {known.view.id: known for known in _domains(fleet())}


@cached_all("id")
def _domains(views: Sequence[ClusterView]) -> list[Domains]:
    return [Domains(view) for view in views]


def _path(level: str, node: NodeView) -> Path | None:
    """The domain of that level that contains a node; None if it is not known."""
    path = (*node.domain, node.clique)[: LEVELS.index(level) + 1]
    return path if path[-1] else None

"""Whose turn it is in a cycle: the tenant with the least share of the fleet, level by level of the tree.

At each level the child goes next whose weighted share is least: the largest, over the resources that count, of what it
holds and used, as a part of what the tenants there could use at all, divided by its weight. It grows as its jobs are
placed: weighted dominant resource fairness by progressive filling (Ghodsi et al., "Dominant Resource Fairness", NSDI
2011) in a hierarchy (Bhattacharya et al., "Hierarchical Scheduling for Diverse Datacenter Workloads", SoCC 2013), with
decayed past use, as a part of what the fleet had then, which counts as far as `credits` says. A tenant's own jobs count
as one more child of weight 1 beside the tenants below it, and go in the order of the snapshot's queue.

Every job is considered once, so room that one tenant does not take goes to the others in the same cycle. Without
`FairShare`, the order is that of the queue.
"""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from placement.fleet.policies import prefixes_of
from placement.fleet.totals import Capacities, Totals
from placement.values.decisions import Placement
from placement.values.model import FleetCluster, JobRequest
from placement.values.shares import COUNTED, FairShare, TenantShare

from .credits import credits_of

OWN = "/"
"""Ends the path of the child that stands for a tenant's own jobs."""
NOTHING = (0.0,) * len(COUNTED)
"""Past capacity where none is known: past use is a part of today's."""


class Parts(NamedTuple):
    """The weighted share of a tenant with all tenants below it: what it holds, and what its past use adds."""

    weight: float
    held: float
    used: float
    total: float
    """The largest part of one resource, held and used, by weight; past use as far as it counts."""
    credit: float
    """How far past use puts it ahead of its siblings; negative if it puts it back."""


class Node:
    """A tenant, or its own jobs, in the tree of one cycle."""

    __slots__ = (
        "_capacity",
        "_charged",
        "_held",
        "_scale",
        "_used",
        "beside",
        "children",
        "credit",
        "heap",
        "jobs",
        "moved",
        "parent",
        "path",
        "share",
        "waits",
        "weight",
    )

    def __init__(
        self, path: str, parent: "Node | None", capacity: Sequence[float], past: Sequence[float] = NOTHING
    ) -> None:
        self.path, self.parent, self.weight = path, parent, 1.0
        self.children: dict[str, Node] = {}
        self.heap: list[tuple[float, int, Node]] = []
        """Of the children with jobs: share, and the place of their first job in the queue."""
        self.jobs: list[tuple[int, JobRequest]] = []
        self.beside: list[Node] = []
        """Children that used something and are not in the tree, because none of their jobs waits."""
        self.waits = False
        """Whether jobs wait there or below it."""
        self.share = 0.0
        self.credit = 0.0
        self.moved = 0.0
        """What is added to the share, because past use counts only as far as `credits` says."""
        self._capacity = [(number, amount) for number, amount in enumerate(capacity) if amount > 0]
        self._scale = [
            now / then if now > 0 and then > 0 else 1.0 for now, then in zip(capacity or NOTHING, past, strict=True)
        ]
        """By resource, what a unit of the past is now: the same part of a larger or smaller fleet."""
        self._held, self._used, self._charged = [0.0] * len(COUNTED), [0.0] * len(COUNTED), [0.0] * len(COUNTED)

    def add(self, own: TenantShare, strength: float) -> None:
        """Adds what a tenant at or below it holds and used."""
        for number, name in enumerate(COUNTED):
            self._held[number] += own.held.get(name, 0)
            self._used[number] += strength * own.used.get(name, 0.0) * self._scale[number]
            self._charged[number] = self._held[number] + self._used[number]

    def charge(self, amounts: Sequence[float]) -> None:
        """Adds what one of its jobs takes in this cycle."""
        for number, amount in enumerate(amounts):
            self._charged[number] += amount
        self.measure()

    def measure(self) -> None:
        """Computes the share."""
        self.share = self._largest(self._charged) + self.moved

    def credit_children(self, cap: float | None) -> None:
        """Decides how far the past use of its children counts."""
        children = (*self.children.values(), *self.beside)
        pasts = [child.past() for child in children]
        counts = [child.waits or past > 0 for child, past in zip(children, pasts, strict=True)]
        found = credits_of(pasts, [child.weight for child in children], counts, cap)
        for child, past, (credit, counted) in zip(children, pasts, found, strict=True):
            child.credit, child.moved = credit, counted - past

    def past(self) -> float:
        """The largest part of one resource that it used, by weight."""
        return self._largest(self._used)

    def parts(self) -> Parts:
        """The share before the cycle."""
        total = self._largest(self._charged) + self.moved
        return Parts(self.weight, self._largest(self._held), self.past(), total, self.credit)

    def _largest(self, amounts: Sequence[float]) -> float:
        return max((amounts[number] / whole for number, whole in self._capacity), default=0.0) / self.weight


class Tree:
    """The tenants on the given paths with their shares."""

    def __init__(self, fair: FairShare, clusters: Sequence[tuple[FleetCluster, Totals]]) -> None:
        self._fair, self._capacities = fair, Capacities(clusters)
        self._past = Capacities((one, one.amounts) for one in fair.past)
        self.root = Node("", None, ())
        self.nodes: dict[str, Node] = {}

    def leaf(self, tenant_path: str, *, waits: bool = True) -> Node:
        """The child that stands for a tenant's own jobs, made with the tenants above it. `measure` follows."""
        found = self.nodes.get(tenant_path + OWN)
        if found is None:
            above = self.root
            for path in (*prefixes_of(tenant_path), tenant_path + OWN):
                node = self.nodes.get(path)
                if node is None:
                    node = self.nodes[path] = self._node(path, above)
                    above.children[path] = node
                above = node
            found = above
        node = found if waits else None
        while node is not None and not node.waits:
            node.waits, node = True, node.parent
        return found

    def _node(self, path: str, above: Node) -> Node:
        tenant = path.removesuffix(OWN)
        return Node(path, above, self._capacities.at(tenant), self._past.at(tenant))

    def measure(self) -> None:
        """Adds what every tenant holds and used to the nodes on its path."""
        others: dict[str, Node] = {}
        for tenant in self._fair.tenants:
            above = self.root
            for path in (*prefixes_of(tenant.path), tenant.path + OWN):
                node = self.nodes.get(path) or others.get(path)
                if node is None:
                    node = others[path] = self._node(path, above)
                    above.beside.append(node)
                node.add(tenant, self._fair.strength)
                if path in others:
                    break
                above = node
            if (own := self.nodes.get(tenant.path) or others.get(tenant.path)) is not None:
                own.weight = tenant.weight
        for node in (self.root, *self.nodes.values()):
            node.credit_children(self._fair.credit_cap)
        for node in self.nodes.values():
            node.measure()


class Take(NamedTuple):
    """A placement of this cycle: the own jobs of which tenant, and the shares on its path when its turn came."""

    leaf: Node
    shares: tuple[tuple[str, float], ...]


class Behind(NamedTuple):
    """Who went first, at the level where two tenants' paths part; equal paths with OWN are a tenant's own jobs."""

    own: str
    own_share: float
    other: str
    other_share: float


class Turns:
    """The jobs of a queue in the order of turns. Iterate, and `charge` each placement before the next job."""

    def __init__(
        self, queue: Sequence[JobRequest], fair: FairShare | None, clusters: Sequence[tuple[FleetCluster, Totals]]
    ) -> None:
        self._queue = queue
        self._tree = None if fair is None else _planted(queue, Tree(fair, clusters))
        self._path: list[Node] = []
        self._is_charged = False
        self._takes: dict[tuple[object, str], list[Take]] = {}
        """By cluster and flavor, the last placements of the last two tenants."""

    def __iter__(self) -> Iterator[JobRequest]:
        return iter(self._queue) if self._tree is None else self._by_turns(self._tree.root)

    def charge(self, placement: Placement) -> None:
        """Adds what the job whose turn it is takes."""
        if self._tree is None:
            return
        self._is_charged = True
        take = Take(self._path[-1], tuple((node.path, node.share) for node in self._path))
        for pod_set in placement.pod_sets:
            last = self._takes.setdefault((placement.cluster_id, pod_set.flavor), [])
            last[:] = [*[one for one in last if one.leaf is not take.leaf][-1:], take]
        amounts = [float(placement.amounts.get(name, 0)) for name in COUNTED]
        for node in self._path:
            node.charge(amounts)

    def behind(self, job: JobRequest, wanted: Placement) -> Behind | None:
        """The last other tenant that took room in this cycle where the job could have had it; None if none did."""
        if self._tree is None:
            return None
        leaf = self._tree.nodes[job.tenant_path + OWN]
        for pod_set in wanted.pod_sets:
            for take in reversed(self._takes.get((wanted.cluster_id, pod_set.flavor), [])):
                if take.leaf is not leaf:
                    return self._parting(leaf, take)
        return None

    def _parting(self, leaf: Node, take: Take) -> Behind:
        shares, own = dict(take.shares), leaf
        while own.parent is not None and own.parent.path and own.parent.path not in shares:
            own = own.parent
        above = own.parent.path if own.parent is not None else ""
        names = [path for path, _ in take.shares]
        other = names[names.index(above) + 1] if above else names[0]
        return Behind(own.path, own.share, other, shares[other])

    def _by_turns(self, root: Node) -> Iterator[JobRequest]:
        while root.heap:
            path, node = [], root
            while node.heap:
                node = node.heap[0][2]
                path.append(node)
            self._path = path
            leaf = path[-1]
            self._is_charged = False
            while leaf.jobs and not self._is_charged:
                yield leaf.jobs.pop()[1]
            _reorder(root, path)


def _planted(queue: Sequence[JobRequest], tree: Tree) -> Tree:
    for place, job in enumerate(queue):
        tree.leaf(job.tenant_path).jobs.append((place, job))
    tree.measure()
    for node in tree.nodes.values():
        node.jobs.reverse()
    _heap_up(tree.root)
    return tree


def _heap_up(node: Node) -> int:
    """Orders the children of all nodes below; returns the place of its first job."""
    firsts = [(child.share, _heap_up(child), child) for child in node.children.values()]
    node.heap = firsts
    heapify(firsts)
    return min([place for _, place, _ in firsts] + [place for place, _ in node.jobs[-1:]], default=0)


def _reorder(root: Node, path: Sequence[Node]) -> None:
    """Moves the nodes on the path, each the first of its level, to where they now belong; removes those without
    jobs.
    """
    for above, node in zip(reversed([root, *path[:-1]]), reversed(path), strict=True):
        if node.jobs or node.heap:
            heapreplace(above.heap, (node.share, above.heap[0][1], node))
        else:
            heappop(above.heap)

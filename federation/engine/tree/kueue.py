"""Converts manifests of Kueue to a tree file, and names everything that has no equal.

In Kueue a cohort's quota adds to that of the queues in it; a limit here is a ceiling that contains those below it. So the limit of
a cohort is its own quota plus the limits below it, and what it lends is bounded by what its members do not keep.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

from federation.engine.intake.priority_classes import MOST_VALUE, WantedClass
from federation.engine.intake.reading import Fault, Refused
from quotas.engine.amounts import format_amount

from .items import Key, Kind
from .kueue_reading import Amounts, Manifest, Node, read_manifests
from .reading import LEAST_WEIGHT, MOST_LEVELS, MOST_WEIGHT, class_item, limit_name, plain
from .writing import tree_text

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
HELD = {"Hold", "HoldAndDrain"}


@dataclass(frozen=True, slots=True)
class Imported:
    """A tree file, and what of the manifests it does not have."""

    text: str
    warnings: tuple[str, ...]


@dataclass(slots=True)
class Place:
    """A cohort or queue as a tenant. `kept` is what the tenants below it keep for themselves, by resource."""

    node: Node
    path: str
    below: list["Place"] = field(default_factory=list)
    kept: dict[str, int] = field(default_factory=dict)
    nominal: dict[str, int] = field(default_factory=dict)


def import_kueue(files: Sequence[tuple[str, str]], *, below: str = "") -> Imported:
    """The manifests in these files (name, text) as one tree file, put below a tenant if one is named.

    Raises Refused with the file, line and column of what is not YAML or contradicts itself.
    """
    if below and not all(map(LABEL.fullmatch, below.split("/"))):
        raise Refused([Fault("below", "bad_format", "--below: the path of a tenant, such as acme/research")])
    manifest = read_manifests(files)
    warnings = manifest.warnings
    roots = _tree(manifest, below)
    items: dict[Key, Mapping[str, Any]] = {}
    for root in roots:
        resources = sorted({name for place in _all(root) for name in place.node.amounts})
        for place in reversed(list(_all(root))):
            _count(place, resources)
        for place in _all(root):
            items.update(_items(place, resources, is_root=place is root, warnings=warnings))
    for queue in manifest.local_queues:
        _local_queue(queue, roots, items, warnings)
    if not any(key.kind is Kind.TENANT for key in items):
        raise Refused([Fault("", "required", "the files have no ClusterQueue and no Cohort")])
    items.update(_classes(manifest, warnings))
    told = tuple(dict.fromkeys(warnings))
    comments = ["Converted from manifests of Kueue.", *(f"warning: {one}" for one in told)]
    return Imported(tree_text(items, comments=comments), told)


def _all(place: Place) -> Iterator[Place]:
    """The place and all below it, from the root down."""
    yield place
    for one in place.below:
        yield from _all(one)


def _tree(manifest: Manifest, below: str) -> list[Place]:
    """The roots. Cohorts that only other objects name exist without a quota, as in Kueue."""
    cohorts = dict(manifest.cohorts)
    for node in [*manifest.queues, *manifest.cohorts.values()]:
        if node.parent and node.parent not in cohorts:
            cohorts[node.parent] = Node("Cohort", node.parent, where=node.where)
    members: dict[str, list[Node]] = {}
    for node in [*cohorts.values(), *manifest.queues]:
        members.setdefault(node.parent, []).append(node)
    roots = _places(members.get("", []), below, members, manifest.warnings)
    placed = sum(1 for root in roots for _ in _all(root))
    if placed < len(cohorts) + len(manifest.queues):
        found = {place.node.name for root in roots for place in _all(root) if place.node.kind == "Cohort"}
        first = next(node for name, node in sorted(cohorts.items()) if name not in found)
        raise Refused([Fault("", "not_allowed", f"{first.where}: Cohort {first.name} is in a circle of parents")])
    return roots


def _places(nodes: Sequence[Node], above: str, members: Mapping[str, list[Node]], warnings: list[str]) -> list[Place]:
    taken: set[str] = set()
    found = []
    for node in nodes:
        path = f"{above}/{_name(node, taken, warnings)}".removeprefix("/")
        if path.count("/") >= MOST_LEVELS:
            raise Refused([Fault("", "too_deep", f"{node.where}: {node.title} is deeper than {MOST_LEVELS} levels")])
        place = Place(node, path)
        if node.kind == "Cohort":
            place.below = _places(members.get(node.name, []), path, members, warnings)
        found.append(place)
    return found


def _name(node: Node, taken: set[str], warnings: list[str]) -> str:
    """A name that no sibling has. Kueue's names may have dots and be longer."""
    base = re.sub(r"[^a-z0-9-]+", "-", node.name)[:55].strip("-") or "queue"
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    taken.add(name)
    if name != node.name:
        warnings.append(f"{node.title}: its tenant is named {name}")
    return name


def _count(place: Place, resources: Sequence[str]) -> None:
    """The limit of each resource, from those below it."""
    for name in resources:
        own = place.node.amounts.get(name, Amounts())
        place.nominal[name] = own.nominal + sum(one.nominal[name] for one in place.below)
        place.kept[name] = sum(_floor(one, name) for one in place.below)


def _floor(place: Place, name: str) -> int:
    """What a member's limit counts for above it without any work: what it does not lend, and what those below it keep."""
    lend = place.node.amounts.get(name, Amounts()).lend
    return place.kept[name] if lend is None else max(place.kept[name], place.nominal[name] - lend)


def _items(
    place: Place, resources: Sequence[str], *, is_root: bool, warnings: list[str]
) -> Iterator[tuple[Key, Mapping[str, Any]]]:
    node, path = place.node, place.path
    below = "department" if node.kind == "Cohort" else "team"
    yield Key(Kind.TENANT, path), {"kind": below if "/" in path else "organisation"}
    if node.labels:
        yield Key(Kind.LABELS, path), {"labels": dict(node.labels)}
    if (weight := _weight(node.weight, node.title, warnings)) != 1:
        yield Key(Kind.WEIGHT, path), {"weight": plain(weight)}
    for name in resources:
        given = node.amounts.get(name)
        if given is None and node.kind == "ClusterQueue":
            warnings.append(f"{node.title} does not cover {name}, so it may hold none: its limit is 0")
        own = given or Amounts(borrow=0 if node.kind == "ClusterQueue" else None)
        borrow, lend = (0, None) if is_root else (own.borrow, own.lend)
        if lend is not None:
            lend = min(lend, place.nominal[name] - place.kept[name])
        yield (
            Key(Kind.LIMIT, path, limit_name(name, [])),
            {
                "resource": name,
                "clusters": [],
                "nominal": format_amount(name, place.nominal[name]),
                "borrowing_limit": None if borrow is None else format_amount(name, borrow),
                "lending_limit": None if lend is None else format_amount(name, lend),
                "reclaims": False,
                "reclaim_after": None,
            },
        )
    yield from _stopped(node, path, warnings)


def _stopped(node: Node, path: str, warnings: list[str]) -> Iterator[tuple[Key, Mapping[str, Any]]]:
    """A stopped queue starts no jobs: a limit of no jobs does the same."""
    if node.stop not in HELD:
        return
    if node.stop == "HoldAndDrain":
        warnings.append(
            f"{node.title}: stopPolicy HoldAndDrain: nothing new starts, but running jobs are not stopped"
            " unless you add `reclaim_after: 0` to the limit"
        )
    value: dict[str, Any] = {
        "resource": "jobs",
        "clusters": [],
        "nominal": "0",
        "borrowing_limit": "0",
        "lending_limit": None,
        "reclaims": False,
        "reclaim_after": None,
    }
    yield Key(Kind.LIMIT, path, "jobs"), value


def _weight(weight: Fraction, title: str, warnings: list[str]) -> Decimal:
    found = round(Decimal(weight.numerator) / Decimal(weight.denominator), 2)
    bounded = min(max(found, LEAST_WEIGHT), MOST_WEIGHT)
    if Fraction(bounded) != weight:
        warnings.append(f"{title}: its weight {float(weight):g} becomes {bounded}")
    return bounded


def _local_queue(queue: Node, roots: Sequence[Place], items: dict[Key, Mapping[str, Any]], warnings: list[str]) -> None:
    places = [place for root in roots for place in _all(root)]
    above = next((one for one in places if one.node.kind == "ClusterQueue" and one.node.name == queue.parent), None)
    if above is None:
        warnings.append(f"{queue.title}: there is no ClusterQueue {queue.parent}; it is left out")
        return
    taken = {
        key.tenant.rpartition("/")[2]
        for key in items
        if key.kind is Kind.TENANT and key.tenant.startswith(f"{above.path}/")
    }
    name = _name(Node("LocalQueue", queue.namespace, where=queue.where), set(), [])
    path = f"{above.path}/{name}"
    if name in taken:
        path = f"{path}-{re.sub(r'[^a-z0-9-]+', '-', queue.name)}"[: len(above.path) + 64].rstrip("-")
    if path.count("/") >= MOST_LEVELS or Key(Kind.TENANT, path) in items:
        raise Refused([Fault("", "too_deep", f"{queue.where}: {queue.title} has no place below {above.path}")])
    items[Key(Kind.TENANT, path)] = {"kind": "project"}
    if (weight := _weight(queue.weight, queue.title, warnings)) != 1:
        items[Key(Kind.WEIGHT, path)] = {"weight": plain(weight)}
    items.update(_stopped(queue, path, warnings))


def _classes(manifest: Manifest, warnings: list[str]) -> Iterator[tuple[Key, Mapping[str, Any]]]:
    policies = {queue.preempts for queue in manifest.queues}
    preempts = "lower" if policies and policies <= {"LowerPriority", "LowerOrNewerEqualPriority"} else "never"
    if len(policies) > 1 and manifest.classes:
        warnings.append(
            "the queues differ in preemption.withinClusterQueue; here a class decides whether its jobs replace others, and"
            f" all get preempts: {preempts}"
        )
    for name, value, description, where in manifest.classes:
        bounded = min(max(value, -MOST_VALUE), MOST_VALUE)
        if bounded != value:
            warnings.append(f"WorkloadPriorityClass {name}: its value {value} becomes {bounded}")
        if not LABEL.fullmatch(name):
            told = f"{where}: WorkloadPriorityClass {name}: a class's name has letters, digits and hyphens"
            raise Refused([Fault("", "bad_format", told)])
        wanted = WantedClass(name, bounded, description[:500], is_open=True, preempts=preempts)
        yield Key(Kind.PRIORITY_CLASS, "", name), class_item(wanted)

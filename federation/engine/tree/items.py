"""What a tenant tree consists of, and what differs between a file and the tree as it is."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from foundation.plain_yaml import Mark


class Kind(StrEnum):
    """The kinds of items, in the order in which a file is applied. Roles come last: an actor may take away their own."""

    TENANT = "tenant"
    LABELS = "labels"
    WEIGHT = "weight"
    LIMIT = "limit"
    USER_LIMIT = "user_limit"
    SUBMISSION_LIMIT = "submission_limit"
    BUDGET = "budget"
    INVOICE_TERMS = "invoice_terms"
    PRIORITY_CLASS = "priority_class"
    CLASS_LIMIT = "class_limit"
    ROLE = "role"


class Key(NamedTuple):
    """Which item: its kind, the path of its tenant (empty for a priority class), and its name among those of its kind."""

    kind: Kind
    tenant: str
    name: str = ""


Items = Mapping[Key, Mapping[str, Any]]
"""Each item's value: plain JSON with every field, as the file has it."""
Action = Literal["create", "change", "remove"]
ACTIONS: tuple[Action, ...] = ("create", "change", "remove")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file: its items with their places, and the sections that it has, which are complete.

    An item of the tree whose section the file has, and which the file does not have, is removed. A section that the file
    does not have is left as it is.
    """

    items: Items
    marks: Mapping[Key, Mark]
    sections: frozenset[tuple[Kind, str]]

    @property
    def tenants(self) -> frozenset[str]:
        """The paths of its tenants."""
        return frozenset(key.tenant for key in self.items if key.kind is Kind.TENANT)

    @property
    def roots(self) -> tuple[str, ...]:
        """Its topmost tenants: the file describes them and all below them."""
        listed = self.tenants
        return tuple(sorted(path for path in listed if not any(above in listed for above in ancestors(path))))


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. `before` is None if it is created, `after` if it is removed."""

    key: Key
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    mark: Mark | None = None

    @property
    def action(self) -> Action:
        """Whether it creates, changes or removes."""
        if self.before is None:
            return "create"
        return "remove" if self.after is None else "change"


def ancestors(path: str) -> list[str]:
    """The paths above a tenant, root first."""
    names = path.split("/")
    return ["/".join(names[:length]) for length in range(1, len(names))]


def changes_of(wanted: Wanted, present: Items, *, prune: bool) -> list[Change]:
    """What makes the tree equal to the file, in the order in which to try it. `present` is all at the file's roots and below.

    With `prune`, tenants that the file does not have are removed, deepest first, with their limits and budgets.
    """
    listed = wanted.tenants
    found = [
        Change(key, present.get(key), value, wanted.marks.get(key))
        for key, value in ((key, _settled(value, present.get(key))) for key, value in wanted.items.items())
        if present.get(key) != value
    ]
    for key, value in present.items():
        if key in wanted.items:
            continue
        is_pruned = prune and key.kind is not Kind.PRIORITY_CLASS and key.tenant not in listed
        if is_pruned and key.kind in GOES_WITH_TENANT:
            continue
        if is_pruned or (key.kind, key.tenant) in wanted.sections:
            found.append(Change(key, value, None))
    return sorted(found, key=_order)


def _settled(value: Mapping[str, Any], now: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """A class that does not say whether it is the default remains what it is."""
    if "is_default" in value and value["is_default"] is None:
        return {**value, "is_default": bool(now and now["is_default"])}
    return value


GOES_WITH_TENANT = frozenset({Kind.ROLE, Kind.LABELS, Kind.WEIGHT, Kind.INVOICE_TERMS})
"""Items that need no removal before their tenant: they go with it, or keep it."""
_RANKS = {kind: rank for rank, kind in enumerate(Kind)}


def _order(change: Change) -> tuple[int, int, int, Key]:
    """Tenants are created from the root down. They are removed from the leaves up, after all but roles."""
    kind, path = change.key.kind, change.key.tenant
    depth = path.count("/")
    if kind is Kind.TENANT and change.action == "remove":
        return _RANKS[Kind.ROLE], -1, -depth, change.key
    return _RANKS[kind], ACTIONS.index(change.action) if kind is Kind.ROLE else 0, depth, change.key


def kept_tenants(wanted: Wanted, present: Items) -> list[str]:
    """Tenants below the file's roots that the file does not have."""
    return sorted({key.tenant for key in present if key.kind is Kind.TENANT} - wanted.tenants)


def digest_of(changes: Sequence[Change]) -> str:
    """A hash of what changes, from what to what. Equal changes have equal hashes, wherever the file has them."""
    plain = [[*change.key, change.before, change.after] for change in changes]
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()

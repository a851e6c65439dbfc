"""Writes items of a tree as a file that reads back as the same items."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from .items import Items, Key, Kind
from .reading import FILE_KIND, LISTS, VERSION

SECTIONS = {kind: name for name, kind, _ in LISTS}
SINGLE = {Kind.SUBMISSION_LIMIT: "submission_limit", Kind.INVOICE_TERMS: "invoice_terms"}
WIDTH = 120
UNSAID: Mapping[str, object] = {
    "clusters": [], "lending_limit": None, "reclaims": False, "reclaim_after": None, "expires_at": None, "description": "", "grants": [], "is_default": False,
    "most_running": None, "most_gpus": None,
}  # fmt: skip
"""Values that a file has without saying so."""


def tree_text(items: Items, *, complete: Iterable[Kind] = (), comments: Sequence[str] = ()) -> str:
    """The file. The sections of the kinds `complete` are written for each tenant, also empty; others only with items."""
    classes = [_short(value) for key, value in sorted(items.items()) if key.kind is Kind.PRIORITY_CLASS]
    by_tenant: dict[str, list[tuple[Key, Mapping[str, Any]]]] = {}
    for key, value in sorted(items.items(), key=lambda item: (item[0].tenant.split("/"), item[0])):
        if key.tenant:
            by_tenant.setdefault(key.tenant, []).append((key, value))
    wanted = frozenset(complete)
    body: dict[str, Any] = {
        "apiVersion": VERSION,
        "kind": FILE_KIND,
        "tenants": [_tenant(path, found, wanted) for path, found in by_tenant.items()],
        **({"priority_classes": classes} if classes else {}),
    }
    text = yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=WIDTH)
    return "".join(f"# {' '.join(comment.split())}\n" for comment in comments) + text


def _tenant(path: str, found: Sequence[tuple[Key, Mapping[str, Any]]], complete: frozenset[Kind]) -> dict[str, Any]:
    own = {key.kind: value for key, value in found}
    entry: dict[str, Any] = {"path": path, "kind": own[Kind.TENANT]["kind"]}
    if Kind.LABELS in own or Kind.LABELS in complete:
        entry["labels"] = dict(own.get(Kind.LABELS, {}).get("labels", {}))
    if Kind.WEIGHT in own or Kind.WEIGHT in complete:
        entry["weight"] = own.get(Kind.WEIGHT, {}).get("weight", "1")
    for kind, name in SECTIONS.items():
        values = [_short(value) for key, value in found if key.kind is kind]
        if values or kind in complete:
            entry[name] = values
    for kind, name in SINGLE.items():
        if kind in own:
            entry[name] = dict(own[kind])
        elif kind in complete and kind is not Kind.INVOICE_TERMS:
            entry[name] = None
    return entry


def _short(value: Mapping[str, Any]) -> dict[str, Any]:
    """Without the fields that say nothing."""
    return {name: one for name, one in value.items() if name not in UNSAID or one != UNSAID[name]}

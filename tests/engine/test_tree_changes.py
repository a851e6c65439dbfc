"""What differs between a tree file and the tree, and in which order it is applied."""

from typing import Any

import pytest

from federation.engine.tree.items import Change, Key, Kind, ancestors, changes_of, digest_of, kept_tenants
from federation.engine.tree.reading import read_tree
from foundation.plain_yaml import Mark

from .test_tree_files import file_of


def wanted_of(*tenants):
    return read_tree(file_of(*tenants))


A, DEEP = {"path": "acme/a", "kind": "team"}, {"path": "acme/a/deep", "kind": "project"}
TENANTS = {
    Key(Kind.TENANT, one["path"]): {"kind": one["kind"]} for one in ({"path": "acme", "kind": "organisation"}, A, DEEP)
}


def test_the_roots_of_a_file_are_its_topmost_tenants():
    assert wanted_of(DEEP, A, {"path": "beta"}).roots == ("acme/a", "beta")
    assert ancestors("a/b/c") == ["a", "a/b"]
    assert ancestors("a") == []


def test_tenants_are_created_from_the_root_down_and_removed_from_the_leaves_up_before_roles_come():
    roles = [{"user": "a@b", "role": "viewer"}]
    created = changes_of(wanted_of({**DEEP, "roles": roles}, {**A, "weight": "2"}, {"path": "acme"}), {}, prune=False)
    assert [(one.action, one.key.kind, one.key.tenant) for one in created] == [
        ("create", Kind.TENANT, "acme"),
        ("create", Kind.TENANT, "acme/a"),
        ("create", Kind.TENANT, "acme/a/deep"),
        ("create", Kind.WEIGHT, "acme/a"),
        ("create", Kind.ROLE, "acme/a/deep"),
    ]
    assert created[0].mark == Mark(12, 3)
    present = {
        **TENANTS,
        Key(Kind.LIMIT, "acme/a", "gpu"): {},
        Key(Kind.ROLE, "acme/a", "x"): {},
        Key(Kind.WEIGHT, "acme/a"): {},
    }
    gone = changes_of(wanted_of({"path": "acme", "roles": roles}), present, prune=True)
    assert [(one.action, one.key.kind, one.key.tenant) for one in gone] == [
        ("remove", Kind.LIMIT, "acme/a"),
        ("remove", Kind.TENANT, "acme/a/deep"),
        ("remove", Kind.TENANT, "acme/a"),
        ("create", Kind.ROLE, "acme"),
    ]
    kept = wanted_of({"path": "acme"})
    assert changes_of(kept, present, prune=False) == []
    assert kept_tenants(kept, present) == ["acme/a", "acme/a/deep"]


def test_roles_are_created_then_changed_and_removed_last():
    def role(name, *, until=None):
        return {"user": f"{name}@b", "role": "viewer", **({"expires_at": until} if until else {})}

    present = {
        **TENANTS,
        **{Key(Kind.ROLE, "acme/a", f"viewer of {name}@b"): {"user": f"{name}@b"} for name in ("changed", "removed")},
    }
    wanted = wanted_of({**A, "roles": [role("changed", until="2099-01-01T00:00:00Z"), role("new")]})
    assert [(one.action, one.key.name) for one in changes_of(wanted, present, prune=False)] == [
        ("create", "viewer of new@b"),
        ("change", "viewer of changed@b"),
        ("remove", "viewer of removed@b"),
    ]


def test_priority_classes_are_never_pruned():
    present: dict[Key, Any] = {Key(Kind.TENANT, "acme"): {"kind": "organisation"}}
    assert changes_of(wanted_of({"path": "acme"}), present, prune=True) == []


@pytest.mark.parametrize("is_default", [True, False])
def test_a_class_that_does_not_say_whether_it_is_the_default_remains_what_it_is(is_default):
    wanted = read_tree(file_of({"path": "acme"}, priority_classes=[{"name": "high", "value": 10}]))
    key = Key(Kind.PRIORITY_CLASS, "", "high")
    present = {Key(Kind.TENANT, "acme"): {"kind": "organisation"}, key: {"value": 9, "is_default": is_default}}
    [change] = changes_of(wanted, present, prune=False)
    assert change.after["is_default"] is is_default
    assert changes_of(wanted, {**present, key: change.after}, prune=False) == []
    [created] = [one for one in changes_of(wanted, {}, prune=False) if one.key == key]
    assert created.after["is_default"] is False


def test_equal_changes_have_equal_hashes_wherever_the_file_has_them():
    key = Key(Kind.WEIGHT, "acme")
    one = Change(key, None, {"a": 1, "b": 2}, Mark(1, 1))
    assert digest_of([one]) == digest_of([Change(key, None, {"b": 2, "a": 1}, Mark(9, 9))])
    assert len({digest_of(each) for each in ([], [one], [one, one], [Change(key, {"a": 1, "b": 2}, None)])}) == 4


def test_what_goes_with_a_removed_tenant_hides_no_other_removal():
    present = {
        Key(Kind.ROLE, "acme/a", "x"): {},
        Key(Kind.INVOICE_TERMS, "acme/a"): {},
        **TENANTS,
        Key(Kind.LIMIT, "acme/a", "gpu"): {},
    }
    gone = changes_of(wanted_of({"path": "acme", "kind": "organisation"}), present, prune=True)
    assert [(one.action, one.key.kind, one.key.tenant) for one in gone] == [
        ("remove", Kind.LIMIT, "acme/a"),
        ("remove", Kind.TENANT, "acme/a/deep"),
        ("remove", Kind.TENANT, "acme/a"),
    ]

"""What a process keeps in memory is kept by foundation.caches, which compares everything that a value depends on."""

import ast

from .source import files, name, nodes, tree

PURE = {
    "clusters/drivers/resolve.py::_read_key_ring": "of the setting's text",
    "clusters/drivers/kubernetes/shapes.py": "of texts that a cluster sent",
    "clusters/engine/claimable.py": "of a device's attributes",
    "clusters/engine/gpu_share.py": "of names",
    "clusters/engine/images.py::key_of": "of an image's name",
    "clusters/engine/mig.py": "of a model's name and slices",
    "clusters/engine/quantities.py": "of texts",
    "federation/drivers/policy_hooks.py::_hook_server": "of the setting's text",
    "clusters/drivers/hook_servers.py::hook_tls": "of the setting's text",
    "federation/engine/intake/normal_form.py::_normal_names": "of images' names",
    "federation/engine/objects/isolation.py": "of the setting's networks",
    "federation/queries/claimed_attempts.py::spec_hash_of": "of a spec's text",
    "foundation/passwords.py::_thread": "a thread for each process, no value",
    "placement": "of values alone: placement reads nothing else",
}
"""Functions whose standard cache may stay, since it compares all of their arguments and they read nothing else."""
STATE = {
    "billing/queries/pools.py::reservation_sources": "filled once, when the rooms above are ready",
    "billing/queries/progress.py::run_sources": "filled once, when the rooms above are ready",
    "federation/operations/rounds.py::_left_behind": "threads that are still at work, no values",
    "foundation/postgres/spares.py::_spares": "sessions that nobody uses just now",
    "foundation/caches.py::_caches": "filled once, when modules are loaded",
    "foundation/caches.py::_resets": "filled once, when modules are loaded",
    "tenancy/web/lockout.py::_inside": "who is being let in just now",
    "clusters/drivers/memory.py::_turns": "semaphores of running loops",
    "config/gunicorn.py::secure_scheme_headers": "a setting of gunicorn",
}
"""Containers that a module begins empty and that are no caches."""
CACHES = {"cache", "lru_cache"}
CONTAINERS = {"dict", "list", "set", "OrderedDict", "defaultdict", "deque", "WeakKeyDictionary", "WeakValueDictionary"}


def called(node):
    """The last name of what is called or used as a decorator."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def is_empty_container(value):
    if isinstance(value, ast.Dict):
        return not value.keys
    if isinstance(value, ast.List):
        return not value.elts
    return isinstance(value, ast.Call) and called(value) in CONTAINERS and not value.args and not value.keywords


def standard_caches(path):
    for node in nodes(path, ast.FunctionDef):
        if any(called(decorator) in CACHES for decorator in node.decorator_list):
            yield f"{name(path)}::{node.name}"
    for each in tree(path).body:
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Call) and called(each.value.func) in CACHES:
            yield f"{name(path)}::{called(each.targets[0])}"


def containers(path):
    for node in tree(path).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and is_empty_container(node.value):
            yield from (f"{name(path)}::{called(target)}" for target in targets)


def is_allowed(place, allowed):
    return any(place == one or place.startswith((f"{one}::", f"{one}/")) for one in allowed)


def test_standard_caches_are_of_functions_that_read_nothing_but_their_arguments():
    found = [place for path in files() for place in standard_caches(path)]
    assert [place for place in found if not is_allowed(place, PURE)] == []
    assert [one for one in PURE if not any(is_allowed(place, [one]) for place in found)] == []


def test_no_module_keeps_a_cache_of_its_own():
    found = [place for path in files() for place in containers(path)]
    assert sorted(found) == sorted(STATE)


def test_what_is_planted_is_found(tmp_path, monkeypatch):
    planted = tmp_path / "planted.py"
    planted.write_text(
        "import functools\n_known: dict[int, str] = {}\n_seen = OrderedDict()\n"
        "@functools.lru_cache(maxsize=1)\ndef rows(): ...\nshort = cache(rows)\n"
    )
    monkeypatch.setattr(f"{__name__}.name", lambda path: path.name)
    assert list(containers(planted)) == ["planted.py::_known", "planted.py::_seen"]
    assert list(standard_caches(planted)) == ["planted.py::rows", "planted.py::short"]

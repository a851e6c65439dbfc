"""Time, chance, ids, threads and memory come from one place each, so that a simulation can decide them from a seed."""

import ast
import re

import pytest

from devtools.simulation.core.memory_names import MEMORIES

from .source import ROOT, files, name, tree

SOURCES = {
    "random": r"random\b.*",
    "time": r"time\.(time|monotonic|perf_counter|sleep|time_ns|monotonic_ns)",
    "ids": r"(uuid\.)?uuid[1345678]|compat\.uuid7|secrets\.\w+|os\.urandom",
    "threads": r"(threading\.)?Thread|ThreadPoolExecutor|(concurrent\.futures\.)?(wait|as_completed)|asyncio\.to_thread|.*run_in_executor",
    "now": r"datetime\.(now|utcnow|today)|date\.today|timezone\.now",
}
ALLOWED = {
    "foundation/host.py": "it is the place",
    "foundation/threads.py": "it is the place",
    "foundation/passwords.py": "what a password costs is real",
    "foundation/health.py": "probes of the process itself",
    "foundation/edge": "the web server's own threads and deadlines: no operation runs in them",
    "foundation/management/commands": "commands that people run",
    "clusters/engine/sealing.py": "a nonce must not follow from a seed",
    "clusters/drivers/resolve.py": "the system's resolver",
    "clusters/drivers/posting.py": "the servers of hooks are outside the gateway",
    "clusters/drivers/telemetry.py": "a Prometheus is outside the gateway",
    "clusters/drivers/connections.py": "the thread of a process's driver loop, which the simulation replaces",
    "clusters/drivers/kubernetes": "a real cluster's answers come in their own time",
    "clusters/drivers/simulated": "a cluster is outside the gateway; the simulation has its own",
    "federation/drivers/policy_hooks.py": "a hook is outside the gateway",
    "federation/management": "the demo's made-up history",
    "federation/operations/past_traffic.py": "likewise",
    "tenancy/operations/tokens.py": "a secret must not follow from a seed",
    "tenancy/operations/links.py": "likewise",
    "federation/operations/sessions.py": "likewise",
    "billing/operations/hooks.py": "likewise",
    "billing/operations/confirmations.py": "likewise",
    "config": "wiring of real processes",
}
"""Modules and folders that may, and why."""
ROOMS = ("federation", "placement", "billing", "quotas", "clusters", "tenancy", "foundation", "config")


def strays(module):
    """What a module calls or imports that has another place, by line."""
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            found += [
                (node.lineno, called)
                for kind, pattern in SOURCES.items()
                if re.fullmatch(pattern, called) and not (kind == "threads" and called == "wait")
            ]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            origin = getattr(node, "module", None)
            if "random" in names or origin == "random" or (origin == "time" and names):
                found.append((node.lineno, f"import {origin or ''} {names}"))
            if origin == "concurrent.futures" and {"wait", "ThreadPoolExecutor"} & set(names):
                found.append((node.lineno, f"import {names}"))
    return found


def is_allowed(path):
    return any(name(path) == allowed or name(path).startswith(f"{allowed}/") for allowed in ALLOWED)


def test_time_chance_ids_and_threads_come_from_one_place_each():
    found = [
        f"{name(path)}:{line} {what}"
        for path in files(ROOMS)
        if not is_allowed(path)
        for line, what in strays(tree(path))
    ]
    assert not found, f"ask foundation.clock, .host, .ids or .threads: {found}"


@pytest.mark.parametrize(
    "planted",
    [
        "import random\nrandom.shuffle(x)",
        "from time import sleep\nsleep(1)",
        "import uuid\nuuid.uuid4()",
        "import threading\nthreading.Thread(target=f).start()",
        "from concurrent.futures import wait\nwait(x)",
        "from datetime import datetime\ndatetime.now()",
    ],
)
def test_a_planted_source_is_found(planted):
    assert strays(ast.parse(planted))


def test_each_exception_is_still_one():
    assert [allowed for allowed in ALLOWED if not (ROOT / allowed).exists()] == []


EMPTY = re.compile(r"\{\}|\[\]|set\(\)|dict\(\)|deque\(.*\)|_?[A-Z]\w*\(\)")
NOT_REMEMBERED = {
    "foundation/host.py": "the host itself",
    "foundation/caches.py": "each simulated process exchanges all of it",
    "foundation/threads.py": "the threads themselves",
    "foundation/postgres/spares.py": "sessions, which the simulation never puts aside",
    "foundation/health.py": "probes of the process itself",
    "foundation/passwords.py": "what a password costs is real",
    "tenancy/operations/tenants.py": "a signal: its receivers are wired once",
    "tenancy/web": "sign-in, which the simulation does not do",
    "clusters/drivers": "the drivers of a process, which the simulation replaces",
}


def memories(module):
    """Names at module level that begin empty, to be filled while the process lives."""
    for node in module.body:
        target = (
            node.target
            if isinstance(node, ast.AnnAssign)
            else node.targets[0]
            if isinstance(node, ast.Assign)
            else None
        )
        if isinstance(target, ast.Name) and node.value is not None and EMPTY.fullmatch(ast.unparse(node.value)):
            yield target.id


def test_what_modules_remember_belongs_to_the_simulated_process():
    rooms = ("federation", "placement", "billing", "quotas", "clusters", "tenancy", "foundation")
    found = {
        f"{name(path)[:-3].replace('/', '.')}.{one}"
        for path in files(rooms)
        if not any(name(path) == kept or name(path).startswith(f"{kept}/") for kept in NOT_REMEMBERED)
        for one in memories(tree(path))
        if one.startswith("_") and not one.isupper()  # a constant is filled by nobody
    }
    assert found == set(MEMORIES), "list it in devtools/simulation/core/memory_names.py"

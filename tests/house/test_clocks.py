"""Instants that the database writes are compared with its own clock: a process whose clock is wrong ends nothing by it."""

import ast

import pytest

from .source import ROOT, files, name, tree

WATCHED = ("federation/operations", "federation/queries", "federation/observer", "clusters/operations")
ALLOWED = {
    "federation/operations/submission.py": "a job's first instant is told in the answer, ahead of the one round trip of its insert",
    "federation/operations/bulk_submission.py": "likewise",
    "federation/operations/expected_starts.py": "what is shown of starts to come",
    "federation/queries/quotes.py": "likewise",
    "federation/queries/figures.py": "ages that are shown",
    "federation/queries/pages.py": "likewise",
    "federation/queries/overview.py": "likewise",
    "federation/observer/feed.py": "how far the cluster's clock is from the process's own is what it reads",
    "clusters/operations/registration.py": "a row's instants are shown in the answer",
    "clusters/operations/health.py": "how far the process's own clock is off is what it works out",
    "clusters/operations/inventory.py": "when nodes were seen is known where they were read",
}
"""Modules that may ask the process's clock, and why."""


OWN_TIME = {"now", "monotonic_origin"}


def asks(module):
    """Lines that ask foundation's clock for the process's own time, however it was imported."""
    names = {
        alias.asname or alias.name
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and node.module == "foundation.clock"
        for alias in node.names
        if alias.name in OWN_TIME
    }
    found = []
    for node in (node for node in ast.walk(module) if isinstance(node, ast.Call)):
        called = node.func
        is_plain = isinstance(called, ast.Name) and called.id in names
        is_of_clock = (
            isinstance(called, ast.Attribute)
            and called.attr in OWN_TIME
            and ast.unparse(called.value).endswith("clock")
        )
        if is_plain or is_of_clock:
            found.append(node.lineno)
    return found


def watched():
    return [path for path in files() if name(path).startswith(WATCHED)]


def test_what_the_database_writes_is_compared_with_its_own_clock():
    strays = [f"{name(path)}:{line}" for path in watched() if name(path) not in ALLOWED for line in asks(tree(path))]
    assert not strays, f"use Now() in the statement, or foundation.clock.database_now(): {strays}"


def test_every_module_that_may_ask_its_own_clock_does():
    stale = {path for path in ALLOWED if not asks(tree(ROOT / path))}
    assert not stale, f"they need no leave any more: {stale}"


@pytest.mark.parametrize(
    "text",
    [
        "from foundation import clock\nrows.filter(at__lt=clock.now())",
        "from foundation.clock import now\nrows.update(at=now())",
        "from foundation.clock import now as present\nlate = present() - row.at",
        "import foundation.clock\nfoundation.clock.now()",
    ],
)
def test_a_process_that_asks_its_own_clock_is_seen(text):
    assert asks(ast.parse(text))


def test_the_databases_clock_is_no_fault():
    assert not asks(
        ast.parse(
            "from foundation.clock import database_now\nfrom django.db.models.functions import Now\nNow(); database_now()"
        )
    )

"""Instants that the database writes are compared with its own clock: a process whose clock is wrong ends nothing by it."""

import ast

import pytest

from .source import ROOT, files, name, tree

SHOWN = "what is shown, or the period that a caller names"
FOLDERS = {
    "federation/api": SHOWN,
    "federation/web": SHOWN,
    "clusters/api": SHOWN,
    "billing/api": SHOWN,
    "billing/web": SHOWN,
    "billing/queries": SHOWN,
    "tenancy/web": SHOWN,
    "federation/management": "commands that write files, and made-up history",
    "clusters/drivers": "how far the cluster's clock is from the process's own, and what a process remembers for a while",
}
"""Folders whose modules may ask the process's clock, and why."""
DATES = "expiry dates that people chose, and the instants beside them"
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
    "clusters/queries/pages.py": "ages that are shown",
    "foundation/signposts.py": "a date in a file for people",
    "billing/operations/prices.py": "from when on a price holds, unless people say it",
    "billing/operations/egress.py": "likewise",
    "tenancy/management/expiry.py": DATES,
    "tenancy/api/authentication.py": DATES,
    "tenancy/models/people.py": DATES,
    "tenancy/operations/tokens.py": DATES,
    "tenancy/operations/access.py": DATES,
    "tenancy/operations/links.py": DATES,
    "tenancy/operations/bindings.py": DATES,
    "tenancy/queries/actors.py": DATES,
    "tenancy/queries/people.py": DATES,
    "tenancy/operations/sign_in_tries.py": "a window of minutes for guesses, in which nothing ends",
    "tenancy/operations/refusals.py": "minutes by which refusals are counted",
    "tenancy/operations/anchoring.py": "instants in lines that leave the database",
    "tenancy/operations/audit.py": "the instant is part of the entry's hash",
}
"""Modules that may ask the process's clock, and why."""


OWN_TIME = {"now", "monotonic_origin"}


def asks(module):
    """Lines that ask foundation's clock for the process's own time, however it was imported."""
    names = {
        alias.asname or alias.name
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom)
        and (node.module == "foundation.clock" or (node.level and node.module == "clock"))
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


def is_allowed(path):
    return name(path) in ALLOWED or name(path).startswith(tuple(f"{folder}/" for folder in FOLDERS))


def test_what_the_database_writes_is_compared_with_its_own_clock():
    strays = [f"{name(path)}:{line}" for path in files() if not is_allowed(path) for line in asks(tree(path))]
    assert not strays, f"use Now() in the statement, or foundation.clock.database_now(): {strays}"


def test_every_module_that_may_ask_its_own_clock_does():
    stale = {path for path in ALLOWED if not asks(tree(ROOT / path))}
    stale |= {folder for folder in FOLDERS if not any(asks(tree(path)) for path in files((folder,)))}
    assert not stale, f"they need no leave any more: {stale}"


@pytest.mark.parametrize(
    "text",
    [
        "from foundation import clock\nrows.filter(at__lt=clock.now())",
        "from foundation.clock import now\nrows.update(at=now())",
        "from foundation.clock import now as present\nlate = present() - row.at",
        "from .clock import now\nrows.filter(at__lt=now())",
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

"""The page on promises names all of them, with what holds each, and only tests and constraints that exist."""

import re

from .source import ROOT
from .test_trust import NAMED, TESTS, functions_of

PAGE = ROOT / "docs/explanation/promises.md"
ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| (constraint|fault|code) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
CONSTRAINT = re.compile(r"`([a-z][a-z0-9]*(?:_[a-z0-9]+)+)`")
PROMISES = 26
LEAST_HELD = 22


def rows():
    """(number, strength, what holds it, the tests)."""
    return [(int(number), held, by_what, tests) for number, _, held, by_what, tests in ROW.findall(PAGE.read_text())]


def test_every_promise_is_there_once_and_most_are_held_by_more_than_code():
    found = rows()
    assert [number for number, *_ in found] == list(range(1, PROMISES + 1))
    assert sum(held != "code" for _, held, *_ in found) >= LEAST_HELD


def test_every_test_that_attacks_a_promise_exists():
    for number, _, _, tests in rows():
        named = NAMED.findall(tests)
        assert named, f"promise {number} is attacked by no test"
        for file, test in named:
            assert (TESTS / file).is_file(), f"promise {number}: {file}"
            assert not test or test in functions_of(TESTS / file), f"promise {number}: {file}::{test}"


def test_every_constraint_that_holds_a_promise_exists():
    migrations = "\n".join(
        path.read_text() for pattern in ("*/migrations/0*", "*/sql/*.sql") for path in ROOT.glob(pattern)
    )
    for number, held, by_what, _ in rows():
        named = CONSTRAINT.findall(by_what)
        assert named or held != "constraint", f"promise {number} names no constraint"
        missing = [name for name in named if not re.search(rf"['\" ]{name}['\" \n]", migrations)]
        assert not missing, f"promise {number}: {missing}"

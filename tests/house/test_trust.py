"""The page on trust names tests that exist, has every section of the standard, and leaves no row without a proof."""

import ast
import re
from functools import cache

from .source import ROOT

PAGE = ROOT / "docs/explanation/trust.md"
TESTS = ROOT / "tests"
NAMED = re.compile(r"`([a-z_]+(?:/[a-z_0-9]+)*/test_[a-z_0-9]+\.py)(?:::(test_[a-z_0-9]+))?`")
SECTIONS = {
    1: 5,
    2: 4,
    3: 7,
    4: 4,
    5: 4,
    6: 8,
    7: 6,
    8: 4,
    9: 2,
    10: 7,
    11: 7,
    12: 3,
    13: 4,
    14: 3,
    15: 4,
    16: 5,
    17: 3,
}
"""Chapters of ASVS 5.0.0 and how many sections each has."""


@cache
def functions_of(path):
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def rows():
    """(chapter, section) → what is done, and the tests."""
    cells = re.findall(r"^\| V(\d+)\.(\d+) [^|]+\| ([^|]+)\| ([^|]+)\|$", PAGE.read_text(), re.MULTILINE)
    return {(int(chapter), int(section)): (done.strip(), tests.strip()) for chapter, section, done, tests in cells}


def test_every_test_that_the_page_names_exists():
    named = NAMED.findall(PAGE.read_text())
    assert len(named) > 100
    missing = [f"{file}::{test}" for file, test in named if not (TESTS / file).is_file()]
    missing += [
        f"{file}::{test}"
        for file, test in named
        if test and (TESTS / file).is_file() and test not in functions_of(TESTS / file)
    ]
    assert not missing, f"named in {PAGE.name} and not there; name the test that proves it now: {missing}"


def test_every_section_of_the_standard_has_a_row_with_what_is_done_and_by_which_tests():
    found = rows()
    wanted = {(chapter, section) for chapter, sections in SECTIONS.items() for section in range(1, sections + 1)}
    assert set(found) == wanted
    for place, (done, tests) in found.items():
        assert NAMED.search(tests), place
        assert not re.search(r"\bnot\b", done, re.IGNORECASE), (
            place,
            "say what is done, or that there is nothing to protect",
        )


def test_every_row_about_somebody_names_a_proof():
    text = PAGE.read_text().split("## ASVS 5.0")[0]
    for line in text.splitlines():
        if line.startswith("| ") and not line.startswith(("| May not |", "| Who holds |", "| Done |")):
            assert "::test_" in line or NAMED.search(line), line


def test_everybody_on_the_page_has_a_word_on_what_remains():
    for part in re.split(r"^### ", PAGE.read_text().split("## ASVS 5.0")[0], flags=re.MULTILINE)[1:]:
        assert "**Remains.**" in part, part.splitlines()[0]

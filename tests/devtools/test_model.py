"""The protocol model is about this code: each guard and each step names functions that exist, and the page lists them."""

import importlib
import re

import pytest

from devtools.model import CRATE
from tests.house.source import ROOT

PAGE = (ROOT / "docs/explanation/the-protocol-model.md").read_text()
GUARD = re.compile(r'\(\s*Guard::\w+,\s*"(\w+)",\s*"([^"]+)",\s*"([\w.]+)",?\s*\)')
GUARDS = [match for name in ("guards.rs", "leases.rs") for match in GUARD.findall((CRATE / "src" / name).read_text())]
STEPS = re.search(r"pub enum Step \{(.*?)\n\}", (CRATE / "src/model.rs").read_text(), re.DOTALL)
MODULES = {"locks": "federation.locks", "queries": "federation.queries", "metering": "federation.queries.metering"}


def exists(path):
    """Whether a dotted path names a module and something in it."""
    parts = path.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return True
    return False


def test_the_program_prints_the_figures_that_the_page_names():
    printed = set(re.findall(r'\\"(\w+)\\":', (CRATE / "src/main.rs").read_text()))
    named = {"model_states", "breaks", "mutants", "mutants_caught"}
    assert named <= printed
    assert all(f"`{name}`" in PAGE for name in named)


def test_there_are_guards():
    assert len(GUARDS) > 30


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard[0])
def test_a_guard_is_in_the_code_and_on_the_page(guard):
    name, mutant, code = guard
    assert exists(code)
    assert f"| `{name}` | {mutant} | `{code}` |" in PAGE


def test_each_step_has_its_code():
    rows = dict(re.findall(r"^\| (`[A-Z][^|]*) \| (.*) \|$", PAGE, re.MULTILINE))
    steps = set(re.findall(r"^    (\w+)", STEPS[1], re.MULTILINE))
    assert steps - {"Save"} == {step for row in rows for step in re.findall(r"`(\w+)`", row)}
    for code in rows.values():
        for module, function in re.findall(r"`(\w+)\.(\w+)`", code):
            if function not in ("claimed_attempts", "rs"):
                assert exists(f"{MODULES.get(module, f'federation.operations.{module}')}.{function}")

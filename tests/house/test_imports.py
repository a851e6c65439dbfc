"""The storeys and layers of the house, held by import-linter; planted faults show that it looks."""

import shutil
import subprocess
import sys
import tomllib

import pytest

from devtools.check import PLACEHOLDERS

from .linting import linter
from .source import PRODUCT, ROOT


def contracts() -> list[dict[str, str]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return settings["tool"]["importlinter"]["contracts"]


@pytest.fixture(scope="module")
def lint():
    with linter() as run:
        yield run


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    copy = tmp_path_factory.mktemp("house")
    shutil.copy(ROOT / "pyproject.toml", copy)
    for folder in (*PRODUCT, "devtools"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def test_every_import_goes_down(lint, house):
    code, said = lint(house)
    assert code == 0, said


@pytest.mark.parametrize(
    ("where", "text", "contract"),
    [
        ("tenancy/queries.py", "import quotas.models", "Storeys"),
        ("foundation/clock.py", "import tenancy.models", "Storeys"),
        ("billing/models.py", "import config.settings", "Storeys"),
        ("tenancy/queries.py", "import tenancy.operations", "Layers"),
        ("tenancy/operations/tokens.py", "import tenancy.api.views", "Layers"),
        ("quotas/utils.py", "", "Layers"),
        ("tenancy/engine/roles.py", "import django.db", "Engines are pure"),
        ("billing/queries/__init__.py", "import placement.values.model", "Storeys"),
        ("placement/answers/quotes.py", "import federation.engine.names", "Storeys"),
        ("placement/answers/quotes.py", "import simulator.world", "Storeys"),
        ("simulator/world.py", "import federation.engine.names", "Storeys"),
        ("placement/cycle/cycle.py", "import placement.answers.quotes", "Floors"),
        ("placement/ranking/contest.py", "import placement.cycle.timeline", "Floors"),
        ("placement/fleet/pools.py", "import placement.ranking.candidates", "Floors"),
        ("placement/values/model.py", "import placement.fleet.pools", "Floors"),
        ("placement/queues.py", "", "Floors"),
        ("devtools/simulation/core/loop.py", "import devtools.simulation.clusters.link", "Simulation"),
        ("devtools/simulation/judges/waits.py", "import devtools.simulation.worlds.world", "Simulation"),
        ("devtools/simulation/strays.py", "", "Simulation"),
        ("placement/fleet/prices.py", "import billing.models", "Placement sees only engines"),
        ("placement/fleet/limits.py", "import quotas.queries", "Placement sees only engines"),
        ("placement/values/model.py", "import foundation.clock", "Placement sees only engines"),
        ("placement/cycle/heads.py", "import random", "Engines are pure"),
        ("simulator/world.py", "import time", "Engines are pure"),
        ("placement/fleet/pools.py", "import placement.fleet.fleet", "No cycles"),
    ],
)
def test_a_planted_fault_is_caught(lint, house, where, text, contract):
    path = house / where
    before = path.read_text() if path.exists() else None
    path.write_text(f"{before or ''}\n{text}\n")
    try:
        code, said = lint(house)
    finally:
        path.write_text(before) if before is not None else path.unlink()
    assert code == 1
    assert any(line.startswith(contract) and line.rstrip().endswith("BROKEN") for line in said.splitlines()), said
    [advice] = [each["broken_contract_guidance"] for each in contracts() if each["name"].startswith(contract)]
    assert " ".join(advice.split()) in " ".join(said.split()), "the report says how to put it right"


def test_every_contract_says_how_to_put_it_right():
    assert [each["name"] for each in contracts() if not each.get("broken_contract_guidance")] == []


def test_commands_and_the_bell_start_without_what_only_placement_needs():
    """numpy takes a sixth of their start. What the settings, the models and the bell import must not bring it."""
    script = (
        "import django, sys; django.setup(); import foundation.management.commands.beat, tenancy.management.commands.bootstrap;"
        " print('numpy' in sys.modules, 'aiohttp' in sys.modules)"
    )
    environment = {**PLACEHOLDERS, "DJANGO_SETTINGS_MODULE": "config.settings"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False False\n"

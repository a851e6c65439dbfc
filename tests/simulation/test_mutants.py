"""Each defect can be put in: the guard that it takes away is still there. The page names each with what was found."""

import json
import re
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from devtools.model import CRATE
from devtools.simulation import mutants
from tests.house.source import ROOT

PAGE = (ROOT / "docs/explanation/never-twice.md").read_text()
ROW = re.compile(r"^\| `(\w+)`[^|]*\|([^|]*)\|([^|]*)\|([^|]*)\|(?: `(\w+)`)? \|$", re.MULTILINE)
ROWS = {name: (seed.strip(), guard) for name, seed, _cpu, _promise, guard in ROW.findall(PAGE)}
COVERED = dict(re.findall(r"^\| (both|the [^|]*) \| (`[^|]*) \|$", PAGE, re.MULTILINE))
GUARDS = {
    guard
    for name in ("guards.rs", "leases.rs")
    for guard in re.findall(r'\(\s*Guard::\w+,\s*"(\w+)"', (CRATE / "src" / name).read_text())
}


def named(text):
    return set(re.findall(r"`(\w+)`", text))


@pytest.mark.parametrize("name", mutants.names())
def test_the_guard_that_a_mutant_takes_away_is_there(name, monkeypatch):
    monkeypatch.setattr(mutants, "_execute", lambda statement: None)
    with mutants.put_in(name):
        pass


def test_the_page_has_a_row_for_each_defect_with_the_guard_of_the_model():
    assert {name: guard for name, (_, guard) in ROWS.items()} == {
        name: mutants.MUTANTS[name].guard for name in mutants.names()
    }
    assert all(mutants.MUTANTS[name].does for name in mutants.names())


def test_the_page_says_which_guards_are_caught_by_what():
    found = {guard for seed, guard in ROWS.values() if guard and not seed.startswith("not")}
    tried = {guard for _, guard in ROWS.values() if guard}
    assert named(COVERED["both"]) == found
    assert len(found) >= 15
    assert named(COVERED["the model; tried in the simulation and not found"]) == tried - found
    assert named(COVERED["the model; not tried in the simulation"]) == GUARDS - tried


class Runner:
    """Stands for the simulation: seeds 3 and 5 break a promise."""

    def __init__(self):
        self.swarm, self.ran = None, []

    def cpu_seconds(self):
        return 0.5 * len(self.ran), 0.25 * len(self.ran)

    def run(self, seed, size, history=None):
        # Django must be set up before the gateway is imported, so this is not at the top.
        from devtools.simulation.run import Result  # noqa: PLC0415

        self.ran.append(seed)
        breaks = ["promise_8_what_the_gateway_stops_has_ended: it ran"] if seed in (3, 5) else []
        return Result(seed, size, breaks=breaks, timeline=["one", "two"], steps=70, faults=Counter(lost=1))


def a_runner():
    return Runner()


def wanted(**more):
    told = {
        "mutant": "recalls_without_asking", "sound": True, "drawn": False, "history": None, "timeline": False, "shrink": False,
        "first": 1, "seeds": 10, "seconds": float("inf"), "through": False, "table": False, "jobs": "", "only": "",
        "without": "", "spared": "", "alone": False, "until": 0.0, "scale": "", "turns": "", "absent": "", "one_cluster": False,
        "cut": False,
    }  # fmt: skip
    return SimpleNamespace(**told | more)


def test_a_hunt_stops_at_the_first_find_and_prints_the_row_of_the_page(capsys):
    from devtools.simulation.hunt import hunt  # noqa: PLC0415 - likewise

    runner = a_runner()
    assert hunt(runner, wanted(table=True), shrink_seconds=1) == {"mutants": 1, "mutants_caught": 1}
    assert runner.ran == [1, 2, 3]
    lines = capsys.readouterr().out.splitlines()
    figures = json.loads(lines[0].partition(" ")[2])
    assert (figures["seed"], figures["seeds"], figures["finds"], figures["cpu_seconds"]) == (3, 3, 1, 2.2)
    row = ROW.fullmatch(lines[-1])
    assert row is not None, lines[-1]
    assert row.groups() == ("recalls_without_asking", " 3 ", " 2.2 ", " 8 ", "recall_looks_at_pods")


def test_a_hunt_to_the_end_counts_all_finds(capsys):
    from devtools.simulation.hunt import hunt  # noqa: PLC0415 - likewise

    assert hunt(a_runner(), wanted(through=True), shrink_seconds=1)["mutants_caught"] == 1
    figures = json.loads(capsys.readouterr().out.splitlines()[0].partition(" ")[2])
    assert (figures["seeds"], figures["finds"], figures["seed"]) == (10, 2, 3)


def test_a_defect_that_no_seed_finds_is_none_that_was_caught(capsys):
    from devtools.simulation.hunt import hunt  # noqa: PLC0415 - likewise

    assert hunt(a_runner(), wanted(first=6, seeds=2, table=True), shrink_seconds=1) == {
        "mutants": 1,
        "mutants_caught": 0,
    }
    row = ROW.fullmatch(capsys.readouterr().out.splitlines()[-1])
    assert row is not None
    assert row.group(2) == " not in 2 "


def test_a_small_run_is_one_in_which_the_gateway_without_the_defect_keeps_the_promise(monkeypatch, capsys):
    from devtools.simulation import hunt  # noqa: PLC0415 - likewise
    from devtools.simulation.swarm import ANY  # noqa: PLC0415

    sound = [False]

    @contextmanager
    def put_in(_name, *, is_sound=False):
        sound[:] = [is_sound]
        yield ANY

    class World(Runner):
        """Without an observer, no gateway keeps the promise."""

        def run(self, seed, size, history=None):
            result = super().run(seed, size, history)
            if sound[0] and "observer" not in size.absent:
                result.breaks.clear()
            return result

    def a_world():
        return World()

    monkeypatch.setattr(hunt, "put_in", put_in)
    hunt.hunt(a_world(), wanted(sound=False, first=3, shrink=True), shrink_seconds=10)
    lines = capsys.readouterr().out.splitlines()
    figures = json.loads(next(line for line in lines if "cpu_seconds" in line).partition(" ")[2])
    assert figures["found"]
    assert "--absent operator,bell,worker" in figures["size"]

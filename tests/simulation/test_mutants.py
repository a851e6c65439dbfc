"""Each defect can be put in: the guard that it takes away is still there. The page names each with what was found."""

import json
import re
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from devtools.model import CRATE
from devtools.simulation import mutants
from devtools.simulation.seeds.resumed import Resumed
from devtools.simulation.setting.size import Size
from tests.house.source import ROOT

PAGE = (ROOT / "docs/reference/simulated-defects.md").read_text()
ROW = re.compile(r"^\| `(\w+)`[^|]*\|([^|]*)\|([^|]*)\|([^|]*)\|(?: `(\w+)`)? \|$", re.MULTILINE)
ROWS = {name: (seed.strip(), guard) for name, seed, _cpu, _promise, guard in ROW.findall(PAGE)}
SMALL = re.compile(r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| `([^`|]*)` \|$", re.MULTILINE)
COVERED = dict(re.findall(r"^\| (both|the [^|]*) \| (`[^|]*) \|$", PAGE, re.MULTILINE))
GUARDS = {
    guard
    for name in ("guards.rs", "leases.rs")
    for guard in re.findall(r'\(\s*Guard::\w+,\s*"(\w+)"', (CRATE / "src" / name).read_text())
}


ENOUGH = 40


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
    assert named(COVERED.get("the model; tried in the simulation and not found", "")) == tried - found
    assert named(COVERED["the model; not tried in the simulation"]) == GUARDS - tried


def test_the_page_says_how_small_the_runs_became_and_how_they_are_repeated():
    rows = {name: (int(steps), size) for name, _, steps, _, _, size in SMALL.findall(PAGE)}
    assert len(rows) == len(SMALL.findall(PAGE))
    assert set(rows) <= set(mutants.names())
    assert all(Size.read(size).arguments() == size for _, size in rows.values())
    small = sum(steps <= ENOUGH for steps, _ in rows.values())
    assert f"{len(rows)} were made small, {small} of them to {ENOUGH} steps or fewer" in PAGE.replace("\n", " ")


class Runner:
    """Stands for the simulation: seeds 3 and 5 break a promise."""

    def __init__(self):
        self.swarm, self.ran = None, []

    def cpu_seconds(self):
        return 0.5 * len(self.ran), 0.25 * len(self.ran)

    def run(self, seed, size, history=None):
        # Django must be set up before the gateway is imported, so this is not at the top.
        from devtools.simulation.seeds.run import Result  # noqa: PLC0415

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
        "cut": False, "unwished": "", "undone": "", "small": False, "shrink_seconds": 10.0,
    }  # fmt: skip
    return SimpleNamespace(**told | more)


def hunted(capsys, runner, kept=None, **more):
    """The figures of a hunt, and what it printed of the defect, and in all."""
    # Django must be set up before the gateway is imported, so this is not at the top.
    from devtools.simulation.seeds.hunt import hunt  # noqa: PLC0415

    figures = hunt(runner, wanted(**more), kept)
    lines = capsys.readouterr().out.splitlines()
    told = next(line for line in lines if line.startswith("recalls_without_asking "))
    return figures, json.loads(told.partition(" ")[2]), lines


def test_a_hunt_stops_at_the_first_find_and_prints_the_row_of_the_page(capsys):
    runner = a_runner()
    figures, state, lines = hunted(capsys, runner, table=True)
    assert figures == {"mutants": 1, "mutants_caught": 1}
    assert runner.ran == [1, 2, 3]
    found = state["found"]
    assert (found["seed"], found["seeds"], found["finds"], found["cpu_seconds"]) == (3, 3, 1, 2.2)
    row = ROW.fullmatch(lines[-1])
    assert row is not None, lines[-1]
    assert row.groups() == ("recalls_without_asking", " 3 ", " 2.2 ", " 8 ", "recall_looks_at_pods")


def test_a_hunt_to_the_end_counts_all_finds(capsys):
    figures, state, _ = hunted(capsys, a_runner(), through=True)
    assert figures["mutants_caught"] == 1
    assert (state["found"]["seeds"], state["found"]["finds"], state["found"]["seed"]) == (10, 2, 3)


def test_a_defect_that_no_seed_finds_is_none_that_was_caught(capsys):
    figures, _, lines = hunted(capsys, a_runner(), first=6, seeds=2, table=True)
    assert figures == {"mutants": 1, "mutants_caught": 0}
    row = ROW.fullmatch(lines[-1])
    assert row is not None
    assert row.group(2) == " not in 2 "


class World(Runner):
    """Without an observer, no gateway keeps the promise. Each thing that is left out shortens the timeline."""

    def __init__(self, sound, length=60, seeds=(3, 5)):
        super().__init__()
        self.sound, self.length, self.seeds = sound, length, seeds

    def run(self, seed, size, history=None):
        result = super().run(seed, size, history)
        promise = "promise_8_what_the_gateway_stops_has_ended: it ran"
        is_broken = seed in self.seeds and (not self.sound[0] or "observer" in size.absent)
        result.breaks[:] = [promise] if is_broken else []
        result.timeline[:] = ["line"] * (self.length - 5 * len(size.absent) - seed)
        return result


@pytest.fixture
def sound(monkeypatch):
    """Whether the gateway is without the defect now."""
    from devtools.simulation.core.swarm import ANY  # noqa: PLC0415
    from devtools.simulation.seeds import hunt  # noqa: PLC0415 - likewise

    now = [False]

    @contextmanager
    def put_in(_name, *, is_sound=False):
        now[:] = [is_sound]
        yield ANY

    monkeypatch.setattr(hunt, "put_in", put_in)
    return now


def test_a_small_run_is_one_in_which_the_gateway_without_the_defect_keeps_the_promise(sound, capsys):
    runner = World(sound, length=70, seeds=(3,))
    figures, state, lines = hunted(capsys, runner, sound=False, first=3, shrink=True, table=True)
    assert figures == {"mutants": 1, "mutants_caught": 1, "small": 0}
    assert "--absent operator,bell,worker" in state["small"]["size"]
    assert (state["small"]["seed"], state["small"]["steps"]) == (3, 70 - 3 - 15)
    assert SMALL.fullmatch(lines[-1])


def test_when_a_find_stays_long_other_seeds_are_tried_in_small_worlds(sound, capsys):
    figures, state, _ = hunted(capsys, World(sound, length=58, seeds=(1, 4)), sound=False, shrink=True)
    assert figures == {"mutants": 1, "mutants_caught": 1, "small": 1}
    assert (state["found"]["seed"], state["small"]["seed"], state["small"]["steps"]) == (1, 4, 39)


def test_small_worlds_alone_are_tried_without_a_find_before(sound, capsys):
    runner = World(sound, length=50, seeds=(2,))
    figures, state, _ = hunted(capsys, runner, sound=False, small=True)
    assert figures == {"mutants": 1, "mutants_caught": 1, "small": 1}
    assert state["found"] is None
    assert state["small"]["seed"] == 2


def test_a_hunt_that_was_stopped_goes_on_where_it_was(sound, capsys, tmp_path):
    kept = Resumed(tmp_path / "states", "this code")
    _, before, _ = hunted(capsys, World(sound, length=90, seeds=(3,)), kept, sound=False, shrink=True, first=3, seeds=1)
    assert before["small"]["steps"] > ENOUGH
    again = World(sound, length=90, seeds=(3,))
    _, state, _ = hunted(capsys, again, kept, sound=False, shrink=True, first=3, seeds=1, shrink_seconds=0)
    assert state == before
    assert again.ran == [3, 3]  # with the defect and without it
    with pytest.raises(ValueError, match="another state of the code"):
        hunted(capsys, again, Resumed(tmp_path / "states", "other code"))


def test_small_runs_of_the_page_are_run_again(sound, monkeypatch, tmp_path):
    from devtools.simulation.seeds import hunt  # noqa: PLC0415 - likewise

    page = tmp_path / "page.md"
    rows = [("found", 3, 57), ("longer", 5, 41), ("missed", 4, 40)]
    page.write_text("\n".join(f"| `{name}` | {seed} | {steps} | 7 | 8 | `--jobs 0` |" for name, seed, steps in rows))
    monkeypatch.setattr(hunt, "PAGE", page)
    small: Any = World(sound, length=60)
    figures = hunt.find_small_again(small)
    assert figures == {"small": 3, "missed": ["missed"], "longer": ["longer", "missed"]}

"""Many seeds: side by side, stopped and resumed, and what they add up to."""

import json

import pytest

from devtools.simulation.__main__ import _end
from devtools.simulation.seeds.outcomes import Finished, Outcome, Tally, Wanted, run_seed


def outcome(seed, *, is_broken=False):
    return Outcome(seed, f"seed {seed}", 10, f"order-{seed % 2}", {"lost": 2}, seed % 100 == 0, is_broken, 1.5, 0.5)


def test_a_tally_adds_up_what_ran_now_and_before():
    said = []
    tally = Tally(said.append)
    tally.add(outcome(1), is_fresh=False)
    tally.add(outcome(2, is_broken=True))
    tally.add(outcome(100))
    figures = tally.figures()
    assert said == ["seed 2", "seed 100"]
    assert (figures["seeds"], figures["first"], figures["last"]) == (3, 1, 100)
    assert (figures["breaks"], figures["broken"]) == (1, [2])
    assert (figures["steps"], figures["faults"]) == (30, {"lost": 6})
    assert (figures["cpu_seconds_per_seed"], figures["database_cpu_seconds_per_seed"]) == (1.5, 0.5)
    assert (figures["dispatch_interleavings"], figures["repeated"]) == (2, 1)


def test_kept_seeds_are_none_of_the_range():
    tally = Tally(lambda _line: None)
    tally.add(outcome(8), is_kept=True)
    tally.add(outcome(300))
    tally.add(outcome(301))
    figures = tally.figures()
    assert (figures["seeds"], figures["first"], figures["last"]) == (3, 300, 301)


def test_seeds_that_ran_are_read_again_also_if_the_last_line_was_cut_off(tmp_path):
    file = tmp_path / "seeds.jsonl"
    finished = Finished(file, "this code")
    assert list(finished.read()) == []
    finished.add(outcome(1))
    finished.add(outcome(2))
    with file.open("a") as out:
        out.write('\n{"seed": 3, "li')
    assert list(Finished(file, "this code").read()) == [outcome(1), outcome(2)]
    Finished(file, "this code").add(outcome(4))
    assert list(Finished(file, "this code").read()) == [outcome(1), outcome(2), outcome(4)]


def test_seeds_of_another_state_of_the_code_do_not_count(tmp_path):
    Finished(tmp_path / "seeds.jsonl", "this code").add(outcome(1))
    with pytest.raises(ValueError, match="another state of the code"):
        list(Finished(tmp_path / "seeds.jsonl", "other code").read())


class Runner:
    """Stands for the simulation: each run of a seed has the next of these hashes."""

    def __init__(self, *digests):
        self.digests, self.ran = list(digests), []

    def cpu_seconds(self):
        return len(self.ran), 2.0 * len(self.ran)

    def run(self, seed, size, history=None):
        self.ran.append(seed)
        # Django must be set up before the gateway is imported, so this is not at the top.
        from devtools.simulation.seeds.run import Result  # noqa: PLC0415

        return Result(seed, size, self.digests.pop(0) if self.digests else "the same")


def a_runner(*digests):
    return Runner(*digests)


def test_every_hundredth_seed_runs_twice():
    runner = a_runner()
    outcomes = [run_seed(runner, seed, Wanted()) for seed in range(99, 302)]
    assert [seed for seed in range(99, 302) if runner.ran.count(seed) == 2] == [100, 200, 300]
    assert [one.seed for one in outcomes if one.is_repeated] == [100, 200, 300]
    assert not any(one.is_broken for one in outcomes)
    assert {(one.cpu_seconds, one.database_cpu_seconds) for one in outcomes} == {(1.0, 2.0)}, (
        "the repetition does not count"
    )


def test_a_repetition_with_another_hash_is_a_broken_seed():
    outcome = run_seed(a_runner("one", "other"), 100, Wanted())
    assert outcome.is_broken
    assert any("the run differs from its repetition (one, other)" in line for line in outcome.shown)
    assert not run_seed(a_runner("one", "other"), 101, Wanted()).is_broken


def test_the_last_line_has_the_figures_that_the_page_names(capsys):
    tally = Tally(lambda _line: None)
    tally.add(outcome(1))
    assert _end(tally, {"percent": 93.0}) == 0
    figures = json.loads(capsys.readouterr().out)
    assert {"seeds", "seeds_per_second", "breaks", "steps", "coverage"} <= figures.keys()
    tally.add(outcome(2, is_broken=True))
    assert _end(tally, None) == 1

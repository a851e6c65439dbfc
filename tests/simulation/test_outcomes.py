"""Many seeds: side by side, stopped and resumed, and what they add up to."""

import pytest

from devtools.simulation.outcomes import Finished, Outcome, Tally


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

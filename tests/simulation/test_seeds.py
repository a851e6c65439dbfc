"""Seeds of mended defects and a range of others, in a separate process: the order of its sets is fixed."""

import sys

import pytest

from devtools.simulation.seeds.kept import KEPT
from devtools.simulation.seeds.outcomes import Finished

from .conftest import FIRST, SEEDS, simulate


def test_no_seed_breaks_a_promise(beside, capsys):
    figures = beside.figures
    with capsys.disabled():
        sys.stdout.write(
            f"simulated seeds {figures['first']} to {figures['last']}: {figures['breaks']} broke a promise\n"
        )
    assert figures["breaks"] == 0, beside.printed
    assert (figures["first"], figures["last"]) == (FIRST, FIRST + SEEDS - 1)
    assert figures["repeated"] >= 1, f"seed {FIRST} runs twice, and must be the same run both times"
    assert figures["steps"] > 1000
    assert {"seeds", "seeds_per_second", "cpu_seconds_per_seed", "database_cpu_seconds_per_seed"} <= figures.keys()


def test_a_guard_that_is_taken_away_is_found():
    figures, printed = simulate("--mutant", "released_before_it_is_committed", "--seeds", "10")
    assert figures == {"mutants": 1, "mutants_caught": 1}, printed


@pytest.mark.timeout(600)  # half a minute if the host is not busy
def test_each_kept_seed_finds_its_defect_when_that_is_put_back():
    figures, printed = simulate("--returned", within_seconds=580)
    assert figures == {"kept": len(KEPT), "missed": []}, printed


def digests(printed):
    """The digest of each run by its seed."""
    lines = [line.split() for line in printed.splitlines() if line.startswith("seed ")]
    return {words[1]: words[-1] for words in lines}


def test_processes_side_by_side_run_the_same_as_one_and_finished_seeds_do_not_run_again(beside):
    """The seed that runs alone is the first of its process; beside, others ran before it in the same one."""
    ran = {
        outcome.seed: outcome.steps
        for outcome in Finished(beside.file, beside.file.read_text().partition("\n")[0]).read()
    }
    seed = FIRST + 1
    some = ("--from", str(seed), "--seeds", "1")
    history = beside.histories[0].parent
    alone, printed = simulate(*some)
    assert digests(printed).items() <= digests(beside.printed).items()
    assert len(digests(printed)) == alone["seeds"] == 1
    assert alone["steps"] == ran[seed]
    again, printed = simulate(*some, "--resume", str(beside.file), "--history", str(history))
    assert digests(printed) == {}
    assert (again["seeds"], again["steps"]) == (len(ran), sum(ran.values()))
    assert (again["first"], again["last"]) == (beside.figures["first"], beside.figures["last"])

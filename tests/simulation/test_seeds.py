"""Seeds of mended defects and a range of others, in a separate process: the order of its sets is fixed."""

import json
import os
import subprocess
import sys

import pytest

from devtools.simulation.outcomes import Finished

FIRST = 700
SECONDS = 100
"""No further seed begins after this time."""


def simulate(*arguments):
    """The figures of a run of `make simulate`, and everything that it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    done = subprocess.run(
        [sys.executable, "-m", "devtools.simulation", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stdout


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """Kept seeds and a range, run by two processes: its figures, what it printed, and the file of the seeds that ran."""
    file = tmp_path_factory.mktemp("simulation") / "seeds.jsonl"
    wanted = ("--kept", "--from", str(FIRST), "--seeds", "40", "--processes", "2", "--seconds", str(SECONDS))
    return *simulate(*wanted, "--resume", str(file)), file


def test_no_seed_breaks_a_promise(beside, capsys):
    figures, printed, _ = beside
    with capsys.disabled():
        sys.stdout.write(
            f"simulated seeds {figures['first']} to {figures['last']}: {figures['breaks']} broke a promise\n"
        )
    assert figures["breaks"] == 0, printed
    assert figures["repeated"] >= 1, f"seed {FIRST} runs twice, and must be the same run both times"
    assert figures["steps"] > 1000


def test_a_guard_that_is_taken_away_is_found():
    figures, printed = simulate("--mutant", "released_before_it_is_committed", "--seeds", "10")
    assert figures == {"mutants": 1, "mutants_caught": 1}, printed


def digests(printed):
    """The digest of each run by its seed."""
    lines = [line.split() for line in printed.splitlines() if line.startswith("seed ")]
    return {words[1]: words[-1] for words in lines}


def test_processes_side_by_side_run_the_same_as_one_and_finished_seeds_do_not_run_again(beside):
    figures, printed_beside, file = beside
    ran = {outcome.seed: outcome.steps for outcome in Finished(file, file.read_text().partition("\n")[0]).read()}
    some = ("--from", str(FIRST), "--seeds", str(min(2, len(ran))))  # on a slow host the time may end after the first
    alone, printed = simulate(*some)
    assert digests(printed).items() <= digests(printed_beside).items()
    assert len(digests(printed)) == alone["seeds"] >= 1
    assert alone["steps"] == sum(ran[FIRST + number] for number in range(alone["seeds"]))
    again, printed = simulate(*some, "--resume", str(file))
    assert digests(printed) == {}
    assert (again["seeds"], again["steps"]) == (len(ran), sum(ran.values()))
    assert (again["first"], again["last"]) == (figures["first"], figures["last"])

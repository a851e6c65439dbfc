"""Seeds of mended defects and a range of others, in a separate process: the order of its sets is fixed."""

import json
import os
import subprocess
import sys

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


def test_no_seed_breaks_a_promise(capsys):
    wanted = ("--kept", "--from", "700", "--seeds", "40", "--processes", "2", "--seconds", str(SECONDS))
    figures, printed = simulate(*wanted)
    with capsys.disabled():
        sys.stdout.write(
            f"simulated seeds {figures['first']} to {figures['last']}: {figures['breaks']} broke a promise\n"
        )
    assert figures["breaks"] == 0, printed
    assert figures["repeated"] >= 1, "seed 700 runs twice, and must be the same run both times"
    assert figures["steps"] > 1000


def test_a_guard_that_is_taken_away_is_found():
    figures, printed = simulate("--mutant", "released_before_it_is_committed", "--seeds", "10")
    assert figures == {"mutants": 1, "mutants_caught": 1}, printed


def digests(printed):
    """The digest of each run by its seed."""
    lines = [line.split() for line in printed.splitlines() if line.startswith("seed ")]
    return {words[1]: words[-1] for words in lines}


def test_processes_side_by_side_run_the_same_as_one_and_finished_seeds_do_not_run_again(tmp_path):
    some = ("--from", "206", "--seeds", "2")
    resumed = (*some, "--resume", str(tmp_path / "seeds.jsonl"))
    _, alone = simulate(*some)
    beside, printed = simulate(*resumed, "--processes", "2")
    assert digests(printed) == digests(alone)
    assert len(digests(alone)) == 2
    again, printed = simulate(*resumed)
    assert digests(printed) == {}
    assert (again["seeds"], again["steps"]) == (beside["seeds"], beside["steps"])

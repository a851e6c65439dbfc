"""Seeds of mended defects and a few fresh ones, in a process of their own: the order of its sets is fixed."""

import json
import os
import subprocess
import sys

SECONDS = 120
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


def test_no_seed_breaks_a_promise():
    figures, printed = simulate("--kept", "--from", "100", "--seeds", "40", "--seconds", str(SECONDS))
    assert figures["breaks"] == 0, printed
    assert figures["repeated"] >= 1, "seed 100 runs twice, and must be the same run both times"
    assert figures["steps"] > 1000


def test_a_guard_that_is_taken_away_is_found():
    figures, printed = simulate("--mutant", "released_before_it_is_committed", "--seeds", "10")
    assert figures == {"mutants": 1, "mutants_caught": 1}, printed

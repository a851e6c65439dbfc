"""`make campaign MINUTES=120 SEED=1`, with ARGS="--trace FILE" for the load of a trace. Exit status: 0 if nothing was found."""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from benchmarks import report
from devtools.embedded import free_ports
from devtools.embedded.running import is_free
from devtools.localfleet import start_fleet, stop_fleet
from tests.faults.databases import Databases
from tests.faults.proxy import LyingProxy, Mischief
from tests.faults.stand import start_behind

from .judging import Outcome
from .load import from_trace
from .running import JOBS_A_SECOND, PACE_SECONDS, Ground, Wish, carry_out
from .schedule import FAULTS
from .talk import say

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130
AFTER_US = 'read -r word; [ "$word" = keep ] || { sleep 3; rm -rf "$1"; }'
"""Removes the folder when this process has ended, however it ended, unless it has said `keep`."""
METRICS_PORTS = 4
KEEP_FINISHED_SECONDS = "300"
"""How long ended Jobs stay on the clusters: by default longer than a short campaign, whose observer would only fill."""


class Interrupted(BaseException):
    """A signal asked it to end. None of those who expect failures of what is broken may take it for one."""


def _interrupt(number: int, _frame: FrameType | None) -> None:
    for other in STOPS:
        signal.signal(other, signal.SIG_IGN)
    raise Interrupted(signal.Signals(number).name)


def run(root: Path, wish: Wish) -> Outcome:
    """Everything is started in `root`, and ended whatever happens."""
    (root / "flags").mkdir()
    port = _ports_in_a_row(METRICS_PORTS)
    with ExitStack() as ending:
        planes = start_fleet(3, root / "fleet", audit=True)
        ending.callback(stop_fleet, planes)
        mischief = Mischief()
        proxies = {plane.name: LyingProxy(plane, mischief) for plane in planes}
        for proxy in proxies.values():
            ending.callback(proxy.close)
        databases = Databases(root / "databases")
        ending.callback(databases.close)
        stand = start_behind(
            root / "home",
            planes,
            proxies,
            databases,
            root / "flags",
            root / "skews.json",
            SWITCHYARD_METRICS_PORT=str(port),
            SWITCHYARD_KEEP_FINISHED_SECONDS=KEEP_FINISHED_SECONDS,
        )
        ending.callback(stand.gateway.stop)
        return carry_out(Ground(stand, mischief, root / "skews.json", port + 1), wish)


def _ports_in_a_row(count: int) -> int:
    while True:
        first = free_ports(1)[0]
        if all(is_free(first + n) for n in range(count)):
            return first


def main() -> int:
    """Exit status: 0 if nothing was found, 1 if something was, 130 if it was interrupted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pace", type=float, default=PACE_SECONDS, help="seconds between two faults")
    parser.add_argument("--rate", type=float, default=JOBS_A_SECOND, help="jobs a second")
    parser.add_argument("--trace", type=Path, help="the jobs' arrivals, sizes and durations; without it they are drawn")
    parser.add_argument("--without", action="append", default=[], choices=sorted(FAULTS), help="a fault to leave out")
    options = parser.parse_args()
    seconds = options.minutes * 60
    shapes = from_trace(options.trace, max(2, round(seconds * options.rate))) if options.trace else ()
    wish = Wish(seconds, options.seed, options.pace, options.rate, frozenset(options.without), shapes)
    report.conditions(nice=os.nice(0), trace=options.trace.name if options.trace else "drawn")
    for number in STOPS:
        signal.signal(number, _interrupt)
    root = Path(tempfile.mkdtemp(prefix="switchyard-campaign-", dir="/var/tmp"))
    root.chmod(0o755)
    began = time.monotonic()
    with subprocess.Popen(
        ["sh", "-c", AFTER_US, "sh", str(root)], stdin=subprocess.PIPE, start_new_session=True
    ) as cleaner:
        assert cleaner.stdin is not None
        try:
            outcome = run(root, wish)
        except Interrupted as word:
            say(f"interrupted by {word}")
            return INTERRUPTED
        except BaseException:
            cleaner.stdin.write(b"keep\n")
            say(f"logs are in {root}")
            raise
        if outcome.findings:
            cleaner.stdin.write(b"keep\n")
            say(f"logs are in {root}")
    say(f"took {(time.monotonic() - began) / 60:.1f} minutes in all")
    print(json.dumps({"campaign_minutes": options.minutes, "seed": options.seed, **outcome.figures}))
    return 1 if outcome.findings else 0


if __name__ == "__main__":
    sys.exit(main())

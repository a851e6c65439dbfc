"""`make simulate`: runs seeds and judges each. A seed that breaks a promise prints how to repeat it, and its timeline."""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from devtools.embedded import servers

from .database import Watch, configure, database
from .kept import KEPT
from .size import Size, add_arguments, size_of

if TYPE_CHECKING:
    from .run import Result, Runner

REPEATED_ONE_IN = 100
SHRINK_SECONDS = 300.0
LAST_LINES = 400


def main(arguments: list[str]) -> int:
    """Exit status: 1 if a seed broke something."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets must not differ between runs.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "devtools.simulation", *arguments])  # noqa: S606 - ourselves
    wanted = _parser().parse_args(arguments)
    with ExitStack() as stack:
        campaign = Campaign(_runner(stack), wanted)
        if wanted.mutant:
            print(json.dumps(campaign.run_mutants(wanted.mutant)), flush=True)
            return 0
        if wanted.kept:
            campaign.run_kept()
        campaign.run_range(wanted.first, wanted.seeds)
        print(json.dumps(campaign.figures()), flush=True)
        return int(campaign.breaks > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first seed")
    parser.add_argument("--kept", action="store_true", help="first the seeds of mended defects")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further seed after this time")
    parser.add_argument("--timeline", action="store_true", help="print the timeline of each seed")
    parser.add_argument("--history", type=Path, help="a folder for histories, as JSON lines")
    parser.add_argument("--shrink", action="store_true", help="make a failing seed smaller")
    parser.add_argument("--stop", action="store_true", help="stop at the first failing seed")
    parser.add_argument(
        "--mutant", default="", help="put this defect (or `all`, one at a time) into the gateway until a seed finds it"
    )
    add_arguments(parser)
    return parser


def _runner(stack: ExitStack) -> "Runner":
    """Ready to run seeds, on a database that the stack drops."""
    home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="switchyard-simulation-", dir="/var/tmp")))
    home.chmod(0o755)
    os.environ.setdefault("REDIS_URL", "redis://:none@127.0.0.1:1/0")  # no seed ever asks it
    server = stack.enter_context(servers(home, durable=False))["DATABASE_URL"]
    url = stack.enter_context(database(server, f"simulation_{os.getpid()}"))
    configure(url)
    from .run import Runner  # noqa: PLC0415 - it needs Django

    watch = Watch(url)
    stack.callback(watch.close)
    runner = Runner(watch)
    runner.set_up()
    return runner


class Campaign:
    """Many seeds, and what they add up to."""

    def __init__(self, runner: "Runner", wanted: argparse.Namespace) -> None:
        self._runner = runner
        self._wanted = wanted
        self._began = time.monotonic()
        self.ran: list[int] = []
        self.breaks = 0
        self.steps = 0
        self.faults: Counter[str] = Counter()
        self.repeated = 0
        self.interleavings: set[str] = set()

    def run_kept(self) -> None:
        """The seeds of mended defects."""
        for seed, size in KEPT:
            self._run(seed, size)

    def run_range(self, first: int, count: int) -> None:
        """Fresh seeds."""
        for seed in range(first, first + count):
            if time.monotonic() - self._began > self._wanted.seconds or (self._wanted.stop and self.breaks):
                return
            self._run(seed, size_of(self._wanted))

    def run_mutants(self, wanted: str) -> dict[str, object]:
        """Which seed finds which defect, by which promise."""
        from .mutants import MUTANTS, put_in  # noqa: PLC0415 - it needs Django

        found: dict[str, object] = {}
        names = list(MUTANTS) if wanted == "all" else wanted.split(",")
        for name in names:
            began, first = time.monotonic(), self._wanted.first
            with put_in(name):
                for seed in range(first, first + self._wanted.seeds):
                    result = self._runner.run(seed, size_of(self._wanted))
                    if result.breaks or time.monotonic() - began > self._wanted.seconds:
                        break
                result = self._smaller(result)
            told = {
                "after": seed - first + 1,
                "seed": seed,
                "by": sorted(result.broken_promises),
                "steps": result.steps,
                "faults": result.faults.total(),
                "size": result.size.arguments(),
            }
            found[name] = told if result.breaks else {"not found in": seed - first + 1}
            print(name, json.dumps(found[name]), flush=True)
        caught = sum("seed" in one for one in found.values() if isinstance(one, dict))
        return {"mutants": len(names), "mutants_caught": caught}

    def _run(self, seed: int, size: Size) -> None:
        result = self._runner.run(seed, size, history=self._wanted.history)
        if seed % REPEATED_ONE_IN == 0:
            self._repeat(result)
        self.ran.append(seed)
        self.steps += result.steps
        self.faults += result.faults
        self.interleavings.add(result.dispatch_digest)
        self.breaks += bool(result.breaks)
        print(result.line(), flush=True)
        result = self._smaller(result)
        if result.breaks or self._wanted.timeline:
            _show(result, print)

    def _smaller(self, result: "Result") -> "Result":
        """The failing run made smaller, if that is wanted."""
        if not result.breaks or not self._wanted.shrink:
            return result
        from .shrink import shrunk  # noqa: PLC0415 - it needs Django

        return shrunk(result, lambda smaller: self._runner.run(result.seed, smaller), seconds=SHRINK_SECONDS)

    def _repeat(self, result: "Result") -> None:
        """The same seed again must be the same run."""
        again = self._runner.run(result.seed, result.size)
        self.repeated += 1
        if again.digest != result.digest:
            result.breaks.append(f"simulation: the run differs from its repetition ({result.digest}, {again.digest})")

    def figures(self) -> dict[str, object]:
        """What was measured."""
        seconds = time.monotonic() - self._began
        return {
            "seeds": len(self.ran),
            "first": min(self.ran, default=0),
            "last": max(self.ran, default=0),
            "seeds_per_second": round(len(self.ran) / seconds, 2),
            "breaks": self.breaks,
            "steps": self.steps,
            "faults": dict(sorted(self.faults.items())),
            "dispatch_interleavings": len(self.interleavings),
            "repeated": self.repeated,
        }


def _show(result: "Result", out: Callable[[str], None]) -> None:
    """The timeline by actor, what was broken, and how to repeat it."""
    for line in result.timeline[-LAST_LINES:]:
        out(line)
    for line in result.breaks:
        out(line)
    arguments = result.size.arguments()
    again = f' ARGS="--timeline {arguments}"' if arguments else ' ARGS="--timeline"'
    out(f"again: make simulate SEEDS=1 FROM={result.seed}{again}")


if __name__ == "__main__":
    status = main(sys.argv[1:])
    with suppress(OSError):
        sys.stdout.flush()
    # Threads of runs that went wrong may still wait for their turn.
    os._exit(status)

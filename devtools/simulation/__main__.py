"""`make simulate`: runs seeds and judges each. A seed that breaks a promise prints how to repeat it, and its timeline."""

import argparse
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from devtools.simulation.core.database import Watch, configure, server, url_of
from devtools.simulation.seeds.crew import Crew, serve
from devtools.simulation.seeds.kept import KEPT
from devtools.simulation.seeds.lines import ROOT, Lines, figures_of
from devtools.simulation.seeds.outcomes import (
    REPEATED_ONE_IN,
    SHRINK_SECONDS,
    Finished,
    Outcome,
    Tally,
    Wanted,
    plain,
    run_seed,
)
from devtools.simulation.seeds.resumed import Resumed
from devtools.simulation.setting import migrated
from devtools.simulation.setting.size import add_arguments, size_of

if TYPE_CHECKING:
    from devtools.simulation.seeds.run import Runner

MEMORY = "/dev/shm"  # noqa: S108 - as below
"""A file system in memory: each run truncates every table, and so makes hundreds of files."""
FRESH, FRESH_RANGES = 1_000_000, 1_000_000
"""From which seed on the range begins that follows from the state of the code, and among how many beginnings it chooses."""
ROOMS = (
    "federation",
    "placement",
    "billing",
    "quotas",
    "clusters",
    "tenancy",
    "foundation",
    "config",
    "devtools/simulation",
)


def main(arguments: list[str]) -> int:
    """Exit status: 1 if a seed broke something."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets must not differ between runs.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "devtools.simulation", *arguments])  # noqa: S606 - ourselves
    asked = _parser().parse_args(arguments)
    if asked.fresh:
        asked.first = FRESH + REPEATED_ONE_IN * (int(_state_of_the_code()[:8], 16) % FRESH_RANGES)
    if asked.processes > 1:
        return _side_by_side(asked)
    with ExitStack() as stack:
        os.sched_setaffinity(0, {_processor() if asked.serve is None else asked.serve})
        if _has_finished(asked):
            return _end(_begun(asked)[0], None)
        lines = Lines() if asked.coverage else None
        if lines is not None:
            stack.enter_context(lines.counted())
        runner = _runner(stack)
        if asked.serve is not None:
            serve(runner, _wanted(asked), lines)
            return 0
        if asked.mutant or asked.returned or asked.again:
            print(plain(_hunted(runner, asked)), flush=True)
            return 0
        return _in_this_process(runner, asked, lines)


def _hunted(runner: "Runner", asked: argparse.Namespace) -> dict[str, object]:
    from devtools.simulation.seeds.hunt import find_again, find_small_again, hunt  # noqa: PLC0415 - they need Django

    if asked.mutant:
        return hunt(runner, asked, Resumed(asked.resume, _key(asked)))
    return find_again(runner) if asked.returned else find_small_again(runner)


def _in_this_process(runner: "Runner", asked: argparse.Namespace, lines: Lines | None) -> int:
    tally, finished = _begun(asked)
    for one in KEPT if asked.kept else ():
        tally.add(run_seed(runner, one.seed, Wanted(one.size)), is_kept=True)
    for seed in _seeds(asked, tally):
        _note(run_seed(runner, seed, _wanted(asked)), tally, finished)
    return _end(tally, None if lines is None else figures_of([lines.reached()]))


def _side_by_side(asked: argparse.Namespace) -> int:
    if asked.mutant:
        sys.exit("--mutant runs in one process")
    tally, finished = _begun(asked)
    crew = Crew(asked.processes, _passed_on(asked))
    kept = {one.seed: one.size for one in KEPT} if asked.kept else {}
    for outcome in crew.run(chain(kept.items(), ((seed, None) for seed in _seeds(asked, tally)))):
        if outcome.seed in kept:
            tally.add(outcome, is_kept=True)
        else:
            _note(outcome, tally, finished)
    return _end(tally, figures_of(crew.reached) if asked.coverage else None)


def _begun(asked: argparse.Namespace) -> tuple[Tally, Finished]:
    tally = Tally(lambda line: print(line, flush=True))
    finished = Finished(asked.resume, _key(asked))
    for outcome in finished.read():
        tally.add(outcome, is_fresh=False)
    return tally, finished


def _has_finished(asked: argparse.Namespace) -> bool:
    """Whether no seed is left to run: a database for it would be made in vain."""
    if asked.resume is None or asked.kept or asked.mutant or asked.coverage or asked.serve is not None:
        return False
    return next(_seeds(asked, _begun(asked)[0]), None) is None


def _note(outcome: Outcome, tally: Tally, finished: Finished) -> None:
    tally.add(outcome)
    finished.add(outcome)


def _end(tally: Tally, coverage: dict[str, object] | None) -> int:
    print(plain(tally.figures() | ({} if coverage is None else {"coverage": coverage})), flush=True)
    return int(tally.breaks > 0)


def _processor() -> int:
    """One of those that we may use: a run's threads and sessions hand over to each other, which is cheaper on one."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[os.getpid() % len(allowed)]


def _seeds(asked: argparse.Namespace, tally: Tally) -> Iterator[int]:
    """Those of the range that have not run."""
    for seed in range(asked.first, asked.first + asked.seeds):
        if tally.seconds > asked.seconds or (asked.stop and tally.breaks):
            return
        if seed not in tally.outcomes:
            yield seed


def _wanted(asked: argparse.Namespace) -> Wanted:
    return Wanted(size_of(asked), asked.history, asked.timeline, asked.shrink)


def _key(asked: argparse.Namespace) -> str:
    """What a file of finished work belongs to."""
    flags = [f"--{name}" for name in ("small", "drawn", "sound", "through") if asked.mutant and getattr(asked, name)]
    return f"{_state_of_the_code()} {' '.join([*_passed_on(asked), *flags])}"


def _passed_on(asked: argparse.Namespace) -> list[str]:
    """The arguments that say how each seed runs."""
    flags = [f"--{name}" for name in ("timeline", "shrink", "coverage") if getattr(asked, name)]
    history = [] if asked.history is None else ["--history", str(asked.history)]
    return [*flags, *history, *size_of(asked).arguments().split()]


def _state_of_the_code() -> str:
    """A hash of all that a seed's run follows from."""
    digest = hashlib.sha256()
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in {".py", ".sql"}:
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first seed")
    parser.add_argument(
        "--fresh", action="store_true", help="instead of --from: seeds that only this state of the code runs"
    )
    parser.add_argument("--processes", type=int, default=1, help="how many processes run seeds side by side")
    parser.add_argument("--resume", type=Path, help="a file of what was done: that is not done again")
    parser.add_argument("--kept", action="store_true", help="first the seeds of mended defects")
    parser.add_argument(
        "--returned", action="store_true", help="only the seeds of mended defects, each with its defect put back"
    )
    parser.add_argument("--again", action="store_true", help="only the small runs of simulated-defects.md, each once")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further seed after this time")
    parser.add_argument("--timeline", action="store_true", help="print the timeline of each seed")
    parser.add_argument("--history", type=Path, help="a folder for histories, as JSON lines")
    parser.add_argument("--shrink", action="store_true", help="make a failing seed smaller")
    parser.add_argument(
        "--shrink-seconds", type=float, default=SHRINK_SECONDS, help="with --shrink or --small: processor time for each"
    )
    parser.add_argument(
        "--small",
        action="store_true",
        help="with --mutant: look for it in the smallest worlds only, and make those small",
    )
    parser.add_argument(
        "--coverage", action="store_true", help="count which lines of the gateway's writers ran; slower"
    )
    parser.add_argument("--stop", action="store_true", help="stop at the first failing seed")
    parser.add_argument(
        "--mutant", default="", help="put this defect (or `all`, one at a time) into the gateway until a seed finds it"
    )
    parser.add_argument("--sound", action="store_true", help="with the faults of --mutant, without the defect")
    parser.add_argument(
        "--drawn", action="store_true", help="look for --mutant among all that seeds draw, not in its own swarm"
    )
    parser.add_argument(
        "--through", action="store_true", help="with --mutant: do not stop at the first find, count all"
    )
    parser.add_argument("--table", action="store_true", help="with --mutant: also print the table of the page")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    add_arguments(parser)
    return parser


def _runner(stack: ExitStack) -> "Runner":
    """Ready to run seeds, on a database that the stack removes."""
    folder = MEMORY if os.access(MEMORY, os.W_OK) else "/var/tmp"  # noqa: S108 - TemporaryDirectory makes the name
    home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="switchyard-simulation-", dir=folder)))
    home.chmod(0o755)
    os.environ.setdefault("REDIS_URL", "redis://:none@127.0.0.1:1/0")  # no seed ever asks it
    migrated.fill(home)
    url = url_of(stack.enter_context(server(home)))
    configure(url)
    from devtools.simulation.seeds.run import Runner  # noqa: PLC0415 - it needs Django

    watch = Watch(url)
    stack.callback(watch.close)
    runner = Runner(watch)
    runner.set_up()
    return runner


if __name__ == "__main__":
    status = main(sys.argv[1:])
    with suppress(OSError):
        sys.stdout.flush()
    # Threads of runs that went wrong may still wait for their turn.
    os._exit(status)

"""`manage.py replay`: repeats recorded decisions, or replays a trace of jobs through the engine in virtual time."""

import gzip
import os
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from foundation import clock, strict_json
from foundation.files import write_whole
from placement.answers.recording import RecordingError, decisions_text, snapshot_of
from placement.cycle.cycle import decide
from placement.cycle.ordering import ORDERS
from placement.values.model import LEVELS, Topology
from placement.values.strategies import STRATEGIES
from simulator.compared import COMPARED, NAMES
from simulator.exports import csv_text, json_text, table
from simulator.figures import Figures
from simulator.fleetfile import read_fleet
from simulator.gateways import EngineGateway, Gateway
from simulator.report import html_page
from simulator.shares import FairShareRule
from simulator.simulation import replay
from simulator.traces import Shaping, compressed, read_trace
from simulator.values import HOUR, MEMBERS, ClusterPlan, Conditions, Failures, ReplayError, TraceJob

EPILOG = """
Formats of fleet files and traces, and the meaning of the figures: docs/howto/replay.md. Exit codes: 0 done, 1 a file cannot be
read or written, 2 wrong arguments, 130 interrupted; exports are written completely or not at all.
"""
TELL_SECONDS = 2.0
INTERRUPTED = 130
MEBIBYTE = 2**20


class Command(BaseCommand):
    help = (
        "With --snapshot: repeats the decisions of a recorded cycle, byte for byte (`manage.py snapshot` wrote the file). "
        "With --fleet and --trace: runs the engine in virtual time and reports waits, use, cost, fragmentation, topology and "
        "lost work. Needs no database." + EPILOG
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--snapshot", metavar="FILE", help="a file that `manage.py snapshot` wrote")
        parser.add_argument(
            "--out", metavar="FILE", default="-", help="where to write its decisions; `-` (the default) prints them"
        )
        parser.add_argument("--fleet", metavar="FILE", help="clusters as YAML")
        parser.add_argument("--trace", metavar="FILE", help="jobs as CSV, plain or .gz; `-` reads standard input")
        for add in (_add_gateway, _add_world, _add_trace, _add_exports):
            add(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        if bool(options["snapshot"]) == bool(options["fleet"] or options["trace"]):
            raise CommandError("give --snapshot, or --fleet and --trace", returncode=2)
        if options["snapshot"]:
            text = decisions_text(decide(_snapshot(options["snapshot"])))
            if options["out"] == "-":
                self.stdout.write(text.decode(), ending="")
            else:
                _write({options["out"]: text})
            return
        if not (options["fleet"] and options["trace"]):
            raise CommandError("--fleet and --trace must be used together", returncode=2)
        self._replay(options)

    def _replay(self, options: dict[str, Any]) -> None:
        conditions = _conditions(options)
        plans = _plans(options)
        jobs = _jobs(options, plans)
        exports = {kind: options[kind] for kind in ("json", "csv", "html") if options[kind]}
        _check_folders(exports.values())
        told = _told(options, plans)
        found: list[Figures] = []
        try:
            for gateway in _gateways(options):
                progress = None if options["quiet"] else _Progress(gateway.name)
                found.append(replay(plans, jobs, gateway, conditions, progress))
        except KeyboardInterrupt:
            raise CommandError("stopped; nothing was written", returncode=INTERRUPTED) from None
        texts = {"json": json_text, "html": html_page}
        made = {name: csv_text(found) if kind == "csv" else texts[kind](found, told) for kind, name in exports.items()}
        _write(made)
        self.stdout.write(table(found), ending="")


def _add_gateway(parser: CommandParser) -> None:
    group = parser.add_argument_group("scheduler")
    group.add_argument("--gateway", nargs="+", choices=NAMES, default=["switchyard"], metavar="NAME",
                       help=f"one or more to compare: {', '.join(NAMES)}")  # fmt: skip
    group.add_argument(
        "--strategy", choices=sorted(STRATEGIES), default="balanced", help="strategy of all jobs (default balanced)"
    )
    group.add_argument(
        "--order", choices=ORDERS, default=ORDERS[0], help="order of the queue, like SWITCHYARD_QUEUE_ORDER"
    )
    group.add_argument("--no-fair-share", action="store_true",
                       help="jobs of all tenants in one order, like SWITCHYARD_FAIR_SHARE=off")  # fmt: skip
    group.add_argument("--weight", type=_weight, nargs="+", default=[], metavar="TENANT=WEIGHT",
                       help="weights of tenants (default 1)")  # fmt: skip
    group.add_argument("--half-life-hours", type=_half_life, default=24.0, metavar="H", help="of past use (default 24)")
    group.add_argument(
        "--past-strength", type=_positive, default=1.0, metavar="N", help="what past use counts (default 1)"
    )
    group.add_argument(
        "--level", choices=LEVELS, default="rack", help="topology level that a gang should stay inside (default rack)"
    )
    group.add_argument("--required", action="store_true", help="a gang must stay inside that level")
    group.add_argument(
        "--patience-seconds", type=int, metavar="S", help="nodes are kept for a job that has waited this long"
    )


def _add_world(parser: CommandParser) -> None:
    group = parser.add_argument_group("conditions")
    group.add_argument("--member", choices=MEMBERS, help="how all clusters pick nodes (overrides the fleet file)")
    group.add_argument("--no-hints", action="store_true", help="clusters ignore the nodes that the gateway suggests")
    group.add_argument("--summary-seconds", type=_positive, default=0.0, metavar="S",
                       help="maximum age of the gateway's view of a cluster (default 0: it sees changes immediately)")  # fmt: skip
    group.add_argument(
        "--cycle-seconds", type=_positive, default=0.0, metavar="S", help="minimum time between decisions"
    )
    group.add_argument("--fail-every-hours", type=_positive, metavar="H", help="a node fails every H hours")
    group.add_argument(
        "--repair-hours",
        type=_positive,
        default=12.0,
        metavar="H",
        help="time until a failed node is back (default 12)",
    )
    group.add_argument("--checkpoint-hours", type=_positive, default=0.0, metavar="H",
                       help="checkpoint interval of jobs that give none (default: they restart from the beginning)")  # fmt: skip
    group.add_argument(
        "--seed", type=_seed, default=1, metavar="N", help="random seed for reclaiming spot nodes (default 1)"
    )
    group.add_argument(
        "--reclaimed-minutes",
        type=_positive,
        default=10.0,
        metavar="M",
        help="time until a reclaimed node is back (default 10)",
    )
    group.add_argument(
        "--since-hours", type=_positive, default=0.0, metavar="H", help="start of the time that figures cover"
    )
    group.add_argument("--until-hours", type=_positive, metavar="H", help="its end (default: the last submission)")
    group.add_argument("--stop", action="store_true", help="stop at its end instead of running every job to its end")


def _add_trace(parser: CommandParser) -> None:
    group = parser.add_argument_group("reading the trace")
    group.add_argument("--limit", type=int, metavar="N", help="only the first N jobs")
    group.add_argument("--load", type=_positive, metavar="SHARE",
                       help="compress or stretch submissions to request this share of the fleet's GPU time")  # fmt: skip
    group.add_argument(
        "--gpus-per-node", type=int, default=8, metavar="N", help="Philly: jobs with more GPUs are gangs (default 8)"
    )
    group.add_argument("--cores-per-gpu", type=_positive, default=6.0, metavar="N", help="Philly: (default 6)")
    group.add_argument("--memory-gib-per-gpu", type=_positive, default=64.0, metavar="N", help="Philly: (default 64)")


def _add_exports(parser: CommandParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--json", metavar="FILE", help="all figures and curves")
    group.add_argument("--csv", metavar="FILE", help="one row per job; can be used as a trace")
    group.add_argument("--html", metavar="FILE", help="a self-contained report")
    group.add_argument("--quiet", action="store_true", help="show no progress")


def _positive(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e9:  # noqa: PLR2004 - also refuses NaN
        raise ValueError(text)
    return value


def _half_life(text: str) -> float:
    value = _positive(text)
    if value <= 0:
        raise ValueError(text)
    return value


def _weight(text: str) -> tuple[str, float]:
    path, _, number = text.rpartition("=")
    if not path:
        raise ValueError(text)
    return path, _half_life(number)


def _seed(text: str) -> int:
    value = int(text)
    if not 0 <= value < 2**63:
        raise ValueError(text)
    return value


class _Progress:
    """Prints the progress of a replay to standard error: one updated line on a terminal, else a
    line from time to time.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_terminal = sys.stderr.isatty()
        self._every = TELL_SECONDS / 10 if self._is_terminal else TELL_SECONDS * 5
        self._told = self._started = clock.monotonic()

    def __call__(self, through: int, jobs: int, now: float) -> None:
        if clock.monotonic() - self._told < self._every and through < jobs:
            return
        self._told = clock.monotonic()
        part = 100 * through // max(1, jobs)
        line = f"{self._name}: {through:,} of {jobs:,} jobs ({part} %), virtual day {now / 86_400:.1f}, {self._told - self._started:.0f} s"
        end = "\n" if not self._is_terminal or through >= jobs else ""
        print(f"\r{line:<78}" if self._is_terminal else line, end=end, file=sys.stderr, flush=True)


def _conditions(options: dict[str, Any]) -> Conditions:
    every = options["fail_every_hours"]
    if every == 0:
        raise CommandError("--fail-every-hours must be more than 0", returncode=2)
    if options["stop"] and options["until_hours"] is None:
        raise CommandError("--stop needs --until-hours", returncode=2)
    until = options["until_hours"]
    if until is not None and until <= options["since_hours"]:
        raise CommandError("--until-hours must be after --since-hours", returncode=2)
    failures = Failures(every * HOUR, options["repair_hours"] * HOUR) if every else None
    return Conditions(
        summary_seconds=options["summary_seconds"],
        cycle_seconds=options["cycle_seconds"],
        failures=failures,
        seed=options["seed"],
        reclaimed_seconds=options["reclaimed_minutes"] * 60,
        checkpoint_seconds=round(options["checkpoint_hours"] * HOUR) or None,
        since=options["since_hours"] * HOUR,
        until=None if until is None else until * HOUR,
        stops=options["stop"],
    )


def _gateways(options: dict[str, Any]) -> list[Gateway]:
    topology = Topology(options["level"], "required" if options["required"] else "preferred")
    rule = FairShareRule(dict(options["weight"]), options["half_life_hours"] * HOUR, options["past_strength"])
    fair_share = None if options["no_fair_share"] else rule
    engine = EngineGateway(options["strategy"], topology, options["patience_seconds"], options["order"], fair_share)
    return [COMPARED[name]() if name in COMPARED else engine for name in dict.fromkeys(options["gateway"])]


def _plans(options: dict[str, Any]) -> tuple[ClusterPlan, ...]:
    try:
        plans = read_fleet(options["fleet"], _text(options["fleet"]))
    except ReplayError as error:
        raise CommandError(str(error)) from error
    if options["member"]:
        plans = tuple(replace(plan, member=options["member"]) for plan in plans)
    if options["no_hints"]:
        plans = tuple(replace(plan, hints=False) for plan in plans)
    return plans


def _jobs(options: dict[str, Any], plans: tuple[ClusterPlan, ...]) -> tuple[TraceJob, ...]:
    for name in ("limit", "gpus_per_node"):
        if options[name] is not None and options[name] < 1:
            raise CommandError(f"--{name.replace('_', '-')} must be at least 1", returncode=2)
    shaping = Shaping(
        options["gpus_per_node"], int(options["cores_per_gpu"] * 1000), int(options["memory_gib_per_gpu"] * 1024)
    )
    try:
        jobs = read_trace(options["trace"], _text(options["trace"]), shaping)[: options["limit"]]
        gpus = sum(machine.gpus for plan in plans for machine in plan.machines)
        return compressed(jobs, gpus, options["load"]) if options["load"] else jobs
    except ReplayError as error:
        raise CommandError(str(error)) from error


def _text(name: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    except (OSError, EOFError, zlib.error) as error:
        raise CommandError(f"{name}: {getattr(error, 'strerror', None) or error}") from error
    except UnicodeDecodeError as error:
        told = "; for a .zst file, pipe `zstd -dc FILE` and give `-`" if raw[:4] == b"\x28\xb5\x2f\xfd" else ""
        raise CommandError(f"{name}: not UTF-8 text (byte {error.start}){told}") from error


def _snapshot(name: str) -> Any:
    try:
        return snapshot_of(strict_json.loads(Path(name).read_bytes()))
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror or error}") from error
    except (strict_json.MalformedJSON, RecordingError) as error:
        raise CommandError(f"{name}: {error}") from error


def _told(options: dict[str, Any], plans: tuple[ClusterPlan, ...]) -> dict[str, Any]:
    """The conditions to quote with the figures."""
    names = (
        "fleet", "trace", "strategy", "order", "level", "required", "patience_seconds", "summary_seconds", "cycle_seconds",
        "fail_every_hours", "repair_hours", "checkpoint_hours", "seed", "reclaimed_minutes", "since_hours", "until_hours", "stop", "limit", "load",
    )  # fmt: skip
    told = {name: options[name] for name in names if options[name] not in {None, False}}
    return {**told, "members": ", ".join(sorted({f"{p.member}{' with hints' * p.hints}" for p in plans}))}


def _check_folders(names: Any) -> None:
    """Refuses output that could not be written, before a long run instead of after it."""
    for name in names:
        folder = Path(name).parent
        if Path(name).is_dir() or not os.access(folder, os.W_OK):
            raise CommandError(f"{name}: cannot be written")


def _write(made: dict[str, bytes]) -> None:
    for name, text in made.items():
        try:
            write_whole(Path(name), text)
        except OSError as error:
            raise CommandError(f"{name}: {error.strerror or error}") from error

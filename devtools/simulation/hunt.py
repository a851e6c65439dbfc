"""Looks for defects that were put into the gateway, each with the faults that concern it."""

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .kept import KEPT
from .mutants import MUTANTS, names, put_in
from .report import show
from .run import Result, Runner
from .shrink import shrunk
from .size import Size, size_of
from .swarm import ANY, Swarm

SMALL_HEAD = "| Defect | Seed | Steps | Turns | Points | Repeated with |\n|---|---|---|---|---|---|"
HEAD = "| Defect | Seed | CPU s | Promise | Model |\n|---|---|---|---|---|"


@dataclass(frozen=True, slots=True)
class Hunted:
    """What became of the search for one defect."""

    name: str
    result: Result
    """The run that found it, made smaller if that was wanted; else the last one."""
    seeds: int
    finds: int
    cpu_seconds: float
    """Of all its runs, with PostgreSQL's, without those that make the find smaller."""

    @property
    def promises(self) -> str:
        """Which promises it breaks, or the judges that object beside these."""
        words = sorted({_promise(judge) for judge in self.result.broken_promises}, key=lambda word: (len(word), word))
        return ", ".join(words)

    def row(self) -> str:
        """Its row of the table in docs/explanation/never-twice.md."""
        mutant = MUTANTS[self.name]
        seed, promises = (self.result.seed, f"{self.promises} ") if self.finds else (f"not in {self.seeds}", "")
        guard = mutant.guard and f"`{mutant.guard}` "
        return f"| `{self.name}`: {mutant.does} | {seed} | {self.cpu_seconds:.1f} | {promises}| {guard}|"

    def small_row(self) -> str:
        """Its row of the table of runs that were made smaller."""
        one = self.result
        return f"| `{self.name}` | {one.seed} | {len(one.timeline)} | {one.switches} | {one.steps} | `{one.size.arguments()}` |"

    def figures(self) -> dict[str, Any]:
        """As JSON."""
        result = self.result
        told: dict[str, Any] = {"found": self.finds > 0, "seeds": self.seeds, "finds": self.finds, "seed": result.seed}
        told |= {"cpu_seconds": round(self.cpu_seconds, 1), "by": sorted(result.broken_promises)}
        told |= {"steps": result.steps, "events": len(result.timeline), "faults": result.faults.total()}
        return told | {"switches": result.switches, "size": result.size.arguments()}


def hunt(runner: Runner, wanted: argparse.Namespace, *, shrink_seconds: float) -> dict[str, object]:
    """Prints which seed finds which defect, by which promise; returns how many were found."""
    hunted = names() if wanted.mutant == "all" else wanted.mutant.split(",")
    caught, rows, small = 0, [HEAD], [SMALL_HEAD]
    for name in hunted:
        found = _hunt_one(name, runner, wanted, shrink_seconds)
        print(name, json.dumps(found.figures()), flush=True)
        caught += found.finds > 0
        rows.append(found.row())
        small += [found.small_row()] if wanted.shrink and found.finds else []
    if wanted.table:
        print("\n".join([*rows, *(small if wanted.shrink else ())]), flush=True)
    return {"mutants": len(hunted), "mutants_caught": caught}


def _hunt_one(name: str, runner: Runner, wanted: argparse.Namespace, shrink_seconds: float) -> Hunted:
    began, finds, first = sum(runner.cpu_seconds()), 0, None
    for seed in range(wanted.first, wanted.first + wanted.seeds):
        history = None if wanted.history is None else wanted.history / name
        result = _run(name, runner, wanted, seed, size_of(wanted), history)
        finds += is_found(result)
        first = result if first is None and is_found(result) else first
        is_enough = result.breaks and not wanted.through
        if is_enough or sum(runner.cpu_seconds()) - began > wanted.seconds:
            break
    seeds, used = seed - wanted.first + 1, sum(runner.cpu_seconds()) - began
    result = first or result
    if result.breaks and wanted.shrink:
        result = _made_small(name, runner, wanted, result, shrink_seconds)
    if (result.breaks and wanted.shrink) or wanted.timeline:
        show(result, print, name, is_sound=wanted.sound)
    return Hunted(name, result, seeds, finds, used)


def _run(
    name: str, runner: Runner, wanted: argparse.Namespace, seed: int, size: Size, history: Path | None = None
) -> Result:
    """Runs the seed in the swarm of the defect, with the defect unless the gateway shall stay sound."""
    with put_in(name, is_sound=wanted.sound) as swarm:
        runner.swarm = Swarm() if wanted.drawn else swarm  # not ANY itself: a broken run need not go on
        try:
            return runner.run(seed, size, history=history)
        finally:
            runner.swarm = ANY


def _made_small(name: str, runner: Runner, wanted: argparse.Namespace, first: Result, seconds: float) -> Result:
    """The smallest run in which the gateway breaks the promise with the defect, and keeps it without."""
    sound = argparse.Namespace(**vars(wanted) | {"sound": True})
    kept_without = set[tuple[bool, tuple[str, ...]]]()

    def attempt(size: Size) -> Result:
        result, lacks = _run(name, runner, wanted, first.seed, size), (size.one_cluster, size.absent)
        if wanted.sound or lacks in kept_without or not first.broken_promises & result.broken_promises:
            return result
        # A world that lacks too much breaks a promise without any defect: in it, the defect shows nothing.
        excused = _run(name, runner, sound, first.seed, size).broken_promises
        if first.broken_promises & (result.broken_promises - excused):
            kept_without.add(lacks)
        return replace(result, breaks=[line for line in result.breaks if line.partition(":")[0] not in excused])

    return shrunk(first, attempt, seconds=seconds)


def find_again(runner: Runner) -> dict[str, object]:
    """Runs each kept seed with the defect that it found; returns the seeds that do not find it any more."""
    missed = []
    for kept in KEPT:
        with put_in(kept.defect):
            result = runner.run(kept.seed, kept.size)
        print(kept.defect, result.line(), sorted(result.broken_promises), flush=True)
        missed += [] if is_found(result) else [kept.seed]
    return {"kept": len(KEPT), "missed": missed}


def is_found(result: Result) -> bool:
    """Whether a judge objects. A run that the simulation itself could not bring to its end, as on a busy host, finds nothing."""
    return bool(result.breaks) and "simulation" not in result.broken_promises


def _promise(judge: str) -> str:
    """The number of the promise that a judge is named by; another judge's own name."""
    first, _, rest = judge.partition("_")
    number = rest.partition("_")[0]
    return number if first == "promise" and number.isdigit() else judge.replace("_", " ")

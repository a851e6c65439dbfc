"""Looks for defects that were put into the gateway, each with the faults that concern it."""

import argparse
import json
import time
from typing import Any

from .mutants import names, put_in
from .report import show
from .run import Result, Runner
from .shrink import shrunk
from .size import size_of
from .swarm import ANY, Swarm


def hunt(runner: Runner, wanted: argparse.Namespace, *, shrink_seconds: float) -> dict[str, object]:
    """Prints which seed finds which defect, by which promise; returns how many were found."""
    hunted = names() if wanted.mutant == "all" else wanted.mutant.split(",")
    caught = 0
    for name in hunted:
        with put_in(name, is_sound=wanted.sound) as swarm:
            runner.swarm = Swarm() if wanted.drawn else swarm  # not ANY itself: a broken run need not go on
            try:
                caught += _is_caught(name, runner, wanted, shrink_seconds)
            finally:
                runner.swarm = ANY
    return {"mutants": len(hunted), "mutants_caught": caught}


def _is_caught(name: str, runner: Runner, wanted: argparse.Namespace, shrink_seconds: float) -> bool:
    used, first = time.process_time(), wanted.first
    for seed in range(first, first + wanted.seeds):
        history = None if wanted.history is None else wanted.history / name
        result = runner.run(seed, size_of(wanted), history=history)
        if result.breaks or time.process_time() - used > wanted.seconds:
            break
    told: dict[str, Any] = {"found": is_found(result), "seeds": seed - first + 1, "seed": seed}
    told |= {"cpu_seconds": round(time.process_time() - used, 1), "by": sorted(result.broken_promises)}
    if result.breaks and wanted.shrink:
        result = shrunk(result, lambda smaller: runner.run(result.seed, smaller), seconds=shrink_seconds)
    told |= {"steps": result.steps, "events": len(result.timeline), "faults": result.faults.total()}
    if (result.breaks and wanted.shrink) or wanted.timeline:
        show(result, print, name, is_sound=wanted.sound)
    print(name, json.dumps(told), flush=True)
    return is_found(result)


def is_found(result: Result) -> bool:
    """Whether a judge objects. A run that the simulation itself could not bring to its end, as on a busy host, finds nothing."""
    return bool(result.breaks) and "simulation" not in result.broken_promises

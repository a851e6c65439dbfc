"""The answers that clients got in a run, as a history for Porcupine: `devtools/porcupine` judges it without the code of the judges here."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devtools.porcupine.history import History, Operation
from devtools.simulation.core.history import Asked
from federation.engine.lifecycle import JOB_MOVES

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

NANOSECONDS_IN_A_MICROSECOND = 1000
UNTOLD = ("unknown", "forgotten")
"""Answers that never came, or that were lost with the database: the request may have been done or not."""


def write_told(world: "World", path: Path) -> None:
    """Submissions by key; cancellations and states by job, unless the database was put back: then states go back too."""
    kinds = {"submit"} if world.lost_commits.spans else {"submit", "cancel", "read"}
    asked = [one for one in world.history.asked if one.what in kinds]
    History(JOB_MOVES, operations=list(_operations(asked))).write(path)


def _operations(asked: list[Asked]) -> Iterator[Operation]:
    for number, one in enumerate(asked):
        is_told = one.answer not in UNTOLD and one.replayed is not None
        answer = _answer(one) if is_told else None
        if is_told and answer is None:
            continue  # it was refused, and so nothing was done
        yield Operation(
            "submit" if one.what == "submit" else "job",
            one.subject,
            number,  # a client that was never answered asks as another one
            one.what,
            {"body": one.subject} if one.what == "submit" else {},
            one.from_us * NANOSECONDS_IN_A_MICROSECOND,
            one.to_us * NANOSECONDS_IN_A_MICROSECOND if answer else None,
            answer,
        )


def _answer(one: Asked) -> dict[str, Any] | None:
    if one.what == "submit" and one.answer == "ok":
        return {"job": one.told, "replayed": one.replayed}
    if one.what == "submit":
        return {"refused": "in_progress"} if str(one.told).startswith("idempotency_in_progress") else None
    if one.answer == "ok":
        return {"state": str(one.told)}
    if str(one.told).startswith("state_conflict"):
        return {"conflict": one.state}
    return None

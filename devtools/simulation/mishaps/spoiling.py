"""Rows that cannot be written: the database refuses what is metered or seen of a run, until somebody mends that."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from devtools.simulation.judges.promises import judging

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

UNSETTLED = "SELECT id::text FROM federation_attempt WHERE settled_at IS NULL ORDER BY id"
SPOIL = "INSERT INTO simulation.spoiled VALUES (%s, %s) ON CONFLICT DO NOTHING RETURNING attempt"
UNFINISHED = "SELECT id::text FROM federation_attempt WHERE finished_at IS NULL AND starting_at IS NOT NULL ORDER BY id"
MEND = "DELETE FROM simulation.spoiled RETURNING attempt"
SET_ASIDE = """
SELECT attempt_id::text, min(message) FROM federation_jobevent WHERE kind = 'unmetered' GROUP BY 1 ORDER BY 1
"""
SPOILT_SECONDS = (30.0, 200.0)


def spoil_rows(world: "World") -> None:
    """The meters of an attempt that is not settled cannot be written for a while."""
    _spoil(world, UNSETTLED, "meters")


def refuse_pods(world: "World") -> None:
    """What is seen of the pods of an attempt that may run cannot be written for a while."""
    _spoil(world, UNFINISHED, "pods")


def _spoil(world: "World", which: str, what: str) -> None:
    attempts = [id_ for (id_,) in world.watch.rows(which)]
    if not attempts:
        return
    attempt = attempts[world.faults.choose(attempts)]
    world.watch.rows(SPOIL, attempt, what)
    world.spoilt.add(attempt)
    world.tell("database", f"cannot store the {what} of attempt {attempt}")
    world.scheduler.after(world.faults.between(*SPOILT_SECONDS), lambda: mend(world))


def mend(world: "World") -> None:
    """All rows can be written again."""
    if world.watch.rows(MEND):
        world.tell("database", "can store all usage")


@judging
def promise_15_one_bad_row_holds_up_no_other(world: "World") -> list[str]:
    """Only runs whose own rows could not be written were set aside."""
    return [
        f"the usage of attempt {attempt} was set aside, and nothing was wrong with it: {words}"
        for attempt, words in world.watch.rows(SET_ASIDE)
        if attempt not in world.spoilt
    ]


EVENTS: dict[str, Callable[["World"], None]] = {"rows_spoiled": spoil_rows, "rows_refused": refuse_pods}
"""By the kind of fault."""

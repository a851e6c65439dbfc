"""Rows that cannot be metered: the database refuses what is metered of a run, until somebody mends that."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from .judges import judging

if TYPE_CHECKING:
    from .world import World

UNSETTLED = "SELECT id::text FROM federation_attempt WHERE settled_at IS NULL ORDER BY id"
SPOIL = "INSERT INTO simulation.spoiled VALUES (%s) ON CONFLICT DO NOTHING RETURNING attempt"
MEND = "DELETE FROM simulation.spoiled RETURNING attempt"
SET_ASIDE = """
SELECT attempt_id::text, min(message) FROM federation_jobevent WHERE kind = 'unmetered' GROUP BY 1 ORDER BY 1
"""
SPOILT_SECONDS = (30.0, 200.0)


def spoil_rows(world: "World") -> None:
    """The meters of an attempt that is not settled cannot be written for a while."""
    attempts = [id_ for (id_,) in world.watch.rows(UNSETTLED)]
    if not attempts:
        return
    attempt = attempts[world.faults.choose(attempts)]
    world.watch.rows(SPOIL, attempt)
    world.spoilt.add(attempt)
    world.tell("database", f"cannot store what attempt {attempt} uses")
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


EVENTS: dict[str, Callable[["World"], None]] = {"rows_spoiled": spoil_rows}
"""By the kind of fault."""

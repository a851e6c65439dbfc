"""The simulation's own judges, over a real gateway: those that read only the database and what clients were answered."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import psycopg

from devtools.simulation.core.history import Asked
from devtools.simulation.judges import changes as change_judges
from devtools.simulation.judges import promises

from .clients import Submission

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

SAME_JUDGES: Sequence[Callable[["World"], Sequence[str]]] = (
    promises.promise_1_an_accepted_job_is_never_lost,
    promises.promise_2_one_key_makes_one_job,
    promises.promise_3_everything_ends,
    promises.promise_13_each_hold_ends_once_and_limits_add_up,
    promises.promise_16_the_ledger_is_proved,
    promises.promise_17_a_cancellation_is_final,
    promises.promise_22_the_audit_trail_is_complete,
    change_judges.promise_16_no_proof_of_the_running_ledger_finds_anything,
    change_judges.a_moved_team_takes_its_limits_along,
)
"""The others need what only a simulation has: every commit, every request, and when each pod really ran."""


@dataclass(frozen=True, slots=True)
class Watch:
    """The database, as judges read it."""

    address: str

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """What the statement returns."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            return connection.execute(statement.encode(), values or None).fetchall()


@dataclass(frozen=True, slots=True)
class Told:
    """What clients asked, and what they learned."""

    asked: Sequence[Asked]


@dataclass(frozen=True, slots=True)
class Facts:
    """As much of a simulation's world as these judges read."""

    watch: Watch
    history: Told
    submissions: Sequence[Submission]
    proof: list[str]

    def broken(self) -> list[str]:
        """Each broken promise, with its judge's name."""
        world = cast("World", self)
        return [f"{judge.__name__}: {sentence}" for judge in SAME_JUDGES for sentence in judge(world)]

"""A day that cannot be posted for a while: the database refuses its entries, and the others are posted all the same."""

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from django.db import Error, close_old_connections

from billing.models import Price
from billing.operations.corrections import NewCorrection, correct_price
from billing.operations.periods import keep_ledger
from billing.queries.charges import days_to_post
from devtools.simulation.core.processes import Process
from devtools.simulation.setting.stage import user

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

MOST = 10_000
SPOIL = "INSERT INTO simulation.spoiled VALUES (%s, 'day') ON CONFLICT DO NOTHING RETURNING attempt"
MEND = "DELETE FROM simulation.spoiled RETURNING attempt"
LONGEST_SECONDS = 600.0


class BadDay:
    """What one accountant does last, alone: corrects prices, so that days have to be posted again, and posts them around a bad one."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._is_done = False

    def befall(self) -> None:
        """Runs to its end."""
        world = self._world
        world.machine.start(Process("books-last"), "main", self._work)
        world.scheduler.after(LONGEST_SECONDS, self._give_up)
        world.scheduler.run(lambda: self._is_done)

    def _give_up(self) -> None:
        if not self._is_done:
            self._object("the last accountant is not done")
            self._is_done = True

    def _work(self) -> None:
        close_old_connections()
        for number, price in enumerate(Price.objects.order_by("id")):
            start = self._world.begins_at
            until = start + timedelta(hours=12)
            wanted = NewCorrection(price.id, Decimal(number + 7), price.currency, start, until, "agreed at last")
            correct_price(user("ada"), wanted)
        due = self._due()
        if due:
            bad = due[-1]
            self._world.watch.rows(SPOIL, bad)
            self._post_around(bad)
            self._world.watch.rows(MEND)
            keep_ledger()
        self._is_done = True

    def _post_around(self, bad: str) -> None:
        self._world.tell("database", f"cannot store the day {bad}")
        try:
            keep_ledger()
        except Error as error:
            self._world.tell("ada", f"learns that a day was not posted: {type(error).__name__}")
        else:
            if bad in self._due():  # else there was nothing to post of it
                self._object("the worker did not learn that a day was not posted")
        if left := set(self._due()) - {bad}:
            self._object(f"the day {bad} cannot be stored, and {sorted(left)} are not posted")

    def _due(self) -> list[str]:
        return sorted({f"{key.tenant_path} {key.cluster_id} {key.day}" for key in days_to_post(MOST)})

    def _object(self, words: str) -> None:
        self._world.machine.unexpected.append(f"bad day: {words}")

"""Budgets that are there before the first job: what runs is held under them, and adjusted while it runs."""

import random
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from billing.operations.budgets import WantedBudget, put_budget
from devtools.simulation.core.faults import Faults
from devtools.simulation.judges.promises import judging
from devtools.simulation.requests.administration import TEAM_NAMES, path_of
from foundation.schedule import Schedule
from tenancy.queries import SYSTEM

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

KIND = "budgeted"
AMPLE, TIGHT = Decimal(1000), Decimal(4)
"""In US dollars: what all jobs need, and what one large job of a team may cost, so that others wait for it."""
ACCRUED_SECONDS = 20.0
LOWERED_AFTER = (20.0, 60.0)


def begin(world: "World") -> None:
    """A budget of the organisation that suffices, GPU-hours of a team, and little money of the other one, changed after a while."""
    if KIND not in world.faults.rates:
        return
    chance = random.Random(f"{world.seed}/budgeted")
    world.wish("budgets acme", lambda: _put("acme", AMPLE))
    world.wish("budgets hours", lambda: _put_hours(TEAM_NAMES[0], Decimal(50)))
    world.wish("budgets little", lambda: _put(path_of(TEAM_NAMES[1]), TIGHT))
    amount = Decimal(chance.choice((1, 2, 500)))
    world.scheduler.after(chance.uniform(*LOWERED_AFTER), lambda: _lower(world, amount))


def _lower(world: "World", amount: Decimal) -> None:
    """Not in the healed world: operators have removed the budgets that stop jobs."""
    if not world.faults.is_healed:
        world.wish(f"sets the budget of acme to {amount}", lambda: _put("acme", amount))


def hastened(schedules: list[Schedule], faults: Faults) -> list[Schedule]:
    """The routines: where budgets are, what runs is metered often, until the world heals."""
    if KIND not in faults.rates or faults.is_healed:
        return schedules
    return [replace(one, every_seconds=ACCRUED_SECONDS) if one.name == "accrue" else one for one in schedules]


def _put(path: str, amount: Decimal) -> None:
    put_budget(SYSTEM, WantedBudget(path, "money", amount, "USD", "month", stops_admission=True))


def _put_hours(team: str, amount: Decimal) -> None:
    put_budget(SYSTEM, WantedBudget(path_of(team), "gpu_hours", amount, "", "month", stops_admission=True))


@judging
def budgets_hold_nothing_for_what_has_ended(world: "World") -> list[str]:
    """When an attempt is settled, nothing is held for it, and what is held of a period is what its pending holds took."""
    return [f"the hold of {holder} is {state} although it is settled" for holder, state in world.watch.rows(HELD)] + [
        f"a period holds {held}, and its movements say {said}" for held, said in world.watch.rows(PERIODS)
    ]


HELD = """
SELECT hold.holder_id, hold.state FROM billing_budgethold AS hold
  JOIN federation_attempt AS attempt ON attempt.id = hold.holder_id
 WHERE hold.state = 'pending' AND attempt.settled_at IS NOT NULL ORDER BY 1
"""
PERIODS = """
SELECT period.held, coalesce(sum(movement.held), 0)
  FROM billing_budgetperiod AS period LEFT JOIN billing_budgetmovement AS movement ON movement.period_id = period.id
 GROUP BY period.id HAVING period.held <> coalesce(sum(movement.held), 0) ORDER BY period.id
"""
BEGIN: dict[str, Callable[["World"], None]] = {KIND: begin}
"""By the kind of fault: what is so from the beginning of a world on."""

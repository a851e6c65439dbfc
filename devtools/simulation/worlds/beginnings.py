"""When a world begins, with which settings, and what its users submit: the same for most, others for a few."""

import random
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from django.conf import settings

from devtools.simulation.accounts import budgeted
from devtools.simulation.core.faults import Faults
from devtools.simulation.mishaps import bad_nodes, silences, taken_room
from devtools.simulation.requests import (
    attaching,
    crowding,
    data_copies,
    elastic,
    image_pulls,
    logs,
    object_copies,
    opening,
    previewing,
    supplies,
    waiting_stops,
)
from devtools.simulation.requests.clients import Submission, plan
from devtools.simulation.requests.moves import make_threatened
from devtools.simulation.setting.stage import BEGINS_AT, MONTH_ENDS_AT
from foundation.schedule import Schedule

from . import consolidating, saving

if TYPE_CHECKING:
    from .world import World

Thing = TypeVar("Thing")
HALF_LIFE, OTHER_HALF_LIFE = settings.FAIR_SHARE_HALF_LIFE_SECONDS, 3600
"""With which past use counts; some worlds begin with a change of that setting."""


def begins_at(seed: int, rates: Mapping[str, float]) -> datetime:
    """Shortly before the end of a month in some worlds."""
    ends = random.Random(f"{seed}/begins").random() < rates.get("month_ends", 0.0)
    return MONTH_ENDS_AT if ends else BEGINS_AT


def configure(seed: int, rates: Mapping[str, float]) -> None:
    """The half-life of past use in this world, and how long jobs wait for room."""
    crowding.install(is_soon=bool({crowding.KIND, consolidating.KIND} & rates.keys()))
    data_copies.configure(is_on=data_copies.KIND in rates, is_stored=object_copies.KIND in rates)
    elastic.configure(is_on=elastic.KIND in rates)
    opening.configure(is_on=opening.KIND in rates)
    silences.configure(is_on=silences.KIND in rates)
    is_other = "limits_shaped" in rates and seed % 2 == 0
    settings.FAIR_SHARE_HALF_LIFE_SECONDS = OTHER_HALF_LIFE if is_other else HALF_LIFE


def begin(world: "World") -> None:
    """What is so from the beginning on, by the kinds of the world."""
    bad_nodes.begin(world)
    supplies.begin(world)
    waiting_stops.begin(world)
    budgeted.begin(world)
    logs.begin(world)
    crowding.begin(world)
    consolidating.begin(world)
    elastic.begin(world)
    object_copies.begin(world)
    data_copies.begin(world)
    attaching.begin(world)
    previewing.begin(world)
    saving.begin(world)


def hastened(schedules: list[Schedule], faults: Faults) -> list[Schedule]:
    """The routines, some of which run more often in worlds that are about them."""
    hasty = waiting_stops.hastened(budgeted.hastened(bad_nodes.hastened(schedules, faults), faults), faults)
    return data_copies.added(image_pulls.added(opening.hastened(hasty, faults), faults), faults)


def submissions_of(world: "World") -> list[Submission]:
    """The jobs that users submit."""
    rates, wanted = world.faults.rates, world.size.jobs
    if "nodes_kill" in rates:
        return bad_nodes.crowd(world.seed, wanted)
    if crowding.KIND in rates:
        return crowding.submissions(world.seed, wanted)
    if consolidating.KIND in rates:
        return consolidating.submissions(world.seed, wanted)
    if elastic.KIND in rates and elastic.has_own_jobs(world.seed):
        return elastic.submissions(world.seed, wanted)
    if saving.KIND in rates and saving.has_own_jobs(world.seed):
        return saving.submissions(world.seed, wanted)
    found = plan(world.seed, wanted, world.swarm, is_emptied="emptied" in rates, is_ordered="gate_refused" in rates)
    make_threatened(found, is_noticed="spot_notice" in rates)
    logs.let_decide(world.seed, rates, found)
    _equip(world.seed, rates, found)
    return [_hastened(one, world.scale.haste) for one in few(found, world.scale.most_jobs)]


def _equip(seed: int, rates: Mapping[str, float], found: list[Submission]) -> None:
    """Gives the jobs what they need where the world is about that."""
    if supplies.KIND in rates:
        supplies.equip(seed, found)
    if data_copies.KIND in rates:
        data_copies.equip(seed, found)
    if attaching.KIND in rates:
        attaching.equip(seed, found)
    if elastic.KIND in rates:
        elastic.equip(seed, found)
    if saving.KIND in rates:
        saving.equip(seed, found)
    if taken_room.KIND in rates:
        taken_room.equip(found)
    if waiting_stops.KIND in rates:
        waiting_stops.equip(seed, found)
    if opening.KIND in rates:
        opening.equip(seed, found[1:] if "gate_refused" in rates else found)


def few(found: list[Thing], most: int | None) -> list[Thing]:
    """The first ones and the last one, which may be urgent."""
    return found if most is None or len(found) <= most else [*found[: most - 1], found[-1]]


def _hastened(one: Submission, haste: float) -> Submission:
    """The same, whose client waits less before it does something."""
    if haste < 1:
        one.cancel_after = None if one.cancel_after is None else haste * one.cancel_after
        one.suspend_after = None if one.suspend_after is None else haste * one.suspend_after
    return one

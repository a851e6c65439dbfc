"""Requests that cannot be fulfilled, each with the code of its refusal: fields that make no sense, rows that do not exist, users who lack
a permission, more rows than there may be. Those who send them have a name that no other actor has, so the trail shows whether any of
them changed something.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from devtools.simulation.judges.promises import judging
from devtools.simulation.setting.stage import VIEWER, user
from foundation.problems import Problem
from tenancy.queries import SYSTEM

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

KIND = "asked_amiss"
ASTRAY = "astray"
"""The name of those who ask. It is also the name of all that they would make."""
PLATFORM, ADA, EVE = replace(SYSTEM, name=ASTRAY), replace(user("ada"), name=ASTRAY), replace(user(VIEWER), name=ASTRAY)
UNKNOWN = UUID(int=99)
TOGETHER = 10
Request: TypeAlias = tuple[str, str, Callable[[], object]]
"""What is asked, in words; the code of the refusal, or of one of its fields; and how it is asked."""
CHANGING = frozenset({"not_found"})
"""Also right: what a request names, such as a team's path, was read just before, and may have changed since."""


def ask(world: "World") -> None:
    """Some of them, one after the other."""
    from . import refused_changes, refused_prices  # noqa: PLC0415 - they need this module

    found = (*refused_changes.REQUESTS, *refused_prices.REQUESTS)
    first = world.faults.choose(found)
    for number in range(first, first + TOGETHER):
        told, code, act = found[number % len(found)]
        world.wish(told, lambda told=told, code=code, act=act: _ask(world, told, code, act))  # type: ignore[misc]


def _ask(world: "World", told: str, code: str, act: Callable[[], object]) -> None:
    try:
        act()
    except Problem as problem:
        found = codes_of(problem)
        world.tell("operator", f"is refused: {', '.join(sorted(found))}")
        if not found & {code, *CHANGING}:
            world.machine.unexpected.append(f"the operator {told}, and is refused as {sorted(found)}, not as {code}")
        return
    world.machine.unexpected.append(f"the operator {told}, which is not refused")


def codes_of(problem: Problem) -> set[str]:
    """Its own code, and those of its fields."""
    return {problem.code, *(error.code for error in problem.errors)}


@judging
def what_is_refused_changes_nothing(world: "World") -> list[str]:
    """No entry of the trail is by those whose requests were all refused, and nothing has the name that they give."""
    if KIND not in world.faults.rates:
        return []
    return [f"{what} {which} is left of a request that was refused" for what, which in world.watch.rows(LEFT)]


LEFT = f"""
SELECT 'the entry', action FROM tenancy_auditentry WHERE actor_name = '{ASTRAY}'
 UNION ALL
SELECT 'the job', id::text FROM federation_job WHERE name = '{ASTRAY}'
 UNION ALL
SELECT 'the class', id::text FROM federation_priorityclass WHERE name = '{ASTRAY}'
 UNION ALL
SELECT 'the reservation', id::text FROM federation_reservation WHERE name = '{ASTRAY}'
 UNION ALL
SELECT 'the policy', id::text FROM federation_prepullpolicy WHERE name = '{ASTRAY}'
 UNION ALL
SELECT 'the tenant', id::text FROM tenancy_tenant WHERE name = '{ASTRAY}'
 UNION ALL
SELECT 'the rate', id::text FROM billing_exchangerate WHERE made_by_name = '{ASTRAY}'
 ORDER BY 1, 2
"""  # noqa: S608 - a constant
EVENTS: dict[str, Callable[["World"], None]] = {KIND: ask}
"""By the kind of fault."""

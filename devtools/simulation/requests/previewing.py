"""Administrators ask what a limit or a file would do to the next round, several at the same time, while all goes on. Nothing of that
remains, and a change that changes nothing has no effect.
"""

import json
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.db import Error, close_old_connections

from devtools.simulation.core.scheduler import MICROSECONDS, Scheduler
from devtools.simulation.judges.promises import judging
from devtools.simulation.setting.stage import VIEWER, user
from federation.operations import previews
from federation.operations.previews import Foreseen, preview_limit, preview_tree
from foundation.problems import Problem
from quotas.engine.holds import Borrowing
from quotas.models import QuotaLimit
from quotas.operations import WantedLimit
from tenancy.queries import SYSTEM, Actor

from .administration import TEAM_NAMES, path_of
from .companions import come

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

KIND = "previewed"
LITTLE, AMPLE = 1, 7_777_001
"""Limits in milli-GPU that no user sets: each is only previewed."""
PROJECT = "foreseen"
QUESTIONS, PAUSE_SECONDS = 4, 3.0
LOOKS, LOOK_SECONDS = 12, 4.0
POLL_SECONDS = 0.5
RUNNING = "SELECT FROM federation_attempt WHERE state = 'running' LIMIT 1"


class Desk:
    """Stands for the lock at which previews of one process wait for each other. Each process has its own."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._held = set[int]()

    def acquire(self, timeout: float) -> bool:
        """Whether it is free within this time."""
        scheduler, process = self._scheduler, id(self._scheduler.current.process)
        until_us = scheduler.now_us + round(timeout * MICROSECONDS)
        while process in self._held:
            if scheduler.now_us >= until_us:
                return False
            scheduler.sleep(POLL_SECONDS)
        self._held.add(process)
        return True

    def release(self) -> None:
        """Lets the next one in."""
        self._held.discard(id(self._scheduler.current.process))


def begin(world: "World") -> None:
    """Previews wait in simulated time."""
    previews._desk = Desk(world.scheduler)  # type: ignore[assignment]  # noqa: SLF001 - a real lock would stop all actors


def ask(world: "World") -> None:
    """One or two administrators ask a few times, when something runs, or after a while."""
    come(
        world,
        "previews",
        lambda world, chance: Asker(world, chance).ask,
        when=RUNNING,
        looks=LOOKS,
        pause_seconds=LOOK_SECONDS,
    )


class Asker:
    """One of them."""

    def __init__(self, world: "World", chance: random.Random) -> None:
        self._world, self._chance = world, chance
        self._actor: Actor = chance.choice((SYSTEM, user("ada"), user("ben"), user(VIEWER)))

    def ask(self) -> None:
        """Questions, one after the other. A refusal must have a reason that can be mended."""
        for _ in range(QUESTIONS):
            self._world.scheduler.sleep(self._chance.uniform(0, PAUSE_SECONDS))
            what = self._chance.choice((self._nothing, self._limit, self._limit, self._file))
            close_old_connections()
            try:
                what()
            except Problem as problem:
                if problem.status >= 500:
                    self._object(f"{what.__name__} is answered {problem.status}: {problem}")
            except Error as error:
                self._world.tell("administrator", f"gets no answer: {type(error).__name__}")

    def _object(self, what: str) -> None:
        self._world.machine.unexpected.append(f"a preview: {what}")

    def _nothing(self) -> None:
        """A limit as it is: if it is still so after the answer, that must not contain anything."""
        limits = list(QuotaLimit.objects.filter(removed_at=None, reclaim_after=None).order_by("id")[:20])
        if not limits:
            return
        limit = self._chance.choice(limits)
        before = _standing(limit)
        found = preview_limit(self._actor, _as_it_is(limit))
        if _standing(QuotaLimit.objects.get(id=limit.id)) == before and (told := effects_of(found)):
            self._object(f"a limit that stays as it is has effects: {told}")

    def _limit(self) -> None:
        chance, team = self._chance, self._chance.choice(("acme", *TEAM_NAMES))
        path = team if team == "acme" else path_of(team)
        wanted = WantedLimit(path, "gpu", chance.choice((LITTLE, AMPLE)), reclaim_after=chance.choice((None, 0, 30)))
        self._check(preview_limit(self._actor, wanted))

    def _file(self) -> None:
        limits = [{"resource": "gpu", "nominal": self._chance.choice(("0", "2"))}]
        tenant = {"path": f"{path_of(TEAM_NAMES[0])}/{PROJECT}", "kind": "project", "limits": limits}
        file = {"apiVersion": "switchyard/v1", "kind": "TenantTree", "tenants": [tenant]}
        self._check(preview_tree(self._actor, json.dumps(file)))

    def _check(self, found: Foreseen) -> None:
        parts = (found.starts, found.waits, found.otherwise, found.stops, found.spared)
        jobs = [one.job_id for part in parts[:4] for one in part.jobs]
        if len(jobs) != len(set(jobs)) or found.starts.count + found.waits.count > found.considered:
            self._object(f"jobs are affected twice, or more than were considered: {found}")
        if any(one.at is None or not (one.code and one.message) for one in found.stops.jobs):
            self._object(f"a stop has no time or no reason: {found.stops}")


def effects_of(found: Foreseen) -> list[Any]:
    """What is different with the change."""
    changed = [one for part in (found.starts, found.waits, found.otherwise, found.spared) for one in part.jobs]
    return [*changed, *(one for one in found.stops.jobs if not one.is_anyway)]


def _as_it_is(limit: QuotaLimit) -> WantedLimit:
    borrowing = Borrowing(limit.borrowing_limit, limit.lending_limit, reclaims=limit.reclaims)
    return WantedLimit(limit.tenant.path, limit.resource, limit.nominal, tuple(limit.clusters), borrowing)


def _standing(limit: QuotaLimit) -> tuple[Any, ...]:
    return (*_as_it_is(limit), limit.reclaim_after, limit.removed_at, limit.updated_at)


@judging
def a_preview_leaves_nothing(world: "World") -> list[str]:
    """No limit, tenant or entry of the trail is what was only previewed."""
    if KIND not in world.faults.rates:
        return []
    return [f"{what} {which} was only previewed, and is there" for what, which in world.watch.rows(LEFT)]


LEFT = f"""
SELECT 'the limit', id::text FROM quotas_quotalimit WHERE resource = 'gpu' AND nominal IN ({LITTLE}, {AMPLE})
 UNION ALL
SELECT 'the tenant', path FROM tenancy_tenant WHERE name = '{PROJECT}'
 UNION ALL
SELECT 'the entry', id::text FROM tenancy_auditentry
 WHERE strpos(detail::text, '{AMPLE}') > 0 OR strpos(detail::text, '/{PROJECT}') > 0
 ORDER BY 1, 2
"""  # noqa: S608 - constants
EVENTS: dict[str, Callable[["World"], None]] = {KIND: ask}
"""By the kind of fault."""

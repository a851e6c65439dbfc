"""Users ask about quota, as pages and the API do, while jobs wait and run: what a job would get, how much room there is, who
holds what a job waits for, and how limits stand. Each answer must agree with itself.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from devtools.simulation.setting.stage import user
from federation.api.quote_answers import capacity_json, in_the_way_json, quote_json
from federation.models import Job
from federation.queries.quota_in_the_way import quota_in_the_way
from federation.queries.quotes import capacity_of, quote_of
from federation.queries.reservations import views_of, visible_reservations
from foundation.clock import database_now
from placement.answers.quotes import Offer
from quotas.engine.origin import Origin
from quotas.queries import standings, visible_limits
from tenancy.queries import Actor

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

MANY = 1_000_000
POLLS, POLL_SECONDS = 12, 5.0
"""How often, and after how long, someone looks again whether a job waits for quota."""
WAITING = """
SELECT id FROM federation_job WHERE state = 'queued' AND reason_code = 'waiting_for_quota' ORDER BY id LIMIT 3
"""
"""Jobs that wait for quota."""


def ask(world: "World") -> None:
    """Asks a quote for a job like one of this world's, asks for room, and how limits stand; then, when a job waits for quota,
    who holds it.
    """
    chance = random.Random(f"{world.seed}/questions/{world.faults.choose(range(MANY))}")
    actor = user(chance.choice(("ada", "ben")))
    body = chance.choice(world.submissions).body if world.submissions else {}
    world.wish("asks for a quote", lambda: _judge(world, quote_faults(actor, body | {"name": "asked"})))
    world.wish("asks for room", lambda: _judge(world, room_faults(actor, body)))
    world.wish("asks how limits stand", lambda: _judge(world, standing_faults(actor)))
    world.wish("asks how reservations stand", lambda: _judge(world, reservation_faults(actor)))
    _look(world, actor, POLLS)


def _look(world: "World", actor: Actor, left: int) -> None:
    """Asks who holds quota as soon as a job waits for it."""
    waiting = [job_id for (job_id,) in world.watch.rows(WAITING)]
    if waiting:
        world.wish("asks who holds quota", lambda: _judge(world, holder_faults(actor, waiting)))
    elif left and not world.faults.is_healed:
        world.scheduler.after(POLL_SECONDS, lambda: _look(world, actor, left - 1))


def _judge(world: "World", faults: Iterator[str]) -> None:
    world.machine.unexpected += [f"an answer about quota: {fault}" for fault in faults]


def quote_faults(actor: Actor, body: dict[str, Any]) -> Iterator[str]:
    """Each offer within quota says whose quota it takes: its own up to the nominal amounts, the rest borrowed from above."""
    asked = quote_of(actor, body)
    quote_json(asked)
    for offer in (*asked.quote.offers, *asked.quote.later):
        yield from _faults_of_offer(offer)


def _faults_of_offer(offer: Offer) -> Iterator[str]:
    for one in offer.quota or ():
        if not 0 <= one.own <= one.amount or one.is_own == bool(one.borrowed):
            yield f"{one.tenant_path} takes {one.own} of {one.amount} without a loan, and borrows {one.borrowed}"
        yield from _faults_of_loans(one)


def _faults_of_loans(one: Origin) -> Iterator[str]:
    if one.borrowed and one.own != one.amount - max(loan.amount for loan in one.borrowed):
        yield f"{one.tenant_path} borrows {one.borrowed} for {one.amount}, and {one.own} is its own"
    for loan in one.borrowed:
        if not 0 < loan.amount <= one.amount or not loan.tenant_path.startswith(f"{loan.lender}/"):
            yield f"{loan.tenant_path} borrows {loan.amount} of {one.amount} from {loan.lender}"


def room_faults(actor: Actor, body: dict[str, Any]) -> Iterator[str]:
    """What quota leaves is not more than what is there, and its parts are not negative."""
    shape = {name: value for name, value in body.items() if name != "tenant"}
    found = capacity_of(actor, shape, body.get("tenant", ""))
    capacity_json(found)
    for room in found.capacity.clusters:
        if not 0 <= room.within_quota <= room.count:
            yield f"{room.within_quota} of {room.count} jobs are within quota on {room.cluster}"
        for flavor in room.flavors:
            parts = (flavor.guaranteed, flavor.own, flavor.borrowable)
            if any(part is not None and part < 0 for part in parts) or flavor.owed < 0:
                yield f"quota leaves {parts} of {flavor.flavor} on {room.cluster}, and {flavor.owed} is owed"
            if (flavor.guaranteed or 0) > (flavor.own or 0):
                yield f"more than the own quota of {flavor.flavor} on {room.cluster} is guaranteed: {parts}"
            if bool(flavor.owed) != bool(flavor.reclaimers):
                yield f"{flavor.owed} of {flavor.flavor} on {room.cluster} is owed to {flavor.reclaimers}"


def holder_faults(actor: Actor, job_ids: Sequence[Any]) -> Iterator[str]:
    """What holders hold, or are guaranteed, is all that their limit counts, and the job lacks something there."""
    for job in Job.objects.select_related("tenant", "priority_class").filter(id__in=job_ids).order_by("id"):
        for one in quota_in_the_way(actor, job):
            in_the_way_json(one)
            counted = sum(holder.held + holder.kept for holder in one.holders)
            if counted != one.limit.held or one.lacking <= 0:
                yield f"{one.holders} hold {counted} of {one.limit}, and {one.lacking} is lacking"
            if any(min(holder.held, holder.kept, holder.borrowed) < 0 for holder in one.holders):
                yield f"some of {one.holders} hold less than nothing"
            if any(holder.borrowed > holder.held for holder in one.holders):
                yield f"some of {one.holders} borrow more than they hold"


def standing_faults(actor: Actor) -> Iterator[str]:
    """What limits lend, borrow and have left is not negative, and within them."""
    limits = list(visible_limits(actor))
    for limit_id, one in standings(limits).items():
        limit = next(limit for limit in limits if limit.id == limit_id)
        if min(one) < 0 or one.lent > limit.nominal or one.borrowed > limit.held or one.guaranteed > limit.nominal:
            yield f"the limit of {limit.nominal} {limit.resource} with {limit.held} held stands as {one}"


def reservation_faults(actor: Actor) -> Iterator[str]:
    """A reservation has and uses no negative quota, and the limit that it is said to be beyond is on its tenant's path."""
    for view in views_of(list(visible_reservations(actor).order_by("id")), database_now()):
        path = view.row.tenant.path
        for line in view.quota:
            if min(line.reserved, line.used) < 0:
                yield f"of {line.reserved} {line.resource} reserved by {path}, {line.used} are used"
        if view.beyond and not f"{path}/".startswith(f"{view.beyond.partition(' ')[0]}/"):
            yield f"a reservation of {path} is beyond what it may reserve: {view.beyond}"


EVENTS: dict[str, Callable[["World"], None]] = {"quota_asked": ask}
"""By the kind of fault."""

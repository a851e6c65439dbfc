"""Jobs that are sessions: users ask for tickets, open the sessions with them, once, and use them or leave them alone, while all goes on.
In these worlds, sessions may be unused for seconds only, and few tickets may wait for their use.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.db import Error, close_old_connections

from devtools.simulation.clusters.cluster import RUN_SECONDS
from devtools.simulation.core.faults import Faults
from devtools.simulation.core.history import Asked
from devtools.simulation.core.scheduler import MICROSECONDS
from devtools.simulation.judges.promises import judging
from devtools.simulation.setting.stage import VIEWER, user
from federation.engine import sessions as engine
from federation.engine.intake import sessions as intake
from federation.operations import session_sockets, sessions
from federation.queries.sessions import Access, access_of
from foundation.problems import Problem
from foundation.schedule import Schedule
from tenancy.queries import SYSTEM, Actor

from .clients import Submission
from .companions import come

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

KIND = "opened"
ORIGIN = engine.read_origin("https://*.sessions.example")
SHARE = 0.8
"""The share of the jobs with one pod set that are sessions, in a world of this kind."""
IDLE_SECONDS = (6, 8, 25, 400)
LEAST_IDLE, SEEN_SECONDS, MOST_TICKETS = 5, 2, 3
"""In place of minutes and twenty."""
VISITS, PAUSE_SECONDS, USES = 5, 12.0, 3
LATE_SECONDS = (0.0, 0.0, 1.0, 70.0)
"""How long after a ticket was made it is used: the last one is too late."""
LOOKS, LOOK_SECONDS = 40, 3.0
SWEPT_SECONDS = 6.0
SOCKETS = 0.5
"""The share of the uses that open a WebSocket too."""
BOARD: Any = SimpleNamespace(open=lambda _relay, _port, _request: None)
RELAY: Any = None
HANDSHAKE: Any = None
"""What carries it to the pod is not simulated."""
_usual_port_of = vars(session_sockets)["port_of"]
_usual = engine.MIN_IDLE_SECONDS, engine.SEEN_SECONDS, engine.MOST_OPEN_TICKETS


def configure(*, is_on: bool) -> None:
    """Whether this installation has sessions."""
    settings.SESSION_ORIGIN = ORIGIN if is_on else None
    least, seen, most = (LEAST_IDLE, SEEN_SECONDS, MOST_TICKETS) if is_on else _usual
    vars(intake)["MIN_IDLE_SECONDS"] = least
    vars(sessions).update(SEEN_SECONDS=seen, MOST_OPEN_TICKETS=most)
    vars(session_sockets)["port_of"] = (lambda _access: None) if is_on else _usual_port_of


def hastened(schedules: list[Schedule], faults: Faults) -> list[Schedule]:
    """The routines: where sessions are, they are looked for often, until the world heals."""
    if KIND not in faults.rates or faults.is_healed:
        return schedules
    return [replace(one, every_seconds=SWEPT_SECONDS) if one.name == "sweep" else one for one in schedules]


def equip(seed: int, submissions: list[Submission]) -> None:
    """Makes sessions of some jobs, each of which runs for a while."""
    chance = random.Random(f"{seed}/opening")
    for one in submissions:
        is_session, idle, runs = chance.random() < SHARE, chance.choice(IDLE_SECONDS), chance.choice(("60", "200"))
        if is_session and len(one.body["pod_sets"]) == 1 and "elastic" not in one.body:
            one.body.pop("completions", None)
            one.body["pod_sets"] = [one.body["pod_sets"][0] | {"count": 1}]
            one.body |= {"session": {"port": 8888, "idle_seconds": idle}}
            one.body["labels"] |= {RUN_SECONDS: runs}


def visit(world: "World") -> None:
    """When a session runs, somebody opens it a few times; two do at the same time, perhaps."""
    come(
        world,
        "visitors",
        lambda world, chance: Visitor(world, chance).visit,
        when=RUNNING,
        looks=LOOKS,
        pause_seconds=LOOK_SECONDS,
    )


RUNNING = """
SELECT attempt.job_id, attempt.id FROM federation_attempt AS attempt JOIN federation_job AS job ON job.id = attempt.job_id
 WHERE attempt.state = 'running' AND job.spec ? 'session' ORDER BY attempt.id
"""
OVER = "SELECT FROM federation_attempt WHERE id = %s AND (finished_at IS NOT NULL OR stop_requested_at IS NOT NULL)"


class Visitor:
    """One of them, who asks as different users."""

    def __init__(self, world: "World", chance: random.Random) -> None:
        self._world, self._chance = world, chance

    def visit(self) -> None:
        """Opens sessions, one after the other. A refusal must have a reason that can be mended."""
        for _ in range(VISITS):
            self._world.scheduler.sleep(self._chance.uniform(0, PAUSE_SECONDS))
            running = self._world.watch.rows(RUNNING)
            actor = self._chance.choice((user("ada"), user("ada"), user("ben"), user("ben"), user(VIEWER), SYSTEM))
            close_old_connections()
            try:
                if running:
                    self._open(actor, self._chance.choice(running)[0], [id_ for _, id_ in running])
            except Problem as problem:
                if problem.status >= 500:
                    self._object(f"is answered {problem.status}: {problem}")
            except Error as error:
                self._world.tell("visitor", f"gets no answer: {type(error).__name__}")

    def _object(self, what: str) -> None:
        self._world.machine.unexpected.append(f"a session: {what}")

    def _open(self, actor: Actor, job_id: UUID, others: list[UUID]) -> None:
        """With a ticket, or with the last one of more than may be open."""
        for _ in range(self._chance.choice((1, 1, MOST_TICKETS + 1))):
            ticket = sessions.issue_ticket(actor, job_id)
        if actor in (user(VIEWER), SYSTEM):
            self._object(f"{actor.name} got a ticket of {ticket.attempt_id}")
        self._world.scheduler.sleep(self._chance.choice(LATE_SECONDS))
        secret = urlsplit(ticket.url).fragment
        if any(sessions.redeem(other, secret) for other in others if other != ticket.attempt_id):
            self._object(f"a ticket of {ticket.attempt_id} opened another one")
        opened = self._redeem(actor, ticket.attempt_id, secret)
        if sessions.redeem(ticket.attempt_id, secret) is not None:
            self._object(f"a ticket of {ticket.attempt_id} opened it twice")
        for _ in range(self._chance.randrange(USES) if opened else 0):
            self._world.scheduler.sleep(self._chance.uniform(0, PAUSE_SECONDS))
            self._use(actor, ticket.attempt_id, opened)

    def _redeem(self, actor: Actor, attempt_id: UUID, secret: str) -> str:
        """The secret of the cookie; empty if the session is not open to this user."""
        asked, is_over = self._ask(actor, "open", attempt_id), self._is_over(attempt_id)
        found = sessions.redeem(attempt_id, secret)
        self._told(asked, is_over=is_over, is_open=found is not None)
        return "" if found is None else found[1]

    def _use(self, actor: Actor, attempt_id: UUID, cookie: str) -> None:
        """As each request of a browser to a session."""
        asked, is_over = self._ask(actor, "use", attempt_id), self._is_over(attempt_id)
        access = access_of(attempt_id, cookie)
        if access is not None:
            sessions.note_use(attempt_id)
        self._told(asked, is_over=is_over, is_open=access is not None)
        if access is not None and self._chance.random() < SOCKETS:
            self._stay(actor, access)

    def _stay(self, actor: Actor, access: Access) -> None:
        """Opens a WebSocket, and keeps it for a while, as a process of the edge does."""
        asked = self._ask(actor, "socket", access.attempt_id)
        session_sockets.open_socket(BOARD, RELAY, access, HANDSHAKE)
        asked.to_us, asked.answer, asked.told = self._world.scheduler.now_us, "ok", str(access.ticket_id)
        self._world.scheduler.sleep(self._chance.uniform(0, PAUSE_SECONDS))
        is_over = self._is_over(access.attempt_id)
        if session_sockets.keep_open([access.ticket_id], [access.attempt_id]) and is_over:
            self._object(f"a WebSocket of {access.attempt_id} stays open, which had ended or was being stopped")

    def _is_over(self, attempt_id: UUID) -> bool:
        return bool(self._world.watch.rows(OVER, attempt_id))

    def _ask(self, actor: Actor, what: str, attempt_id: UUID) -> Asked:
        asked = Asked(actor.name, what, str(attempt_id), self._world.scheduler.now_us)
        self._world.history.asked.append(asked)
        return asked

    def _told(self, asked: Asked, *, is_over: bool, is_open: bool) -> None:
        asked.to_us, asked.answer = self._world.scheduler.now_us, "ok" if is_open else "refused"
        if is_over and is_open:
            self._object(f"{asked.subject} was open to {asked.client}, and had ended or was being stopped")


@judging
def a_session_is_stopped_only_if_it_is_not_used(world: "World") -> list[str]:
    """Each that the gateway stopped as unused had no request that was answered for as long as its job says, less the time within
    which uses are not noted again. The trail says it, and who opened sessions.
    """
    if KIND not in world.faults.rates or world.lost_commits.spans:
        return []
    found = list[str]()
    used: dict[str, list[Asked]] = {}
    for one in world.history.asked:
        if one.what in ("open", "use") and one.answer == "ok":
            used.setdefault(one.subject, []).append(one)
    for attempt, stopped_us, idle, is_said in world.watch.rows(STOPPED):
        since_us = stopped_us - (idle - SEEN_SECONDS) * MICROSECONDS
        if any(since_us < one.from_us and one.to_us < stopped_us for one in used.get(attempt, ())):
            found.append(f"the session {attempt} was stopped as unused, and was used within {idle} s")
        if not is_said:
            found.append(f"the session {attempt} was stopped as unused, and the trail does not say so")
    opened = dict(world.watch.rows(OPENED))
    for attempt, uses in used.items():
        if (count := sum(one.what == "open" for one in uses)) > opened.get(attempt, 0):
            found.append(f"the session {attempt} was opened {count} times, and {opened.get(attempt, 0)} by the trail")
    said = dict(world.watch.rows(OPENED_SOCKETS))
    sockets = {str(one.told) for one in world.history.asked if (one.what, one.answer) == ("socket", "ok")}
    return found + [
        f"the WebSockets of the ticket {ticket} have {said.get(ticket, 0)} entries in the trail"
        for ticket in sorted(sockets)
        if said.get(ticket, 0) != 1
    ]


OPENED_SOCKETS = (
    "SELECT detail ->> 'ticket', count(*) FROM tenancy_auditentry WHERE action = 'session.socket' GROUP BY 1"
)
STOPPED = """
SELECT own.attempt_id::text, (extract(epoch FROM own.stopped_at) * 1000000)::bigint, (job.spec -> 'session' ->> 'idle_seconds')::int,
       EXISTS (SELECT FROM tenancy_auditentry AS entry WHERE entry.action = 'session.idle' AND entry.object_id = job.id::text)
  FROM federation_sessionuse AS own JOIN federation_attempt AS attempt ON attempt.id = own.attempt_id
  JOIN federation_job AS job ON job.id = attempt.job_id WHERE own.stopped_at IS NOT NULL ORDER BY 1
"""
OPENED = "SELECT detail ->> 'attempt', count(*) FROM tenancy_auditentry WHERE action = 'session.open' GROUP BY 1"
EVENTS: dict[str, Callable[["World"], Any]] = {KIND: visit}
"""By the kind of fault."""

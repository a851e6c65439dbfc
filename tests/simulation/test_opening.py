"""The judge of sessions knows which were used, and sessions are sessions only in worlds of their kind."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from devtools.simulation.core.history import Asked

SECOND = 1_000_000
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "long unused": ({}, ""),
    "used a moment before": ({"used_us": 90 * SECOND}, "was used within"),
    "used, and never answered": ({"used_us": 90 * SECOND, "answer": "unknown"}, ""),
    "without an entry": ({"is_said": False}, "the trail does not say so"),
    "a WebSocket without an entry": ({"sockets": 0}, "the WebSockets of the ticket ticket have 0 entries"),
    "a WebSocket with two": ({"sockets": 2}, "have 2 entries"),
    "opened without an entry": ({"opened": 0}, "was opened 1 times, and 0 by the trail"),
}


def module() -> Any:
    # Django must be set up before the gateway is imported, so this is not at the top.
    from devtools.simulation.requests import opening  # noqa: PLC0415

    return opening


def judged(*, used_us=0, answer="ok", is_said=True, opened=1, spans=(), sockets=1):
    """A session that is stopped after 100 s, and may be unused for 25."""
    rows = {module().STOPPED: [("a", 100 * SECOND, 25, is_said)], module().OPENED: [("a", opened)]}
    rows[module().OPENED_SOCKETS] = [("ticket", sockets)]
    world = SimpleNamespace(
        faults=SimpleNamespace(rates={module().KIND: 1.0}),
        lost_commits=SimpleNamespace(spans=spans),
        history=SimpleNamespace(
            asked=[
                Asked("ada", "open", "a", 0, 1, "ok"),
                Asked("ada", "use", "a", used_us, used_us + 1, answer),
                Asked("ada", "socket", "a", 0, 1, "ok", told="ticket"),
            ]
        ),
        watch=SimpleNamespace(rows=lambda statement: rows[statement]),
    )
    return module().a_session_is_stopped_only_if_it_is_not_used(world)


@pytest.mark.parametrize(("given", "says"), CASES.values(), ids=CASES)
def test_a_session_that_was_used_is_not_stopped_as_unused(given, says):
    said = judged(**given)
    assert [bool(says)] == [says in " ".join(said) and bool(said)], said


def test_what_a_restored_database_has_forgotten_is_not_judged():
    assert judged(used_us=90 * SECOND, spans=[(1, 2)]) == []


def test_sessions_have_one_pod_and_only_where_they_are_switched_on():
    from devtools.simulation.core.swarm import ANY  # noqa: PLC0415
    from devtools.simulation.requests.clients import plan  # noqa: PLC0415 - as above

    jobs = [one for seed in range(30) for one in plan(seed, (), ANY)]
    module().equip(random.random(), jobs)
    made = [one.body for one in jobs if "session" in one.body]
    assert len(made) > 20
    assert {(len(body["pod_sets"]), body["pod_sets"][0]["count"], "completions" in body) for body in made} == {
        (1, 1, False)
    }


def test_a_world_without_sessions_has_the_usual_constants():
    from federation.engine.intake import sessions as intake  # noqa: PLC0415 - as above
    from federation.engine.sessions import MIN_IDLE_SECONDS  # noqa: PLC0415

    module().configure(is_on=True)
    assert vars(intake)["MIN_IDLE_SECONDS"] < MIN_IDLE_SECONDS
    module().configure(is_on=False)
    assert vars(intake)["MIN_IDLE_SECONDS"] == MIN_IDLE_SECONDS

"""The judge of nodes' hours objects to hours that do not balance, and to nothing else."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from uuid import UUID

import pytest

NOON, HOUR = datetime(2026, 6, 1, 12, tzinfo=UTC), timedelta(hours=1)
DAY, EAST = date(2026, 6, 1), UUID(int=1)


def judges():
    # Django must be set up before the gateway is imported, so this is not at the top.
    from devtools.simulation.judges import node_hours as node_hours_judges  # noqa: PLC0415

    return node_hours_judges


def hour_of(cost, charged, overhead=0, idle=None):
    """An hour of the node `east-0` with these dollars."""
    from billing.engine.node_hours import HourBalance  # noqa: PLC0415 - as above
    from billing.queries.node_hours import NodeHour  # noqa: PLC0415 - as above

    parts = judges().PARTS
    rest = cost - charged - overhead if idle is None else idle
    return NodeHour(EAST, "east-0", NOON, "USD", HourBalance(*(one * parts for one in (cost, charged, overhead, rest))))


def said_of(monkeypatch, hour, *, set_aside=(), price=2, corrections=(), future=()):
    """What the judge says of a node that offers four units for an hour, of which a run uses two."""
    module = judges()
    rows = {
        module.DAYS: [(DAY,)],
        module.OFFERED: [(EAST, "east-0", 1, 4, NOON, None)],
        module.USED: [(EAST, "east-0", 1, 2, NOON, NOON + HOUR, Decimal(price))],
        module.PRICES: [(1, NOON - HOUR, NOON + 9 * HOUR, Decimal(2))],
        module.CORRECTIONS: list(corrections),
        module.SET_ASIDE: list(set_aside),
        module.FUTURE: list(future),
        "SELECT now()": [(NOON + HOUR,)],
    }
    clock: list[int] = []
    watch = SimpleNamespace(rows=lambda statement, *_: rows[statement], set_clock=clock.append)
    world = SimpleNamespace(watch=watch, scheduler=SimpleNamespace(now_us=1_000))
    monkeypatch.setattr(module, "judge", lambda _: SimpleNamespace(hours=[hour]))
    monkeypatch.setattr(module, "judge_node_hours", lambda: ())
    found = module.promise_16_the_hours_of_nodes_balance(world)
    assert clock == [3_600_000_000, 1_000], "the hour ends, and the clock is put back"
    return found


def test_an_hour_that_balances_is_right(monkeypatch):
    assert said_of(monkeypatch, hour_of(8, 4)) == []
    assert said_of(monkeypatch, hour_of(8, 4, overhead=3)) == []


def test_a_correction_counts_for_the_node_and_for_the_run(monkeypatch):
    corrected = [(1, NOON, NOON + HOUR, Decimal(1))]
    assert said_of(monkeypatch, hour_of(4, 2), corrections=corrected) == []
    assert len(said_of(monkeypatch, hour_of(8, 4), corrections=corrected)) == 2


@pytest.mark.parametrize(
    ("hour", "words"),
    [
        ((8, 4, 0, 3), "is not"),
        ((8, 4, -1), "is not"),
        ((7, 4), "the cost of its hours adds up to 7"),
        ((8, 3), "the charge of its hours adds up to 3"),
    ],
)
def test_what_does_not_add_up_is_objected_to(monkeypatch, hour, words):
    found = said_of(monkeypatch, hour_of(*hour))
    assert len(found) == 1
    assert words in found[0]


def test_a_history_of_another_clock_is_objected_to(monkeypatch):
    (found,) = said_of(monkeypatch, hour_of(8, 4), future=[("east-0", NOON + 9 * HOUR)])
    assert "begins in the future" in found


def test_exactly_the_negative_hours_are_set_aside(monkeypatch):
    key = (EAST, "east-0", NOON, "USD")
    assert said_of(monkeypatch, hour_of(8, 12), price=6, set_aside=[key]) == []
    (missing,) = said_of(monkeypatch, hour_of(8, 12), price=6)
    assert "negative, and not set aside" in missing
    (needless,) = said_of(monkeypatch, hour_of(8, 4), set_aside=[key])
    assert "set aside, and not negative" in needless

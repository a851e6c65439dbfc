"""Simulated previews wait in simulated time, and what is judged of their answers."""

from types import SimpleNamespace
from typing import Any

import pytest

from devtools.simulation.core.scheduler import MICROSECONDS


class Clock:
    """What a desk needs of the scheduler; `on_sleep` is what others do meanwhile."""

    def __init__(self):
        self.now_us = 0
        self.current = SimpleNamespace(process=object())
        self.on_sleep = lambda: None

    def sleep(self, seconds):
        self.now_us += round(seconds * MICROSECONDS)
        self.on_sleep()


def module() -> Any:
    # Django must be set up before the gateway is imported, so this is not at the top.
    from devtools.simulation.requests import previewing  # noqa: PLC0415

    return previewing


def test_one_preview_of_a_process_waits_for_another_one_and_gives_up_in_time():
    clock = Clock()
    desk = module().Desk(clock)
    assert desk.acquire(timeout=5.0)
    assert not desk.acquire(timeout=5.0)
    assert clock.now_us == 5 * MICROSECONDS
    clock.on_sleep = desk.release
    assert desk.acquire(timeout=5.0)
    assert clock.now_us < 6 * MICROSECONDS


def test_another_process_has_its_own_desk():
    clock = Clock()
    desk = module().Desk(clock)
    assert desk.acquire(timeout=0.0)
    clock.current = SimpleNamespace(process=object())
    assert desk.acquire(timeout=0.0)


def foreseen(**given):
    empty = SimpleNamespace(jobs=())
    parts = {name: given.get(name, empty) for name in ("starts", "waits", "otherwise", "stops", "spared")}
    return SimpleNamespace(**parts)


@pytest.mark.parametrize(
    ("part", "is_anyway", "has_effect"),
    [("starts", False, True), ("waits", False, True), ("otherwise", False, True), ("spared", False, True),
     ("stops", False, True), ("stops", True, False)],
)  # fmt: skip
def test_what_differs_with_a_change_is_its_effect(part, is_anyway, has_effect):
    jobs = SimpleNamespace(jobs=(SimpleNamespace(is_anyway=is_anyway),))
    assert bool(module().effects_of(foreseen(**{part: jobs}))) is has_effect
    assert module().effects_of(foreseen()) == []


@pytest.mark.parametrize(("kind", "count"), [("previewed", 1), ("other", 0)])
def test_what_is_left_of_a_preview_is_objected_to(kind, count):
    world = SimpleNamespace(
        faults=SimpleNamespace(rates={kind: 1.0}),
        watch=SimpleNamespace(rows=lambda statement: [("the limit", "7")] if statement == module().LEFT else []),
    )
    assert len(module().a_preview_leaves_nothing(world)) == count

"""What a tenant sees of its share and of its turn."""

import pytest

from placement.answers.shares import share_lines
from placement.values.shares import FairShare, TenantShare
from simulator.shares import FairShareRule, PastUses
from simulator.values import TraceJob

from .fleets import uniform

FLEET = [uniform(1, 1, owner_path="")]
"""Eight GPUs."""


def tenant(path, weight=1.0, gpus=0, used=0.0):
    return TenantShare(path, weight, {"gpu": gpus * 1000}, {"gpu": used * 1000})


def lines(tenants, waiting, *wanted):
    found = share_lines(FairShare(tuple(tenants)), FLEET, waiting, wanted)
    assert list(found) == [one.path for one in found.values()] == list(wanted)
    return found


def test_the_least_share_with_waiting_jobs_has_the_first_turn():
    rows = [tenant("a/x", gpus=4), tenant("a/y", gpus=2), tenant("a/z"), tenant("b", gpus=8)]
    found = lines(rows, {"a/x": 3, "a/y/deep": 2, "b": 1}, "a", "a/x", "a/y", "a/z", "b")
    # z holds nothing, but none of its jobs waits; x comes after y, and b after all of a.
    assert {path: (one.waiting, one.turn) for path, one in found.items()} == {
        "a": (5, 1), "a/x": (3, 2), "a/y": (2, 1), "a/z": (0, None), "b": (1, 2),
    }  # fmt: skip
    assert found["a"].share == 6 / 8


def test_equal_shares_have_the_same_turn_and_own_jobs_take_turns_with_the_tenants_below():
    rows = [tenant("a", gpus=4), tenant("a/x", gpus=2), tenant("a/y", gpus=2), tenant("a/z", gpus=6)]
    found = lines(rows, {"a": 1, "a/x": 1, "a/y": 1, "a/z": 1}, "a/x", "a/y", "a/z")
    assert [one.turn for one in found.values()] == [1, 1, 4]


def test_parts_are_of_the_fleet_and_only_the_share_is_by_weight():
    found = lines([tenant("a", 2.0, gpus=2, used=1.0)], {}, "a")["a"]
    assert (found.weight, found.held, found.used, found.share) == (2.0, 2 / 8, 1 / 8, pytest.approx(3 / 8 / 2))


def test_in_a_replay_use_grows_from_nothing_by_half_of_what_is_missing_in_each_half_life_and_falls_likewise():
    past, two = PastUses(FairShareRule(half_life_seconds=100.0)), TraceJob("j", 0.0, 200.0, 1, 2, tenant="a")
    turns = ((100.0, [two]), (200.0, [two]), (300.0, []), (400.0, []))
    seen = [past.shares(running, now).tenants[0].used.get("gpu", 0) for now, running in turns]
    assert seen == [0, 1000, 1500, 750]

"""Credits for lost work: which part of a day, for which cause, by which policy, and what is missing of them."""

import itertools
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.credits import (
    CAUSE_MEANINGS,
    CreditPolicy,
    Loss,
    LossCause,
    credits_due,
    missing_credits,
    policy_on,
)
from billing.engine.ledger import corrected_cost, reversal_of

from .test_ledger import HOUR, KEY, NOON, books, correction, segment

RUN, OTHER = UUID(int=7), UUID(int=8)
POLICY = CreditPolicy(3, date(2026, 11, 1), frozenset({"node_lost", "spot"}))


def part(first=0, hours=1, run=RUN, **more):
    """Some hours of a run that began at noon, at 2.50."""
    whole = segment(hours=hours, **more)
    return replace(whole, start=NOON + first * HOUR, until=NOON + (first + hours) * HOUR, run_id=run)


def due(*segments, losses=None, policies=(POLICY,), prices=None):
    losses = {RUN: Loss("node_lost", NOON + HOUR)} if losses is None else losses
    return credits_due(KEY, segments, books() if prices is None else prices, losses, policies)


def amounts(entries):
    return {entry.key.rpartition("/")[2]: [line.amount for line in entry.lines] for entry in entries}


def test_the_part_after_the_last_checkpoint_is_credited():
    (entry,) = due(part(), part(1, 2), part(0, 5, OTHER))
    assert (entry.kind, entry.charge_day, entry.day) == ("credit", KEY.day, KEY)
    assert entry.key == f"credit/{KEY.name}/node_lost"
    assert entry.reason == "work lost, node_lost: policy 3"
    assert [(line.account, line.currency, line.amount, line.quantity) for line in entry.lines] == [
        (f"tenant_expense:{KEY.tenant_id}", "USD", -5, None), ("infrastructure", "USD", 5, None),
    ]  # fmt: skip


def test_a_segment_is_cut_where_its_loss_begins():
    half = {RUN: Loss("spot", NOON + HOUR / 2)}
    assert amounts(due(part(), losses=half)) == {"spot": [Decimal("-1.25"), Decimal("1.25")]}
    for at, credited in ((NOON - HOUR, {"spot": [Decimal("-2.5"), Decimal("2.5")]}), (NOON + HOUR, {})):
        assert amounts(due(part(), losses={RUN: Loss("spot", at)})) == credited


def test_each_cause_has_its_entry_and_others_are_charged():
    losses = {RUN: Loss("spot", NOON), OTHER: Loss("node_lost", NOON), UUID(int=9): Loss("device", NOON)}
    entries = due(part(), part(run=OTHER), part(run=UUID(int=9)), part(run=None), losses=losses)
    assert [entry.key.rpartition("/")[2] for entry in entries] == ["node_lost", "spot"]


def test_corrected_prices_count_and_unpriced_time_does_not():
    at_four = books(correction(7, 4, start=NOON, hours=1))
    assert amounts(due(part(), losses={RUN: Loss("spot", NOON)}, prices=at_four)) == {"spot": [-4, 4]}
    assert due(part(), losses={RUN: Loss("spot", NOON)}, prices={}) == ()


@pytest.mark.parametrize(
    ("policies", "number"),
    [
        ((), None),
        ((replace(POLICY, effective_from=date(2026, 12, 1)),), None),
        ((POLICY, replace(POLICY, number=2)), 3),
        ((replace(POLICY, number=9, effective_from=date(2026, 10, 1)), POLICY), 3),
        ((POLICY, replace(POLICY, number=4, causes=frozenset())), 4),
    ],
)
def test_the_latest_policy_that_has_begun_applies(policies, number):
    found = policy_on(policies, KEY.day)
    assert (found and found.number) == number
    assert bool(due(part(1), policies=policies)) == (number == 3)


def test_what_is_missing_is_posted_once_and_what_is_wrong_is_taken_back():
    wanted = due(part(1))
    (first,) = missing_credits(wanted, (), ())
    assert first.key == f"{wanted[0].key}/1"
    assert missing_credits(wanted, [first], ()) == ()
    other = due(part(1, 2))
    back, second = missing_credits(other, [first], ())
    assert (back, second.key) == (reversal_of(first), f"{wanted[0].key}/2")
    # the first content again has a key of its own
    again, third = missing_credits(wanted, [first, second], {first.key})
    assert (again.reverses, third.key, third.lines) == (second.key, f"{wanted[0].key}/3", first.lines)
    assert missing_credits((), [first, second], {first.key}) == (reversal_of(second),)
    assert missing_credits((), [first], {first.key}) == ()


def test_another_policy_of_equal_effect_is_another_content():
    (first,) = missing_credits(due(part(1)), (), ())
    newer = due(part(1), policies=(POLICY, replace(POLICY, number=4)))
    back, second = missing_credits(newer, [first], ())
    assert (back.reverses, second.reason) == (first.key, "work lost, node_lost: policy 4")


@given(st.lists(st.integers(1, 3_599_999), max_size=4), st.integers(-10, 4_000_000), st.integers(1, 5))
def test_cuts_change_no_credit_and_none_exceeds_its_charge(cuts, lost_after, gpus):
    bounds = sorted({0, 3_600_000, *cuts})
    whole = part(gpus=gpus)
    at = [NOON + timedelta(milliseconds=one) for one in bounds]
    pieces = [replace(whole, start=a, until=b) for a, b in itertools.pairwise(at)]
    losses = {RUN: Loss("spot", NOON + timedelta(milliseconds=lost_after))}
    cut, uncut = due(*pieces, losses=losses), due(whole, losses=losses)
    assert cut == uncut
    charged = corrected_cost(whole, books())[0]["USD"]
    assert all(-charged <= line.amount * 10**12 <= charged for entry in cut for line in entry.lines)


def test_every_cause_has_a_meaning():
    assert set(CAUSE_MEANINGS) == set(LossCause)

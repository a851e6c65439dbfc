"""When a running job moves to a cheaper place, or to one where it meets its deadline."""

import itertools
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.answers import cheaper, in_time
from placement.answers.left_work import left_of
from placement.cycle.cycle import decide
from placement.ranking.deadlines import MARGIN_SECONDS, START_SECONDS, Haste, late_places
from placement.values.model import PriceChange, Runtime, Snapshot
from placement.values.moving import CourseOfRun, Side
from tests.engine.fleets import NOW, cluster, flavor, job, node, pods
from tests.laws import examples

PODS = (pods(gpus=1),)
HOUR = timedelta(hours=1)
RATE = 0.05


def priced(changes, capacity_type="on_demand"):
    """A flavor whose price changed so many hours ago each."""
    past = tuple(
        PriceChange(NOW - hours * HOUR, Decimal(price)) for hours, price in sorted(changes.items(), reverse=True)
    )
    one = replace(flavor(capacity_type=capacity_type), unit_price=past[-1].unit_price, price_changes=past)
    return replace(one, interruptions_per_hour=RATE) if capacity_type == "spot" else one


def side(number, price, *, spot=False, away=300, since=100, **more):
    changes = price if isinstance(price, dict) else {since: price}
    return Side(
        UUID(int=number), f"c{number}", (priced(changes, "spot" if spot else "on_demand"),), away_seconds=away, **more
    )


def course(left=8 * 3600, *, lost=60, **more):
    known = {"lost_seconds": lost, "least_left_seconds": left, "most_left_seconds": left, "exposed_seconds": 600}
    return CourseOfRun(**(known | more))


def saves(here, there, run, now=NOW):
    return cheaper.decide(PODS, here, there, run, now)


def test_it_moves_where_it_costs_less_and_says_what_it_saves():
    found = saves(side(1, "4"), side(2, "2"), course())
    assert (found.price_here, found.price_there, found.saving) == (Decimal(4), Decimal(2), Decimal(16))
    # 30 s to stop at 4 an hour; 300 s to start, and 60 s of repeated work, at 2
    assert found.cost == Decimal("0.233333")
    assert found.counted_seconds == 8 * 3600


@pytest.mark.parametrize(
    ("here", "there", "run"),
    [
        (side(1, "2"), side(2, "2"), course()),
        (side(1, "2"), side(2, "1.95"), course()),
        (side(1, "4"), side(2, "2"), course(left=360)),
        (side(1, "4"), side(2, "2"), course(left=None)),
        (side(1, "4"), side(2, "2", away=8 * 3600), course()),
        (side(1, "4"), side(2, "2", egress=Decimal(16)), course()),
        (side(1, "4"), side(2, "2", egress=None), course()),
        (side(1, "4"), side(2, "2", pace=2.0), course()),
        (side(1, "4"), side(2, {100: "4", 0.1: "2"}), course()),
        (side(1, "4"), side(2, "2"), course(last_moved_at=NOW - timedelta(minutes=29))),
        (side(1, "4"), side(2, "2"), course(saving_moves_today=2)),
        (side(1, "4"), side(2, "2"), course(moves_today=3)),
        (side(1, "4"), side(2, "2"), course(most_seconds=8 * 3600)),
        (side(1, "4"), side(2, "2", spot=True), course(finish_by=NOW + 8.6 * HOUR)),
    ],
    ids=[
        "as dear", "hardly cheaper", "nearly done", "unknown work", "far away", "egress", "unknown egress", "slower",
        "cheaper since minutes", "rests", "twice today", "three moves today", "stopped before", "deadline",
    ],
)  # fmt: skip
def test_it_stays_where_a_move_does_not_pay(here, there, run):
    assert saves(here, there, run) is None


def test_announced_prices_count():
    rises = priced({100: "4"})
    dearer = replace(rises, price_changes=(*rises.price_changes, PriceChange(NOW + HOUR, Decimal(1))))
    here = replace(side(1, "4"), flavors=(dearer,))
    assert saves(here, side(2, "3"), course()) is None
    assert saves(side(1, "4"), side(2, "3"), course()) is not None


def test_interruptions_that_lose_more_than_the_price_saves_keep_it_where_it_is():
    risky = side(2, "3.9", spot=True)
    assert saves(side(1, "4.2"), risky, course(exposed_seconds=60)) is not None
    assert saves(side(1, "4.2"), risky, course(exposed_seconds=20 * 3600)) is None


def test_between_spot_places_no_longer_counts_than_they_last():
    here, there = side(1, "4", spot=True), side(2, "3", spot=True)
    assert (
        saves(here, there, course(left=90 * 3600)).counted_seconds == 10 * 3600
    )  # two places that are lost every 20 hours
    assert saves(side(1, "4"), there, course(left=90 * 3600)).counted_seconds == 90 * 3600


def test_a_job_that_has_time_waits_for_cheaper_spot_capacity():
    taken, other = flavor(price="1", capacity_type="spot"), flavor(price="4")
    fleet = (cluster(1, [node("a", taken, 8, 0), node("b", other)], [taken, other]),)
    only_others = cluster(2, [node("c", other)], [other])
    asked = {"submitted_at": NOW, "estimated_seconds": 3600, "checkpoint_seconds": 600, "deadline_seconds": 86_400}
    asked |= {"strategy": "spread", "moves": "when_cheaper", "finish_within_seconds": 7200}

    def placed(**more):
        return decide(Snapshot(NOW, fleet, (job(**(asked | more)),)))

    found = placed()
    assert not found.placements
    [wait] = found.waits
    assert "has room" not in wait.message
    [dearer] = decide(Snapshot(NOW, (*fleet, only_others), (job(**asked),))).waits[0].per_cluster[1:]
    assert (dearer.is_for_good, "while it has time to wait for that" in dearer.message) == (False, True)
    assert [one.pod_sets[0].flavor for one in placed(finish_within_seconds=5000).placements] == [other.name]
    for more in ({"moves": "when_needed"}, {"finish_within_seconds": None}, {"capacity_types": ("on_demand",)}):
        assert placed(**more).placements
    dear = replace(taken, unit_price=Decimal("3.9"))
    fleet = (cluster(1, [node("a", dear, 8, 0), node("b", other)], [dear, other]),)
    assert placed().placements
    fleet = (cluster(1, [node("b", other)], [other]),)
    assert placed().placements


def test_a_currency_is_not_compared_with_another_one():
    other = side(2, "1")
    assert saves(side(1, "4"), replace(other, flavors=(replace(other.flavors[0], currency="EUR"),)), course()) is None


def test_off_spot_at_the_last_moment_from_which_an_interruption_leaves_enough_time():
    left, run = 3600, course(left=3600, exposed_seconds=600, lost=0)
    here, there = side(1, "1", spot=True, away=0), side(2, "4")
    last = timedelta(seconds=left + 600 + 300 + MARGIN_SECONDS)
    assert in_time.decide(here, there, replace(run, finish_by=NOW + last), NOW) is None
    found = in_time.decide(here, there, replace(run, finish_by=NOW + last - timedelta(seconds=1)), NOW)
    assert found.is_off_spot
    assert found.ends_there_at <= found.finish_by < found.ends_here_at
    assert in_time.decide(here, there, replace(run, finish_by=NOW + timedelta(seconds=left)), NOW) is None  # too late
    assert in_time.decide(here, side(2, "1", spot=True), replace(run, finish_by=NOW + last - HOUR / 12), NOW) is None


def test_from_slow_capacity_to_faster_if_only_that_is_in_time():
    run = course(left=4 * 3600, lost=0, finish_by=NOW + 3 * HOUR)
    fast = side(2, "8", pace=0.5)
    assert in_time.decide(side(1, "4", away=0), fast, run, NOW) is not None
    assert in_time.decide(side(1, "4", away=0), side(2, "8", pace=0.9), run, NOW) is None
    assert in_time.decide(side(1, "4", away=0), fast, replace(run, finish_by=NOW + 5 * HOUR), NOW) is None


def test_what_is_left_is_as_the_program_reports_else_what_is_known_of_such_jobs():
    known = Runtime(3600, 7200, 14_400, 9, "job")
    assert left_of(known, 14_400, 1800, None) == (1800, 12_600)
    assert left_of(known, 14_400, 20_000, None) == (0, 1440)
    assert left_of(None, 86_400, 0, None) == (None, 86_400)
    assert left_of(known, 14_400, 1800, 1000.0) == (900, 1100)
    assert left_of(known, 2850, 1800, 1000.0) == (900, 1050)
    assert left_of(known, 1900, 1800, 1000.0) == (900, 1000)


def test_waiting_jobs_go_to_spot_only_while_an_interruption_leaves_enough_time():
    paces, spot, serves = np.ones(2), np.array([True, False]), np.array([True, True])
    enough = 3600 + 2 * START_SECONDS + 600 + MARGIN_SECONDS

    def late(seconds):
        return late_places(Haste(NOW + timedelta(seconds=seconds), 3600, 600), NOW, paces, spot, serves).tolist()

    assert (late(enough), late(enough - 1)) == ([0, 0], [1, 0])
    assert late(3600) == [2, 1]  # late everywhere: rather where it is not interrupted
    assert late_places(Haste(NOW + HOUR, 9000, 600), NOW, paces, spot, ~spot).tolist() == [2, 1]


prices = st.decimals("0.01", "20", places=2)
histories = st.dictionaries(st.integers(0, 60), prices, min_size=1, max_size=6)
sides = st.builds(
    side,
    st.integers(1, 3),
    histories,
    spot=st.booleans(),
    away=st.integers(0, 4000),
    pace=st.sampled_from([0.5, 1.0, 2.0]),
    egress=st.none() | st.decimals(0, 5, places=2),
)
courses = st.builds(
    course,
    st.none() | st.integers(0, 200_000),
    lost=st.integers(0, 7200),
    exposed_seconds=st.integers(1, 7200),
    moves_today=st.integers(0, 4),
    saving_moves_today=st.integers(0, 3),
    last_moved_at=st.none() | st.integers(0, 7200).map(lambda seconds: NOW - timedelta(seconds=seconds)),
    most_left_seconds=st.integers(0, 300_000),
    finish_by=st.none() | st.integers(0, 400_000).map(lambda seconds: NOW + timedelta(seconds=seconds)),
)


@pytest.mark.law
@examples(400)
@given(sides, sides, courses)
def test_nothing_moves_unless_it_saves_more_than_it_costs(here, there, run):
    found = saves(here, there, run)
    if found is None:
        return
    assert found.saving > found.cost >= 0
    assert found.counted_seconds <= run.least_left_seconds
    assert found.cheaper_since <= NOW - timedelta(seconds=found.counted_seconds)
    assert run.last_moved_at is None or run.last_moved_at + cheaper.REST <= NOW
    assert run.saving_moves_today < cheaper.MOST_SAVING_MOVES_A_DAY
    # what it has paid too much since the other place is cheaper is at least what moving costs
    times = (there.pace / here.pace) if not (here.is_spot or there.is_spot) else None
    if times is not None:
        for at in {found.cheaper_since, *(c.at for s in (here, there) for c in s.flavors[0].price_changes)}:
            if found.cheaper_since <= at <= NOW:
                assert price(there, at) * Decimal(times) < price(here, at)


def price(one, at):
    return [change.unit_price for change in one.flavors[0].price_changes if change.at <= at][-1]


@pytest.mark.law
@examples(150)
@given(st.integers(1, 600), st.integers(2, 20), st.integers(0, 900))
def test_prices_that_alternate_faster_than_a_move_pays_move_nothing_and_others_pay_for_each_move(minutes, dear, lost):
    """Two clusters whose prices change places: the job never pays for more moves than it loses by staying."""
    flips = [
        PriceChange(NOW + timedelta(minutes=minutes * n), Decimal(dear if n % 2 else 1))
        for n in range(-2, 3000 // minutes)
    ]
    others = [PriceChange(one.at, Decimal(1) if one.unit_price == dear else Decimal(dear)) for one in flips]
    places = [
        replace(side(n, "1"), flavors=(replace(flavor(), price_changes=tuple(own)),))
        for n, own in ((1, flips), (2, others))
    ]
    at, last, moves, regret, paid = 0, None, [], Decimal(0), Decimal(0)
    for minute in range(0, 3000, 5):
        now = NOW + timedelta(minutes=minute)
        # announced prices are unknown: only the past counts
        known = [
            replace(
                one,
                flavors=(
                    replace(
                        one.flavors[0], price_changes=tuple(c for c in one.flavors[0].price_changes if c.at <= now)
                    ),
                ),
            )
            for one in places
        ]
        today = sum(now - one < timedelta(days=1) for one in moves)
        run = course(left=500_000, lost=lost, last_moved_at=last, moves_today=today, saving_moves_today=today)
        found = saves(replace(known[at], away_seconds=0), known[1 - at], run, now)
        here, there = price(known[at], now), price(known[1 - at], now)
        if found is not None:
            moves.append(now)
            paid += found.cost
            assert paid <= regret + Decimal(5 * dear) / 60
            at, last = 1 - at, now
        regret += max(Decimal(0), here - there) * 5 / 60
    assert all(later - earlier >= cheaper.REST for earlier, later in itertools.pairwise(moves))
    if (dear - 1) * minutes * 60 <= 30 * dear + 300 + lost:
        assert not moves


@pytest.mark.law
@examples(150)
@given(
    work=st.integers(1800, 40_000),
    every=st.integers(60, 3000),
    room=st.floats(0, 3),
    gaps=st.lists(st.integers(30, 20_000), min_size=1, max_size=40),
)
def test_a_deadline_that_on_demand_can_meet_is_never_missed(work, every, room, gaps):
    """The pure model: spot is taken away at the worst times, the job saves every `every` seconds, and looks are 15 s apart."""
    step = 15
    lasting = START_SECONDS + work
    finish = lasting + step + round(room * work)
    now, done, saved, starting, on_spot, began = 0, 0, 0, 0, None, 0
    taken = itertools.cycle(gaps)
    next_gap = next(taken)
    here, there = side(1, "1", spot=True, away=0), side(2, "4", away=START_SECONDS)
    while done < work:
        if on_spot is None:
            haste = Haste(NOW + timedelta(seconds=finish), work - saved, min(work - saved, every))
            late = late_places(
                haste, NOW + timedelta(seconds=now), np.ones(2), np.array([True, False]), np.array([True, True])
            )
            on_spot, done, starting, began = late[0] <= 0, saved, START_SECONDS, 0
        elif on_spot and began >= next_gap:
            on_spot, next_gap = None, next(taken)
            continue
        elif on_spot and not starting:
            left = work - done
            run = course(left, lost=done - saved, exposed_seconds=every, finish_by=NOW + timedelta(seconds=finish))
            if in_time.decide(here, there, run, NOW + timedelta(seconds=now)) is not None:
                now += cheaper.STOP_SECONDS
                on_spot, done, starting = False, saved, START_SECONDS
        now, began = now + step, began + step
        worked = step - min(step, starting)
        starting = max(0, starting - step)
        done = min(work, done + worked)
        saved = max(saved, done // every * every)
    assert now <= finish + step

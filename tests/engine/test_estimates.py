"""What a run is expected to cost, part by part, and what a move of it changes."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from placement.answers.estimates import Estimate, estimate_in, estimate_of, record_of
from placement.answers.moves import gpu_hours, quoted
from placement.answers.quota_rooms import FlavorRoom, flavor_room
from placement.values.datasets import Egress, Move
from placement.values.decisions import InterruptionRisk, Placement, PodSetPlacement, Pull, Wait
from placement.values.model import Runtime, UserLimitState
from placement.values.preemption import RESTART_SECONDS
from quotas.engine.borrowing import Book
from quotas.engine.origin import Lenders

from .fleets import NOW, flavor, job, limit, pods, snapshot, uniform
from .preemption_worlds import run_on

OF = flavor(price="3")
HERE = uniform(1, 1, OF)
RUN = Runtime(600, 1800, 3600, 7, "job")


def placed(**more):
    where = (PodSetPlacement("worker", OF.name, (), {"c1-n000": 1}),)
    return Placement(UUID(int=9), HERE.id, "c1", where, {"gpu": 8000}, Decimal(3), "USD", Decimal(24), **more)


def asked(**more):
    return job(pods(1, 8), **more)


def test_an_estimate_is_of_the_median_run_its_repeated_work_and_its_data():
    plain = estimate_of(asked(), placed(), HERE, RUN, NOW)
    assert (plain, plain.total) == (Estimate(1800, Decimal(12), Decimal(0), Decimal(0)), 12)
    risk, moved = InterruptionRisk(0.5, 1800, 0.2, Decimal(30)), Egress(Decimal("1.5"), ())
    full = estimate_of(asked(), placed(risk=risk, egress=moved), HERE, RUN, NOW)
    assert (full, full.total) == (Estimate(1800, Decimal(12), Decimal(3), Decimal("1.5")), Decimal("16.5"))
    third = estimate_of(asked(), placed(risk=replace(risk, lost_share=0.25)), HERE, replace(RUN, p50_seconds=900), NOW)
    assert third.interruptions == Decimal(2)


@pytest.mark.parametrize(
    ("parts", "total"),
    [((1, 2, 3), 6), ((None, 2, 3), None), ((1, None, 3), None), ((1, 2, None), None), ((0, 0, 0), 0)],
)
def test_a_sum_with_an_unknown_part_is_unknown(parts, total):
    assert Estimate(60, *(None if part is None else Decimal(part) for part in parts)).total == total


def test_without_a_run_time_or_a_price_the_cost_of_the_run_is_unknown():
    moved = Egress(Decimal(5), ())
    assert estimate_of(asked(), placed(egress=moved), HERE, None, NOW) == Estimate(None, None, None, Decimal(5))
    free = replace(HERE, flavors={OF.name: replace(OF, unit_price=None)})
    assert estimate_of(asked(), placed(), free, RUN, NOW) == Estimate(1800, None, None, Decimal(0))
    unknown = estimate_of(asked(), placed(egress=Egress(None)), HERE, RUN, NOW)
    assert (unknown.egress, unknown.total) == (None, None)


def test_an_estimate_is_stored_as_text_with_six_decimals_and_read_back():
    estimate = Estimate(1800, Decimal("1.23456789"), None, Decimal(2))
    moves = (Move("imagenet", "eu", 7, Decimal("0.5")), Move("logs", "", None, None))
    record = record_of(estimate, Egress(Decimal(2), moves))
    assert record == {
        "seconds": 1800, "run": "1.234568", "interruptions": None, "egress": "2.000000",
        "moves": [
            {"data": "imagenet", "from_region": "eu", "size_bytes": 7, "cost": "0.500000"},
            {"data": "logs", "from_region": "", "size_bytes": None, "cost": None},
        ],
    }  # fmt: skip
    assert estimate_in(record) == (replace(estimate, run=Decimal("1.234568")), moves)
    assert record_of(estimate, None)["moves"] == []


def test_a_move_starts_after_the_stop_and_the_pull_and_costs_the_work_since_the_checkpoint():
    run, given = run_on(1, {"c1-n000": 1}, gpus=8), snapshot([HERE], [])
    own = replace(run, pods=(replace(run.pods[0], flavor=OF.name),))
    plain = quoted(given, asked(), own, placed())
    assert (plain.at, plain.hourly_cost, plain.currency) == (NOW, 24, "USD")
    assert plain.expected_start == NOW + timedelta(seconds=RESTART_SECONDS)
    pulled = quoted(given, asked(), own, placed(pull=Pull("i", 0, 1, 40)))
    assert pulled.expected_start == NOW + timedelta(seconds=RESTART_SECONDS + 40)
    assert [plain.lost_cost(seconds) for seconds in (0, 1, 1800)] == [0, Decimal("0.006667"), 12]
    waits = quoted(given, asked(), own, Wait(UUID(int=9), "waiting_for_capacity", "no room"))
    assert (waits.expected_start, waits.hourly_cost) == (None, 24)


def test_a_run_whose_cluster_or_flavor_is_gone_or_has_no_price_costs_nothing_known():
    own = run_on(1, {"c1-n000": 1}, gpus=8)
    own = replace(own, pods=(replace(own.pods[0], flavor=OF.name),))
    euros = replace(HERE, flavors={OF.name: replace(OF, currency="EUR", unit_price=None)})
    unpriced = quoted(snapshot([euros], []), asked(), own, placed())
    assert (unpriced.hourly_cost, unpriced.currency, unpriced.lost_cost(60)) == (None, "EUR", None)
    other = replace(own, pods=(replace(own.pods[0], flavor="gone"),))
    for clusters, run in (([], own), ([HERE], other), ([uniform(2)], own)):
        found = quoted(snapshot(clusters, []), asked(), run, placed())
        assert (found.hourly_cost, found.currency) == (None, "USD")
    two = job(pods(1, 8), pods(1, 0, name="head"))
    assert quoted(snapshot([HERE], []), two, own, placed()).hourly_cost is None


def test_gpu_hours_are_told_to_a_thousandth():
    run = run_on(1, {"n": 1}, gpus=2)
    assert [gpu_hours(run, seconds) for seconds in (3600, 1, 0)] == [2, Decimal("0.001"), 0]
    assert gpu_hours(replace(run, amounts={}), 3600) == 0


ADA = UUID(int=77)


def left_of(limits, per_user=(), **more):
    book = Book(limits, per_user)
    return flavor_room(OF, book.chains("acme/ml", "c1", ADA), Lenders(limits, book), **{"has_gpu": True} | more)


def test_of_several_limits_on_a_flavor_the_tightest_counts():
    gpu = limit("acme/ml", "gpu", 6000, 1000, guaranteed=4000, nominal=4000)
    model = limit("acme/ml", f"gpu:{OF.gpu_model}", 5000, 2000, nominal=5000)
    top = limit("acme", "gpu", 20_000, 4000, nominal=20_000)
    assert left_of([gpu, top]) == FlavorRoom(OF.name, "gpu", 3000, 3000, 2000, 0, ())
    assert left_of([gpu, top, model]) == FlavorRoom(OF.name, "gpu", 0, 3000, 0, 0, ())
    cores = limit("acme/ml", "cpu", 9000, 1000, nominal=8000)
    assert left_of([gpu, top, cores], has_gpu=False) == FlavorRoom(OF.name, "cpu", 0, 8000, 0, 0, ())
    assert left_of([gpu, top], has_gpu=False) == FlavorRoom(OF.name, "cpu", None, None, None, 0, ())


def test_a_limit_on_each_user_is_no_guarantee_but_leaves_no_more_than_it_has():
    each = UserLimitState(UUID(int=50), "acme", "gpu", 2000, {ADA: 500})
    assert left_of([], [each]) == FlavorRoom(OF.name, "gpu", 1500, 1500, 0, 0, ())
    gpu = limit("acme/ml", "gpu", 6000, 1000, guaranteed=4000, nominal=4000)
    top = limit("acme", "gpu", 20_000, 4000, nominal=20_000)
    assert left_of([gpu, top], [each]) == FlavorRoom(OF.name, "gpu", 1500, 1500, 0, 0, ())
    small = replace(gpu, guaranteed=1200)
    assert left_of([small, top], [each]).guaranteed == 200


def test_who_may_take_back_what_is_borrowed_is_named_once_and_in_order():
    whole = limit("acme", "gpu", 30_000, 20_000, nominal=30_000)
    own = limit("acme/ml", "gpu", 30_000, 12_000, nominal=8000)
    takers = [limit(f"acme/{name}", "gpu", 9000, 0, nominal=8000, reclaims=True) for name in "zb"]
    model = limit("acme/ml", f"gpu:{OF.gpu_model}", 30_000, 9000, nominal=8000)
    found = left_of([whole, own, *takers, model])
    assert (found.owed, found.reclaimers, found.borrowable) == (4000, ("acme/b", "acme/z"), 10_000)

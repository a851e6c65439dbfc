"""The pool without places in the benchmark of shares: its orders, worked out by hand, and that lies bring nothing in it."""

from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.shares.pool import ORDERS, compare_liars, compare_orders, play
from simulator.values import TraceJob
from tests.laws import examples


def asked(name, submitted, seconds, gpus, tenant="a", **more):
    return TraceJob(
        name, float(submitted), float(seconds), 1, gpus, tenant=tenant, **({"estimated_seconds": seconds} | more)
    )


def waits(jobs, gpus, order, weights=None):
    found = play(jobs, gpus, ORDERS[order], weights or {})
    return {job.name: wait for job, wait in found.waits.items()}, found


CROWD = [
    asked("first", 0, 1000, 4, "a"),
    asked("long", 10, 5000, 4, "b"),
    asked("short", 500, 100, 4, "a"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        # at 1000 s the ratios are 990 / 5000 and 500 / 100
        ("ratio", {"first": 0, "long": 1090, "short": 500}),
        # a holds nothing then either: its name decides; after that only b waits
        ("least_share", {"first": 0, "long": 1090, "short": 500}),
        ("below_part", {"first": 0, "long": 1090, "short": 500}),
    ],
)
def test_jobs_start_by_ratio_where_tenants_hold_nothing(order, expected):
    assert waits(CROWD, 4, order)[0] == expected


def test_the_tenant_with_the_least_share_by_weight_goes_first():
    jobs = [
        asked("a0", 0, 9000, 2, "a"),
        asked("b0", 0, 1000, 2, "b"),
        asked("a1", 1, 60, 2, "a"),
        asked("b1", 1, 60_000, 2, "b"),
    ]
    assert waits(jobs, 4, "ratio")[0]["a1"] == 999
    assert waits(jobs, 4, "least_share")[0]["b1"] == 999
    assert waits(jobs, 4, "below_part")[0]["b1"] == 999
    # of weight 3, a is not beyond its part with three quarters; its own share is still 2 / 3 when b has nothing
    assert waits(jobs, 4, "least_share", {"a": 3.0})[0]["b1"] == 999


def test_who_holds_too_much_is_what_the_others_lack():
    """a took all; b wants half, for as long as a runs."""
    jobs = [asked("a0", 0, 1000, 4, "a"), asked("b0", 100, 60, 4, "b"), asked("end", 2000, 1, 1, "c")]
    found = waits(jobs, 4, "least_share")[1]
    assert (found.contended, found.share_error) == (900.0, pytest.approx(0.5))


@pytest.mark.law
@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 4000), st.integers(1, 8), st.sampled_from("abc")), min_size=1, max_size=30),
    st.sampled_from(sorted(ORDERS)),
)  # fmt: skip
@examples(60)
def test_all_run_once_never_more_than_there_is_and_nobody_waits_beside_room(rows, order):
    jobs = [asked(str(number), *row) for number, row in enumerate(rows)]
    found = play(jobs, 8, ORDERS[order], {"a": 2.0}).waits
    assert sorted(job.name for job in found) == sorted(job.name for job in jobs)
    spans = [(job.submitted + wait, job.submitted + wait + job.seconds, job.gpus) for job, wait in found.items()]
    for job, wait in found.items():
        start = job.submitted + wait
        running = sum(gpus for begins, ends, gpus in spans if begins <= start < ends)
        assert running <= 8
        if wait:
            before = sum(gpus for begins, ends, gpus in spans if begins < start <= ends)
            assert before + job.gpus > 8, "it could have started before"


def crowd(count=400):
    """Jobs of a minute to 16 hours, one every five minutes."""
    return [
        asked(f"j{number}", number * 300, 60 * 10 ** (number * 0.6180339887 % 1 * 3), 1 + number % 4)
        for number in range(count)
    ]


@pytest.mark.law
def test_who_states_a_minute_for_everything_loses_more_than_others_do_although_nothing_is_known_of_them_first():
    """Half more is asked for than there is, from the beginning, and each user has only twenty jobs. Believed about the mean of their
    runs, the liars gained 13 %, and the others waited 12 % longer.
    """
    [row] = compare_liars({"made": crowd()}, seeds=6, load=1.5)
    change = {name: float(row[name].split(" ")[0]) for name in ("honest mean", "liars mean", "liars p95")}
    assert change["honest mean"] < 5
    assert change["liars mean"] > 40
    assert change["liars p95"] > 0


def test_the_tables_have_a_row_for_each_dealing_and_order_and_the_same_jobs_give_the_same():
    jobs = [replace(job, user="") for job in crowd(60)]
    rows = compare_orders(jobs, 40)
    assert rows == compare_orders(jobs, 40)
    assert len(rows) == 9
    assert {row["order"] for row in rows} == set(ORDERS)
    assert fmean(row["mean_wait_s"] for row in rows) >= 0

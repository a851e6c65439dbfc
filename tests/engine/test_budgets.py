"""What a run costs at most, and how a cycle keeps to budgets."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import ROUND_DOWN, Context, Decimal, localcontext
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.budgets import (
    Commitment,
    Terms,
    in_currency,
    period_at,
    period_name,
    periods_between,
    rounded_up,
    worst_case,
)
from billing.engine.rating import Load, PriceSpan, rate
from placement.answers.quotes import capacity, quote
from placement.cycle.cycle import decide
from placement.fleet.budgets import commitment_of
from placement.values.budgets import BudgetState, BudgetWindow
from placement.values.model import PriceChange, Release
from tests.laws import examples

from .fleets import A100, NOW, cluster, flavor, job, node, pods, snapshot

MONTHLY = Terms("money", "USD", "month")
FOREVER = NOW - timedelta(days=30), NOW + timedelta(days=365)


def budget(limit, *, tenant="acme", measure="money", spent=0, held=0, windows=None, number=1):
    currency = "USD" if measure == "money" else ""
    found = windows or (BudgetWindow(*FOREVER, Decimal(limit), Decimal(spent), Decimal(held)),)
    return BudgetState(UUID(int=number), tenant, measure, currency, "year", tuple(found))


def at(price, number=1, **more):
    """A cluster of whole H100s at this price."""
    of = flavor(price=price)
    return cluster(number, [node(f"n{number}", of)], [of], **more)


def asked(**more):
    return job(pods(1, 2), deadline_seconds=7200, **more)


@pytest.mark.parametrize(
    ("period", "moment", "expected", "name"),
    [
        ("month", datetime(2026, 12, 31, 23, 59, tzinfo=UTC), ("2026-12-01", "2027-01-01"), "2026-12"),
        ("month", datetime(2028, 2, 29, tzinfo=UTC), ("2028-02-01", "2028-03-01"), "2028-02"),
        ("quarter", datetime(2026, 11, 25, tzinfo=UTC), ("2026-10-01", "2027-01-01"), "2026-Q4"),
        ("quarter", datetime(2026, 3, 31, tzinfo=UTC), ("2026-01-01", "2026-04-01"), "2026-Q1"),
        ("year", datetime(2026, 1, 1, tzinfo=UTC), ("2026-01-01", "2027-01-01"), "2026"),
    ],
)
def test_periods_are_of_the_calendar_in_utc(period, moment, expected, name):
    terms = Terms("money", "USD", period)
    span = period_at(terms, moment)
    assert tuple(f"{one:%Y-%m-%d}" for one in span) == expected
    assert period_name(terms, span) == name


def test_a_time_is_in_the_period_of_its_utc_day_whatever_its_offset():
    moment = datetime(2026, 12, 1, 0, 30, tzinfo=UTC).astimezone()
    assert period_at(MONTHLY, moment)[0] == datetime(2026, 12, 1, tzinfo=UTC)


def test_a_budget_of_dates_has_one_period():
    terms = Terms("money", "USD", "dates", datetime(2026, 11, 3, tzinfo=UTC), datetime(2026, 11, 6, tzinfo=UTC))
    assert period_at(terms, datetime(2026, 11, 6, tzinfo=UTC)) is None
    span = period_at(terms, datetime(2026, 11, 5, 23, tzinfo=UTC))
    assert period_name(terms, span) == "2026-11-03 to 2026-11-05"
    assert list(periods_between(terms, datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))) == [span]
    assert not list(periods_between(terms, datetime(2026, 11, 6, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)))


@pytest.mark.law
@given(
    st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31), timezones=st.just(UTC)),
    st.integers(1, 30 * 86_400),
    st.decimals(0, 100, places=6),
    st.integers(1, 16),
    st.lists(st.floats(0, 1), max_size=4),
    st.floats(0, 1),
)
@examples(150)
def test_no_metered_cost_exceeds_the_worst_case_of_its_period(start, seconds, price, gpus, cuts, part):
    """A run up to its deadline, metered in any pieces, in months: each pays at most what was held there."""
    start = start.replace(microsecond=0)
    end = start + timedelta(seconds=int(seconds * part))
    marks = sorted({start, end, *(start + timedelta(seconds=int((end - start).total_seconds() * cut)) for cut in cuts)})
    load, span = (
        Load("gpu", gpus, 1000, start),
        [PriceSpan(UUID(int=1), price, "USD", datetime(2020, 1, 1, tzinfo=UTC))],
    )
    commitment = Commitment(rounded_up(price * gpus), "USD", Decimal(gpus), start, seconds)
    spent = {}
    for begins, ends in pairwise(marks):
        for piece in rate(load, begins, ends, span):
            month = period_at(MONTHLY, piece.start)
            spent[month] = spent.get(month, Decimal(0)) + piece.cost
    for month, cost in spent.items():
        assert cost <= worst_case(MONTHLY, commitment, month)
    whole = sum(worst_case(MONTHLY, commitment, month) for month in periods_between(MONTHLY, start, commitment.ends_at))
    assert abs(whole - price * gpus * seconds / 3600) <= Decimal("1e-10")


def test_a_run_uses_of_a_period_only_what_falls_into_it():
    month = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
    run = Commitment(Decimal(3), "USD", Decimal(2), datetime(2026, 11, 30, 22, tzinfo=UTC), 6 * 3600)
    november, december = (worst_case(MONTHLY, run, span) for span in (month, period_at(MONTHLY, month[1])))
    assert (november, december) == (6, 12)
    assert worst_case(MONTHLY, run, (month[0], run.starts_at)) == 0
    assert worst_case(MONTHLY, run, (run.ends_at, run.ends_at + timedelta(days=1))) == 0
    hours = Terms("gpu_hours", "", "month")
    assert worst_case(hours, run, month) == 4
    # Money of another currency is not of this budget.
    assert worst_case(Terms("money", "EUR", "month"), run, month) == 0
    assert str(worst_case(MONTHLY, run._replace(money_an_hour=Decimal(1), seconds=7201), month)) == "2.000000000000"
    third = run._replace(money_an_hour=Decimal("0.000000000001"), seconds=1)
    assert worst_case(MONTHLY, third, month) == Decimal("0.000000000001"), "rounded up"


def test_periods_between_two_times_include_that_of_the_end():
    def begins(start, until, period="month"):
        return [f"{span[0]:%Y-%m}" for span in periods_between(Terms("money", "USD", period), start, until)]

    november = datetime(2026, 11, 1, tzinfo=UTC)
    assert begins(november, november) == ["2026-11"]
    assert begins(november, datetime(2026, 12, 1, tzinfo=UTC)) == ["2026-11", "2026-12"]
    assert begins(november, datetime(2026, 11, 30, tzinfo=UTC)) == ["2026-11"]
    assert begins(november, datetime(2027, 2, 1, tzinfo=UTC), "quarter") == ["2026-10", "2027-01"]
    assert begins(november, datetime(2027, 2, 1, tzinfo=UTC), "year") == ["2026-01", "2027-01"]
    dated = Terms("money", "USD", "dates", november, datetime(2026, 11, 6, tzinfo=UTC))
    for start, until, touches in ((6, 9, 0), (5, 9, 1), (1, 1, 1)):
        found = list(periods_between(dated, november.replace(day=start), november.replace(day=until)))
        assert len(found) == touches
    assert not list(periods_between(dated, november - timedelta(days=2), november - timedelta(seconds=1)))
    assert list(periods_between(dated, november - timedelta(days=2), november)) != []


def test_the_worst_case_is_at_the_highest_announced_price_until_the_deadline():
    dear = PriceChange(NOW + timedelta(hours=1), Decimal(9))
    dearer = PriceChange(NOW + timedelta(hours=3), Decimal(90))
    offered = replace(flavor(price=2), price_changes=(dear, dearer))
    found = commitment_of(asked(), [offered], NOW)
    assert (found.money_an_hour, found.gpus, found.seconds, found.currency) == (18, 2, 7200, "USD")


def test_slices_count_as_their_part_of_a_gpu_pods_without_one_as_none_and_unpriced_pods_as_no_money():
    sliced = flavor(sharing="mig:1g.10gb", price=None)
    found = commitment_of(job(pods(7, 1, mig="1g.10gb")), [sliced], NOW)
    assert (found.money_an_hour, found.currency, found.seconds) == (0, "", 86_400)
    assert found.gpus == 1
    bare = commitment_of(job(pods(2, 1, name="a"), pods(5, 0, name="b")), [flavor(), flavor(None)], NOW)
    assert bare.gpus == 2
    half_priced = commitment_of(
        job(pods(1, 1, name="a"), pods(1, 1, name="b")), [flavor(price=3), flavor(price=None)], NOW
    )
    assert half_priced.money_an_hour == 3


def test_a_job_goes_to_a_cheaper_place_if_the_budget_does_not_suffice_for_the_best_one():
    wide = flavor(price=2)
    dear = cluster(1, [node("n1", wide), node("n2", wide)], [wide])
    wanted = asked(strategy="spread")
    for limit, expected in ((8, "c1"), (7, "c2"), (4, "c2")):
        given_snapshot = snapshot([dear, replace(at(1, 2), nodes=(node("n3", flavor(), 8, 7),))], [wanted])
        placed = decide(replace(given_snapshot, budgets=(budget(limit),))).placements
        assert [one.cluster for one in placed] == [expected]


def test_a_job_without_budget_waits_with_the_numbers():
    given_snapshot = replace(snapshot([at(2)], [asked()]), budgets=(budget(10, spent=3, held=2),))
    wait = decide(given_snapshot).waits[0]
    assert wait.code == "waiting_for_budget"
    told = "needs up to 8.00 USD; the budget of acme for 2026 is 10.00 USD: 3.00 USD spent, 2.00 USD held"
    assert wait.message == told
    assert [(reason.code, reason.message, reason.is_for_good) for reason in wait.per_cluster] == [
        ("budget_reached", told, False)
    ]


def test_jobs_of_one_cycle_share_what_is_left_and_shorter_ones_still_fit():
    long, longer = asked(), asked()
    short = replace(asked(), deadline_seconds=3600)
    given_snapshot = replace(snapshot([at(2), at(2, 2)], [long, longer, short]), budgets=(budget(12),))
    decisions = decide(given_snapshot)
    assert [one.job_id for one in decisions.placements] == [long.id, short.id]
    assert [one.job_id for one in decisions.waits] == [longer.id]


def test_gpu_hours_of_the_whole_path_count_and_cpu_work_does_not():
    given_snapshot = replace(
        snapshot([at(2)], [asked(), job(pods(1, 0), deadline_seconds=7200)]),
        budgets=(budget(100, measure="gpu_hours"), budget(3, measure="gpu_hours", tenant="acme/ml", number=2)),
    )
    decisions = decide(given_snapshot)
    assert (len(decisions.placements), [one.code for one in decisions.waits]) == (1, ["waiting_for_budget"])
    assert "acme/ml for 2026 is 3.00 GPU-hours" in decisions.waits[0].message


def test_budgets_of_others_bind_nobody_else():
    given_snapshot = replace(snapshot([at(2)], [asked()]), budgets=(budget(0, tenant="acme/other"),))
    assert len(decide(given_snapshot).placements) == 1


def test_each_period_that_a_run_touches_must_have_enough():
    later = NOW + timedelta(hours=1)
    first = BudgetWindow(NOW - timedelta(days=1), later, Decimal(100))
    second = BudgetWindow(later, later + timedelta(days=1), Decimal(3))
    given_snapshot = replace(snapshot([at(2)], [asked()]), budgets=(budget(0, windows=(first, second)),))
    assert decide(given_snapshot).waits[0].code == "waiting_for_budget"
    enough = replace(second, limit=Decimal(4))
    given_snapshot = replace(given_snapshot, budgets=(budget(0, windows=(first, enough)),))
    assert len(decide(given_snapshot).placements) == 1


def test_a_place_without_a_price_costs_nothing():
    given_snapshot = replace(snapshot([at(None)], [asked()]), budgets=(budget(0),))
    assert len(decide(given_snapshot).placements) == 1
    hours = replace(given_snapshot, budgets=(budget(0, measure="gpu_hours"),))
    assert decide(hours).waits[0].code == "waiting_for_budget"


def test_a_quote_and_a_capacity_say_what_budgets_leave():
    given_snapshot = replace(snapshot([at(2)], []), budgets=(budget(20),))
    found = capacity(asked(), given_snapshot)
    assert (found.total, found.within_quota, found.clusters[0].within_quota) == (4, 2, 2)
    refused = quote(asked(), replace(given_snapshot, budgets=(budget(7),)))
    assert (refused.offers, refused.wait.code, refused.later) == ((), "waiting_for_budget", ())
    unlimited = capacity(asked(), replace(given_snapshot, budgets=()))
    assert unlimited.within_quota == 4


def test_each_budget_on_the_path_must_pay():
    for limits, jobs in (((20, 8), 1), ((8, 20), 1), ((20, 20), 2)):
        both = budget(limits[0]), budget(limits[1], tenant="acme/ml", number=2)
        assert capacity(asked(), replace(snapshot([at(2)], []), budgets=both)).within_quota == jobs


def test_a_budget_leaves_as_many_jobs_as_it_pays_for_of_the_cheapest_flavor():
    cheap, dear = flavor(price=1), flavor(A100, price=4)
    both = cluster(1, [node("a", dear), node("b", cheap)], [cheap, dear])
    given_snapshot = replace(snapshot([both], []), budgets=(budget(8),))
    found = capacity(asked(), given_snapshot)
    assert (found.total, found.within_quota, found.clusters[0].within_quota) == (8, 2, 2)


def test_lent_nodes_are_for_jobs_within_budget_too():
    """Nodes are kept for a gang; a short job may borrow one only if its tenant can pay."""
    of = flavor()
    fleet = [cluster(1, [node("n0", of, 8, 8), node("n1", of, 8, 0)], [of])]
    gang = job(pods(2, 8), submitted_at=NOW - timedelta(hours=1), deadline_seconds=3600, tenant="acme/other")
    short = job(pods(1, 1), deadline_seconds=600)
    release = Release(NOW + timedelta(minutes=30), UUID(int=1), of.name, 8, 1000, 1024, {"n1": 1})
    given_snapshot = replace(snapshot(fleet, [gang, short]), releases=(release,))
    assert [one.job_id for one in decide(given_snapshot).placements] == [short.id]
    poor = replace(given_snapshot, budgets=(budget(0, measure="gpu_hours", tenant="acme/ml"),))
    assert decide(poor).placements == ()


def in_euros(limit, rates=(), **more):
    return replace(budget(limit, **more), currency="EUR", rates=rates)


@pytest.mark.parametrize(("limit", "placed"), [("1.999999", 0), ("2", 1), ("3.999999", 1), ("4", 2)])
def test_a_budget_in_another_currency_counts_prices_at_todays_rate(limit, placed):
    jobs = [asked(), asked()]
    found = decide(snapshot([at("2")], jobs, budgets=(in_euros(limit, (("USD", Decimal("0.25")),)),)))
    assert len(found.placements) == placed


def test_a_price_without_a_rate_is_refused_by_the_budget_and_not_by_one_of_gpu_hours():
    found = decide(snapshot([at("2")], [asked()], budgets=(in_euros("1000000", (("CHF", Decimal(1)),)),)))
    [wait] = found.waits
    assert (wait.code, found.placements) == ("waiting_for_budget", ())
    assert wait.message.startswith(
        "no exchange rate from USD to EUR counts today, so the budget of acme cannot count the price"
    )
    hours = budget("1000", measure="gpu_hours")
    assert len(decide(snapshot([at("2")], [asked()], budgets=(hours,))).placements) == 1
    assert len(decide(snapshot([at(None)], [asked()], budgets=(in_euros("1"),))).placements) == 1


def test_a_price_that_is_left_out_for_want_of_a_rate_is_not_free():
    unknown = replace(flavor(price=None), unconverted="CHF")
    place = cluster(1, [node("n1", unknown)], [unknown])
    found = decide(snapshot([place], [asked()], budgets=(budget("1000000"),)))
    assert "no exchange rate from CHF to USD counts today" in found.waits[0].message
    assert len(decide(snapshot([place], [asked()])).placements) == 1
    told = quote(asked(), snapshot([place], [], budgets=(budget("1000000"),)))
    assert told.offers == ()
    assert capacity(asked(), snapshot([place], [], budgets=(budget("1000000"),))).within_quota == 0


@pytest.mark.law
@given(
    st.decimals(0, 100, places=6),
    st.decimals("0.000000000001", 10**6, places=12),
    st.lists(st.integers(1, 86_400_000), min_size=1, max_size=5),
)
@examples(150)
def test_what_is_used_at_one_rate_never_exceeds_what_is_held_at_it(price, rate_of_day, lengths):
    """Each segment is rounded towards zero, the worst case up; in pieces of any length."""
    terms = Terms("money", "EUR", "year")
    begins = datetime(2026, 3, 1, tzinfo=UTC)
    seconds = -(-sum(lengths) // 1000)
    held = in_currency(Commitment(price, "USD", Decimal(1), begins, seconds), "EUR", rate_of_day)
    spent, load = Decimal(0), Load("gpu", 1, 1000, begins)
    span, at_ = [PriceSpan(UUID(int=1), price, "USD", datetime(2020, 1, 1, tzinfo=UTC))], begins
    for milliseconds in lengths:
        until = at_ + timedelta(milliseconds=milliseconds)
        with localcontext(Context(prec=100)):
            spent += sum(
                (piece.cost * rate_of_day).quantize(Decimal("1e-12"), ROUND_DOWN)
                for piece in rate(load, at_, until, span)
            )
        at_ = until
    assert spent <= worst_case(terms, held, period_at(terms, begins))


def test_a_run_is_in_the_currency_of_the_pods_that_have_a_price():
    free, paid = flavor(A100, price=None), replace(flavor(price="3"), currency="EUR")
    pair = job(pods(1, 1), pods(1, 1, name="second"), deadline_seconds=3600)
    assert commitment_of(pair, (free, paid), NOW)[:2] == (3, "EUR")
    assert commitment_of(pair, (free, free), NOW)[:2] == (0, "")
    later = replace(free, currency="CHF", price_changes=(PriceChange(NOW + timedelta(minutes=1), Decimal(2)),))
    assert commitment_of(pair, (free, later), NOW)[:2] == (2, "CHF")

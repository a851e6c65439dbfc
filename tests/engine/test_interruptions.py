"""Spot capacity costs its price and the work that interruptions take: laws, and what they make placement choose."""

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.answers.quotes import Quoter, quote
from placement.cycle.cycle import decide
from placement.ranking.interruptions import MOST_TIMES, are_interrupted, exposed_seconds, risk_text, slowdown
from placement.values.decisions import InterruptionRisk, Placement
from placement.values.model import Runtime

from .fleets import A100, H100, cluster, flavor, job, node, pods, snapshot, uniform

HOUR = 3600
DAY = 24 * HOUR
MONTH = 30 * DAY
rates = st.floats(0, 100, allow_nan=False)
lengths = st.integers(1, MONTH)


def spot(price, often, *, model=H100, name="spot"):
    return replace(flavor(model, price=price, capacity_type="spot", name=name), interruptions_per_hour=often)


def times(often, seconds):
    return float(slowdown(np.array([often], dtype=np.float64), seconds)[0])


@given(rates, rates, lengths, lengths)
def test_more_risk_and_longer_intervals_never_make_work_cheaper(one, other, short, long):
    low, high = sorted((one, other))
    brief, lasting = sorted((short, long))
    slack = 1 + 1e-12
    assert 1 <= times(low, brief) <= MOST_TIMES
    assert times(low, brief) <= times(high, brief) * slack
    assert times(low, brief) <= times(low, lasting) * slack


@given(lengths)
def test_what_is_never_interrupted_costs_its_price(seconds):
    assert times(0.0, seconds) == 1.0


def test_an_hour_of_work_takes_what_daly_says_and_about_what_young_says():
    assert times(0.05, 10 * HOUR) == pytest.approx((2.718281828459045**0.5 - 1) / 0.5 * (1 + 0.05 / 12))
    restarts = 0.01 / 12
    assert times(0.01, HOUR) == pytest.approx(1 + 0.01 / 2 + restarts, abs=1e-4)
    assert times(100.0, MONTH) == MOST_TIMES


def fleet(on_demand="2.00", price="1.60", often=0.05):
    """On demand in c1, a fifth cheaper as spot in c2."""
    return [uniform(1, of=flavor(price=on_demand)), uniform(2, of=spot(price, often))]


def chosen(clusters, *, strategy="cheapest", **more):
    found = decide(snapshot(clusters, [job(pods(1, 8), strategy=strategy, **more)])).placements[0]
    assert isinstance(found, Placement)
    return found


def test_one_flavor_with_interruptions_makes_a_fleet_interrupted():
    assert are_interrupted(fleet())
    assert not are_interrupted(fleet(often=0.0))
    assert not are_interrupted([])


@pytest.mark.parametrize("strategy", ["cheapest", "balanced"])
def test_a_long_job_goes_to_spot_only_if_it_writes_checkpoints(strategy):
    asked = {"strategy": strategy, "estimated_seconds": 20 * HOUR, "deadline_seconds": DAY}
    plain = chosen(fleet(), **asked)
    assert (plain.cluster, plain.risk) == ("c1", None)
    kept = chosen(fleet(), checkpoint_seconds=HOUR // 2, **asked)
    assert (kept.cluster, kept.hourly_cost) == ("c2", Decimal("12.8"))
    assert (kept.risk.per_hour, kept.risk.exposed_seconds) == (0.05, HOUR // 2)
    assert kept.hourly_cost < kept.risk.hourly_cost < 16
    assert float(kept.risk.hourly_cost) == pytest.approx(12.8 / (1 - kept.risk.lost_share), rel=1e-4)
    assert (kept.risk.hourly_cost.as_tuple().exponent, round(kept.risk.lost_share, 6)) == (-6, kept.risk.lost_share)
    assert risk_text(kept.risk) == "spot, about 2 % of the work expected to be lost"
    assert chosen(fleet(often=0.0), **asked).risk is None
    assert chosen(fleet(often=0.0), **asked).cluster == "c2"


@given(st.lists(st.tuples(rates, lengths, st.none() | lengths), min_size=1, max_size=6))
def test_a_riskier_offer_is_never_taken_over_the_same_one_with_less_risk(cases):
    for often, seconds, checkpoint in cases:
        clusters = [uniform(1, of=spot("1", often + 1)), uniform(2, of=spot("1", often))]
        assert chosen(clusters, estimated_seconds=seconds, checkpoint_seconds=checkpoint).cluster in {
            "c2",
            capped(often, seconds, checkpoint),
        }


def capped(often, seconds, checkpoint):
    """Where both are as bad as it gets, the first by name."""
    return "c1" if times(often, min(seconds, checkpoint or seconds)) >= MOST_TIMES * (1 - 1e-9) else "c2"


def test_what_a_job_loses_is_its_run_or_less():
    history = {"k": Runtime(1, 10 * HOUR, 1, 5, "job")}
    told = job(kind="k", estimated_seconds=60)
    assert exposed_seconds(job(), {}) == HOUR
    assert exposed_seconds(job(deadline_seconds=60), {}) == 60
    assert exposed_seconds(job(estimated_seconds=7), {}) == 7
    assert exposed_seconds(told, history) == pytest.approx(10 * HOUR, rel=0.125)
    assert exposed_seconds(replace(told, checkpoint_seconds=900), history) == 900
    assert exposed_seconds(job(estimated_seconds=7, checkpoint_seconds=900), {}) == 7
    assert exposed_seconds(job(kind="k"), {"k": Runtime(0, 0, 0, 1, "job")}) == 1


@given(lengths, lengths)
def test_runs_that_history_expects_to_be_longer_are_exposed_longer(one, other):
    short, long = (
        exposed_seconds(job(kind="k"), {"k": Runtime(1, seconds, MONTH, 9, "job")}) for seconds in sorted((one, other))
    )
    assert short <= long
    assert abs(short - min(one, other)) <= max(1, min(one, other) / 8)


def test_jobs_of_one_shape_are_ranked_each_by_how_long_it_runs():
    queue = [job(pods(1, 8), shape="s", strategy="cheapest", kind=kind) for kind in ("long", "short")]
    known = {"long": Runtime(DAY, DAY, DAY, 9, "job"), "short": Runtime(HOUR, HOUR, HOUR, 9, "job")}
    decided = decide(replace(snapshot(fleet(), queue), runtimes=known))
    assert [placed.cluster for placed in decided.placements] == ["c1", "c2"]


def test_a_gang_is_interrupted_with_any_of_its_flavors_and_once_with_the_same():
    both = cluster(
        1, [node("a", one := spot("1", 0.1)), node("b", two := spot("1", 0.2, model=A100, name="other"))], [one, two]
    )
    mixed = chosen_gang(both, pods(1, 8, models=[H100]), pods(1, 8, models=[A100], name="rest"))
    assert mixed.risk.per_hour == pytest.approx(0.3)
    same = chosen_gang(both, pods(1, 4, models=[H100]), pods(1, 4, models=[H100], name="rest"))
    assert same.risk.per_hour == pytest.approx(0.1)


def chosen_gang(one, *pod_sets):
    return decide(snapshot([one], [job(*pod_sets)])).placements[0]


def test_an_unpriced_offer_tells_its_risk_without_a_figure():
    placed = chosen([uniform(1, of=spot(None, 0.1))])
    assert (placed.hourly_cost, placed.risk.hourly_cost) == (None, None)
    assert risk_text(placed.risk) == "spot, about 6 % of the work expected to be lost"
    assert "less than 1 %" in risk_text(chosen([uniform(1, of=spot("1", 0.001))]).risk)


@pytest.mark.law
@given(
    st.tuples(st.sampled_from([0.0, 0.05, 3.0]), st.sampled_from([0.0, 0.2])),
    st.sampled_from(["cheapest", "balanced", "soonest", "pack", "spread"]),
    st.lists(st.tuples(lengths, st.none() | lengths), min_size=1, max_size=4),
)
def test_a_quote_is_what_the_cycle_would_do(often, strategy, asked):
    clusters = [uniform(1, nodes=2), *(uniform(n, nodes=1, of=spot("1.8", rate)) for n, rate in enumerate(often, 2))]
    known = {"k": Runtime(1, 9 * HOUR, DAY, 3, "job")}
    ahead = [job(pods(1, 8), strategy=strategy, estimated_seconds=s, checkpoint_seconds=c) for s, c in asked[1:]]
    wanted = job(pods(1, 8), strategy=strategy, kind="k", checkpoint_seconds=asked[0][1])
    found = Quoter(snapshot(clusters, ahead)).quote(wanted, known)
    decided = decide(replace(snapshot(clusters, [*ahead, wanted]), runtimes=known))
    assert found.offers[0].placement == next(one for one in decided.placements if one.job_id == wanted.id)
    again = quote(wanted, replace(snapshot(clusters, ahead), runtimes=known))
    assert [offer.placement for offer in again.offers] == [offer.placement for offer in found.offers]


def test_from_one_percent_a_risk_is_told_as_a_figure():
    def told(share):
        return risk_text(InterruptionRisk(0.01, 60, share, None))

    assert told(0.01) == "spot, about 1 % of the work expected to be lost"
    assert told(0.0099) == "spot, less than 1 % of the work expected to be lost"

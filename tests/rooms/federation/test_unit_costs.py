"""What a job costs: the report counts every attempt of the jobs that ended in the range, and nothing else."""

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import product

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.models import Price
from billing.operations import record_lost_work
from billing.operations.corrections import NewCorrection, correct_price
from billing.operations.credits import NewCreditPolicy, set_credit_policy
from billing.operations.exchange import set_billing_currency
from billing.queries import costs_of, usage_report
from federation.queries.unit_costs import JobFilters, unit_cost_report
from foundation.problems import Invalid, NotFound
from tenancy.models import Tenant
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bind, make_user
from tests.rooms.billing.ledgers import at, priced_cluster

from .ended_jobs import MONTH, STATES, ended_job, person, six, used

pytestmark = pytest.mark.django_db


@pytest.fixture
def north():
    return priced_cluster()


def test_the_month_of_a_job_is_that_of_its_end_whenever_it_ran(north):
    ended_job("succeeded", at(1), (north, at(28, month=9), 48), (north, at(30, 22, month=9), 2))
    before = unit_cost_report(SYSTEM, "acme", (at(1, month=9), at(1)))
    assert (before.rows, before.bridges[0].others) == ((), Decimal(125))
    (bridge,) = unit_cost_report(SYSTEM, "acme", MONTH).bridges
    assert (bridge.cost, bridge.outside, bridge.inside, bridge.usage_cost) == (125, 125, 0, 0)


def test_a_success_costs_what_its_group_spent_on_the_way(north):
    ended_job("succeeded", at(5), (north, at(4), 1), (north, at(4, 2), 1), (north, at(4, 4), 2))
    ended_job("failed", at(6), (north, at(5), 4))
    ended_job("cancelled", at(7))
    (row,) = unit_cost_report(SYSTEM, "acme", MONTH).rows
    assert (row.jobs, row.succeeded, row.failed, row.cancelled) == (3, 1, 1, 1)
    assert (row.cost, row.cost_per_job, row.cost_per_successful_job) == (20, six(Fraction(20, 3)), 20)
    assert (row.gpu_hours, row.gpu_hours_per_successful_job, row.unsuccessful_share) == (8, 8, Decimal("0.5"))


def test_nothing_is_divided_by_nothing(north):
    empty = unit_cost_report(SYSTEM, "acme", MONTH)
    assert (empty.rows, empty.bridges, empty.totals[0].cost, empty.totals[0].cost_per_job) == ((), (), 0, None)
    ended_job("cancelled", at(5))
    (row,) = unit_cost_report(SYSTEM, "acme", MONTH).rows
    assert (row.jobs, row.cost, row.cost_per_job, row.cost_per_successful_job) == (1, 0, 0, None)
    assert (row.unsuccessful_share, row.currency) == (None, "USD")


def test_corrections_and_credits_count_whenever_they_are_posted(north):
    job = ended_job("succeeded", at(5, 12), (north, at(30, 20, month=9), 8))
    lost = used(job, north, at(5), 4)
    other = ended_job("failed", at(6), (north, at(5), 3))
    late = ended_job("succeeded", at(3, month=11), (north, at(31, 12), 4))
    first = unit_cost_report(SYSTEM, "acme", MONTH).rows[0]
    assert first.cost == Decimal("37.5")
    set_credit_policy(SYSTEM, NewCreditPolicy("acme", at(1, month=9).date(), ("node_lost",)))
    record_lost_work({lost.run_id: ("node_lost", at(5, 1))})
    assert unit_cost_report(SYSTEM, "acme", MONTH).rows[0].cost == 30
    price = Price.objects.get(rate__cluster=north)
    correct_price(SYSTEM, NewCorrection(price.id, Decimal(5), "USD", at(30, 22, month=9), at(5, 3), "typo"))
    correct_price(SYSTEM, NewCorrection(price.id, Decimal(4), "USD", at(31), at(1, month=11), "typo"))
    report = unit_cost_report(SYSTEM, "acme", MONTH)
    costs = costs_of([job.id, other.id])
    assert sum(cost.amount for cost in costs.values()) == report.rows[0].cost == 55
    assert [one.currency for one in report.totals] == ["USD"]
    usage = {total.currency: total.cost for total in usage_report(SYSTEM, "acme", *MONTH).totals}
    assert {one.currency: one.usage_cost for one in report.bridges} == usage
    assert {one.currency: (one.outside, one.others) for one in report.bridges} == {"USD": (15, 16)}
    (november,) = unit_cost_report(SYSTEM, "acme", (at(1, month=11), at(1, month=12))).rows
    assert (november.currency, november.jobs, november.cost) == ("USD", 1, costs_of([late.id])[late.id].amount)


def test_a_job_counts_in_each_currency_that_it_costs_something_in_and_money_is_never_added_up(north):
    set_billing_currency(SYSTEM, "acme", at(1, month=9).date(), "USD")
    east = priced_cluster("east", currency="EUR")
    ended_job("failed", at(5), (north, at(4), 1), (east, at(4, 2), 2))
    ended_job("succeeded", at(5), (east, at(4), 1))
    ended_job("succeeded", at(5))
    rows = {row.currency: (row.jobs, row.succeeded, row.cost) for row in unit_cost_report(SYSTEM, "acme", MONTH).rows}
    assert rows == {"EUR": (3, 2, Decimal("7.5")), "USD": (1, 0, Decimal("2.5"))}


def test_visibility_is_that_of_usage(north):
    ended_job("succeeded", at(5), (north, at(4), 1))
    ended_job("succeeded", at(5), (north, at(4), 2), path="acme/two")
    ended_job("succeeded", at(5), (north, at(4), 4), path="zeta/one")
    member, stranger = make_user(), make_user()
    bind(member, "acme/two", "viewer")
    for path in ("", "acme/two"):
        report = unit_cost_report(actor_for(member), path, MONTH, ["tenant"])
        assert [(row.keys["tenant"], row.cost) for row in report.rows] == [("acme/two", 5)]
        assert [one.usage_cost for one in report.bridges] == [5]
    for actor, path in product((actor_for(member), actor_for(stranger)), ("acme/one", "zeta", "zeta/one", "nowhere")):
        with pytest.raises(NotFound):
            unit_cost_report(actor, path, MONTH)
    for filters in (JobFilters(user=person("ada").email), JobFilters(job_name="train"), JobFilters(label=("a", "b"))):
        assert unit_cost_report(actor_for(stranger), "", MONTH, ["user"], filters).rows == ()


def test_a_moved_tenants_jobs_stay_under_the_path_in_which_they_last_ran(north):
    ended_job("succeeded", at(5), (north, at(4), 1))
    both = ended_job("succeeded", at(7), (north, at(5), 2))
    change_tenant(SYSTEM, Tenant.objects.get(path="acme/one").id, name="new")
    used(both, north, at(6), 4, path="acme/new")
    ended_job("cancelled", at(7), path="acme/new")
    rows = {
        row.keys["tenant"]: (row.jobs, row.cost) for row in unit_cost_report(SYSTEM, "acme", MONTH, ["tenant"]).rows
    }
    assert rows == {"acme/one": (1, Decimal("2.5")), "acme/new": (2, Decimal(15))}
    for path, cost, outside, others in (("acme/one", "2.5", 0, 5), ("acme/new", "15", 5, 0)):
        report = unit_cost_report(SYSTEM, path, MONTH)
        (bridge,) = report.bridges
        assert (report.totals[0].cost, bridge.outside, bridge.others) == (Decimal(cost), outside, others)
        assert bridge.usage_cost == usage_report(SYSTEM, path, *MONTH).total.cost


@pytest.mark.parametrize(
    ("words", "span", "code"),
    [
        (["cluster"], MONTH, "unknown_group"),
        (["label:"], MONTH, "unknown_group"),
        (["label:%(x)s"], MONTH, "unknown_group"),
        (["label:a\x00"], MONTH, "unknown_group"),
        (["label:a'||'"], MONTH, "unknown_group"),
        ([f"label:k{number}" for number in range(6)], MONTH, "too_many"),
        ([], (at(1, 1), at(2)), "not_whole_days"),
        ([], (at(1), at(1, 1)), "not_whole_days"),
        ([], (at(2), at(2)), "empty_period"),
        ([], (at(2), at(1)), "empty_period"),
        ([], (at(1), at(1) + timedelta(days=367)), "span_too_large"),
    ],
)
def test_what_makes_no_report_is_refused(words, span, code):
    with pytest.raises(Invalid) as refused:
        unit_cost_report(SYSTEM, "", span, words)
    assert [error.code for error in refused.value.errors] == [code]


def test_five_labels_and_a_leap_years_days_are_allowed():
    assert (
        unit_cost_report(SYSTEM, "", (at(1), at(1) + timedelta(days=366)), [f"label:k{n}" for n in range(5)]).rows == ()
    )


def test_it_asks_as_often_for_many_jobs_as_for_few_and_reads_no_segment(north):
    ended_job("succeeded", at(5), (north, at(4), 1))
    few, _ = asked()
    for number in range(20):
        ended_job(
            STATES[number % 3],
            at(5),
            (north, at(4), 1),
            (north, at(4, 3), 2),
            path=f"acme/t{number}",
            user=f"u{number}",
        )
    many, segments = asked()
    assert (many, segments) == (few, 0)
    assert few <= 18


def asked():
    with connection.cursor() as cursor:
        cursor.execute(READ)
        before = cursor.fetchone()[0]
        with CaptureQueriesContext(connection) as seen:
            assert unit_cost_report(SYSTEM, "acme", MONTH, ["tenant", "user"]).rows
        cursor.execute(READ)
        return len(seen), cursor.fetchone()[0] - before


READ = """
SELECT seq_tup_read + COALESCE(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = 'billing_usagesegment'
"""

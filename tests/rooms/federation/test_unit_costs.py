"""What a job costs: the report counts every attempt of the jobs that ended in the range, and nothing else."""

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import product

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.models import Price, UsageSegment
from billing.operations import record_lost_work
from billing.operations.corrections import NewCorrection, correct_price
from billing.operations.credits import NewCreditPolicy, set_credit_policy
from billing.operations.exchange import set_billing_currency
from billing.queries import costs_of, usage_report
from federation.models import Job
from federation.queries.unit_costs import JobFilters, unit_cost_report
from foundation.problems import Invalid, NotFound
from tenancy.models import Tenant
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bind, make_cluster, make_flavor, make_user
from tests.rooms.billing.ledgers import at, priced_cluster

from .ended_jobs import MONTH, ended_job, person, used, walked

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
HOURS = 3_600_000
STATES = ("succeeded", "failed", "cancelled")
KEYS = {
    "tenant": lambda job: job.tenant.path,
    "user": lambda job: job.created_by.email,
    "job_name": lambda job: job.name,
    "day": lambda job: f"{job.finished_at:%Y-%m-%d}",
    "month": lambda job: f"{job.finished_at:%Y-%m}",
    "label:team": lambda job: job.labels.get("team"),
    "label:x.example/stage": lambda job: job.labels.get("x.example/stage"),
}


@pytest.fixture
def north():
    return priced_cluster()


@pytest.fixture
def many(north):
    """Jobs of every state, end and currency, with attempts before, in and after the month, and of none."""
    set_billing_currency(SYSTEM, "acme", at(1, month=9).date(), "USD")
    east = priced_cluster("east", amount="1.7", currency="EUR")
    free = make_cluster(name="free")
    make_flavor(free)
    ends = (at(30, 23, month=9), at(1), at(17, 5), at(31, 23), at(1, month=11))
    places = ((), (north,), (east,), (free,), (north, east), (free, east), (north, north))
    for number, (state, end, where) in enumerate(product(STATES, ends, places)):
        runs = [
            (cluster, end - (20 - 7 * place) * HOUR, 5 + number % 7, {"gpu_units": 1 + number % 3})
            for place, cluster in enumerate(where)
        ]
        labels = {"team": "ab"[number % 2]} if number % 3 else {}
        ended_job(
            state, end, *runs, path=("acme/one", "acme/two", "acme")[number % 3], user=("ada", "bob")[number % 2],
            name=f"job-{number % 4}", **labels, **({"x.example/stage": ""} if number % 5 else {}),
        )  # fmt: skip
    ended_job("running", None, (north, at(10), 7))
    slice_of = {"sharing": "mig:1g.10gb", "gpu_model": "H100-80GB"}
    ended_job("failed", at(12), (north, at(12), 1, slice_of), (free, at(12), 3, slice_of), name="slices")
    assert UsageSegment.objects.count() > 100


def check(rows, expected, keys_of):
    """Each row is what the walk found; what is shown is within a unit of the last place, ratios are exact."""
    own = {(tuple(keys_of(row)), row.currency): row for row in rows}
    assert own.keys() == expected.keys()
    for key, (jobs, succeeded, failed, cancelled, cost, lost, gpu, unpriced) in expected.items():
        row = own[key]
        assert (row.jobs, row.succeeded, row.failed, row.cancelled) == (jobs, succeeded, failed, cancelled), key
        shown = (row.cost, row.unsuccessful_cost, row.gpu_hours, row.unpriced_gpu_hours)
        for value, exact in zip(shown, (cost, lost, gpu / HOURS, unpriced / HOURS), strict=True):
            assert abs(Fraction(value) - exact) < Fraction(1, 10**6), key
        of_all = (row.cost_per_job, row.gpu_hours_per_job)
        of_good = (row.cost_per_successful_job, row.gpu_hours_per_successful_job)
        assert of_all == tuple(six(value / jobs) for value in (cost, gpu / HOURS)), key
        assert of_good == tuple(six(value / succeeded) if succeeded else None for value in (cost, gpu / HOURS)), key
        assert row.unsuccessful_share == (six(lost / cost) if cost else None), key


def six(value):
    return Decimal(round(value * 10**6)).scaleb(-6)


def joined(expected):
    """The walk's sums with each job without a price in the first currency of its keys, else of the report."""
    usual = min((currency for _, currency in expected if currency), default="USD")
    found = {}
    for (key, currency), sums in sorted(expected.items(), key=lambda one: one[0][1], reverse=True):
        own = currency or min((other for at_key, other in expected if at_key == key and other), default=usual)
        found[key, own] = [one + two for one, two in zip(found.get((key, own), [0] * 8), sums, strict=True)]
    return found


@pytest.mark.parametrize(
    "words",
    [
        (),
        *((word,) for word in KEYS),
        ("tenant", "user", "label:team"),
        ("month", "label:team", "label:x.example/stage"),
    ],
    ids=",".join,
)
def test_every_row_is_what_a_walk_over_all_segments_gives(many, words):
    report = unit_cost_report(SYSTEM, "acme", MONTH, words)
    expected = joined(walked(lambda job: tuple(KEYS[word](job) for word in words)))
    check(report.rows, expected, lambda row: [row.keys[word] for word in words])
    whole = joined(walked(lambda job: ()))
    for total in report.totals:
        rows = [row for row in report.rows if row.currency == total.currency]
        for name in (
            "jobs",
            "succeeded",
            "failed",
            "cancelled",
            "cost",
            "unsuccessful_cost",
            "gpu_hours",
            "unpriced_gpu_hours",
        ):
            assert sum(getattr(row, name) for row in rows) == getattr(total, name), name
    assert sum(sums[4] for sums in whole.values()) > 0
    assert {total.currency for total in report.totals} == {"USD", "EUR"}


FILTERS = [
    (JobFilters(user="Ada@acme.example"), lambda job: job.created_by.email == "ada@acme.example"),
    (JobFilters(user="nobody@acme.example"), lambda job: False),
    (JobFilters(job_name="job-1"), lambda job: job.name == "job-1"),
    (JobFilters(job_name="job-%"), lambda job: False),
    (JobFilters(label=("team", "a")), lambda job: job.labels.get("team") == "a"),
    (JobFilters(label=("team", "")), lambda job: False),
    (JobFilters(label=("x.example/stage", "")), lambda job: job.labels.get("x.example/stage") == ""),
    (JobFilters("bob@acme.example", "job-3", ("team", "b")), lambda job: (job.created_by.email, job.name, job.labels.get("team")) == ("bob@acme.example", "job-3", "b")),
]  # fmt: skip


@pytest.mark.parametrize(("filters", "keeps"), FILTERS, ids=str)
def test_a_filter_keeps_its_jobs_alone_and_then_there_is_no_bridge(many, filters, keeps):
    report = unit_cost_report(SYSTEM, "acme", MONTH, ["tenant"], filters)
    expected = walked(lambda job: (job.tenant.path,), keeps=keeps)
    check(report.rows, joined(expected), lambda row: [row.keys["tenant"]])
    assert report.bridges == ()


@pytest.mark.parametrize(
    "span",
    [
        MONTH,
        (at(1, month=9), at(1)),
        (at(17), at(18)),
        (at(1, month=9), at(1, month=12)),
        (at(1, month=11), at(1, month=12)),
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["acme", "acme/one", ""])
def test_the_bridge_leads_to_the_cost_of_usage(many, span, path):
    report = unit_cost_report(SYSTEM, path, span)
    usage = {total.currency: total.cost for total in usage_report(SYSTEM, path, *span).totals}
    charged = {one.currency: one.usage_cost for one in report.bridges if one.usage_cost}
    assert charged == {key: cost for key, cost in usage.items() if cost}
    ended = set(Job.objects.filter(finished_at__gte=span[0], finished_at__lt=span[1]).values_list("id", flat=True))
    for one in report.bridges:
        assert one.cost == one.outside + one.inside
        assert one.usage_cost == one.inside + one.others
        own = UsageSegment.objects.filter(currency=one.currency)
        if path == "acme/one":
            own = own.filter(meter__tenant_path=path)
        here = [part for part in own.select_related("meter") if span[0] <= part.period.lower < span[1]]
        others = sum((Fraction(part.cost) for part in here if part.meter.workload_id not in ended), Fraction(0))
        assert abs(Fraction(one.others) - others) <= Fraction(1, 10**6)
        total = next((total.cost for total in report.totals if total.currency == one.currency), 0)
        assert one.cost == total


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

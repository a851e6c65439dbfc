"""What jobs cost, by every key, filter and span: each figure equals that of a walk over all segments."""

from datetime import timedelta
from fractions import Fraction
from itertools import product

import pytest

from billing.models import UsageSegment
from billing.operations.exchange import set_billing_currency
from billing.queries import usage_report
from federation.models import Job
from federation.queries.unit_costs import JobFilters, unit_cost_report
from tenancy.queries import SYSTEM
from tests.builders import make_cluster, make_flavor
from tests.kept_rows import once_a_module
from tests.rooms.billing.ledgers import at, priced_cluster

from .ended_jobs import MONTH, STATES, ended_job, six, walked

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
HOURS = 3_600_000
KEYS = {
    "tenant": lambda job: job.tenant.path,
    "user": lambda job: job.created_by.email,
    "job_name": lambda job: job.name,
    "day": lambda job: f"{job.finished_at:%Y-%m-%d}",
    "month": lambda job: f"{job.finished_at:%Y-%m}",
    "label:team": lambda job: job.labels.get("team"),
    "label:x.example/stage": lambda job: job.labels.get("x.example/stage"),
}


@once_a_module
def many():
    """Jobs of every state, end and currency, with attempts before, in and after the month, and of none."""
    north = priced_cluster()
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


@pytest.mark.parametrize(("filters", "keeps"), FILTERS, ids=[str(filters) for filters, _ in FILTERS])
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

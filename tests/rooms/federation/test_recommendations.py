"""Recommendations: who is in them and who just is not, their amounts recomputed from the ledger's segments, and who sees them."""

import csv
import io
from datetime import timedelta
from decimal import Decimal

import pytest

from billing.models import Meter, UsageSegment, UtilisationHour
from billing.operations import create_price, record_runs
from billing.operations.prices import NewPrice
from federation.models import Job
from federation.queries import recommendations as queries
from federation.queries.recommendations import recommendations
from foundation.ids import new_id
from foundation.problems import Invalid, NotFound
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_cluster, make_flavor, make_run, make_spec, make_tenant, make_user
from tests.rooms.billing.ledgers import SEPTEMBER, at, priced_cluster

pytestmark = pytest.mark.django_db
HOUR = 3600
OCTOBER, NOVEMBER = at(1), at(1, month=11)


def ran(
    cluster, job, *, seconds=HOUR, start=None, path="acme/one", name="train", used=None, seen=None, units=1, **fields
):
    """A pod of the job: for each hour of it the seconds that were seen, with this used part of them."""
    start = start or at(5, 10)
    given = {
        "gpu_model": "H100-80GB",
        "sharing": "whole",
        "gpu_units": units,
        "workload_id": job,
        "workload_name": name,
    }
    run = make_run(cluster, path, started_at=start, until_at=start + timedelta(seconds=seconds), **given | fields)
    record_runs([run])
    meter = Meter.objects.get(source_uid=run.source_uid)
    for number, one in enumerate(seen or []):
        UtilisationHour.objects.create(
            meter=meter, hour=start + timedelta(hours=number), coverage_seconds=one, utilisation=Decimal(used)
        )
    return meter


def failed(path="acme/one", name="train", *, state="failed", finished_at=None, **fields):
    finished_at = finished_at or at(5, 12)
    return Job.objects.create(
        tenant=make_tenant(path), created_by=make_user(), name=name, spec=make_spec(), shape="s", state=state,
        created_at=finished_at - timedelta(days=2), started_at=finished_at - timedelta(days=1),
        finished_at=None if state == "running" else finished_at, **fields,
    ).id  # fmt: skip


def found(path="", actor=SYSTEM, start=OCTOBER, until=NOVEMBER):
    return recommendations(actor, path, start, until)


def kinds(**which):
    return [one.kind.value for one in found(**which).items]


def spent(jobs, currency="USD"):
    """What the ledger's segments say that the jobs cost."""
    costs = UsageSegment.objects.filter(meter__workload_id__in=jobs, currency=currency).values_list("cost", flat=True)
    return round(sum(costs, Decimal(0)), 6)


@pytest.mark.parametrize(
    ("seconds", "seen", "used", "is_idle"),
    [
        (2 * HOUR, [HOUR], "0.049999", True),
        (2 * HOUR, [HOUR], "0.05", False),
        (2 * HOUR, [HOUR], "0", True),
        (2 * HOUR, [HOUR], "1", False),
        (2 * HOUR, [3599], "0", False),
        (2 * HOUR, [1800, 1800], "0", True),
        (2 * HOUR, [1800, 1799], "0", False),
        (2 * HOUR, [], None, False),
        (HOUR, [HOUR], "0", True),
    ],
)
def test_a_job_is_idle_from_an_hour_on_and_below_a_twentieth(seconds, seen, used, is_idle):
    ran(priced_cluster(), new_id(), seconds=seconds, seen=seen, used=used)
    assert kinds() == (["idle"] if is_idle else [])


def test_many_gpus_for_half_an_hour_are_no_hour():
    north, job = priced_cluster(), new_id()
    for _ in range(8):
        ran(north, job, units=8, seconds=1800, seen=[1800], used="0")
    assert kinds() == []


def test_what_an_idle_job_wasted():
    """Two GPUs at 2.50 for two hours: the first was seen in full at 4 %, of the second a quarter. A busy pod of another job is no part."""
    north, job = priced_cluster(), new_id()
    meter = ran(north, job, units=2, seconds=2 * HOUR, seen=[HOUR, 900], used="0.04")
    ran(north, new_id(), units=2, seconds=2 * HOUR, seen=[HOUR, HOUR], used="0.9")
    [one] = found().items
    assert (one.jobs[0].job, one.name, one.tenant, one.currency) == (job, "train", "acme/one", "USD")
    assert one.amount == Decimal("2.5") * 2 * Decimal("1.25") * Decimal("0.96")
    assert (one.allocated, one.measured, one.used) == (4, Decimal("2.5"), Decimal("0.1"))
    assert one.confidence == Decimal("0.625")
    assert meter.workload_id == job


def test_pods_of_a_job_count_together():
    """Alone, the first would be idle."""
    north, job = priced_cluster(), new_id()
    ran(north, job, seen=[HOUR], used="0.01")
    ran(north, job, seen=[HOUR], used="0.5")
    assert kinds() == []


@pytest.mark.parametrize(
    ("change", "is_listed"),
    [
        ({}, True),
        ({"seconds": 3599}, False),
        ({"state": "succeeded"}, False),
        ({"state": "cancelled"}, False),
        ({"state": "running"}, False),
        ({"name": "other"}, False),
        ({"path": "acme/two"}, False),
        ({"finished_at": NOVEMBER - timedelta(seconds=1)}, True),
        ({"finished_at": NOVEMBER}, False),
        ({"finished_at": OCTOBER}, True),
        ({"finished_at": OCTOBER - timedelta(seconds=1)}, False),
    ],
)
def test_the_third_late_failure_makes_it_a_pattern(change, is_listed):
    north = priced_cluster()
    jobs = []
    for more in ({}, {}, change):
        of_job = {name: value for name, value in more.items() if name in {"state", "name", "path", "finished_at"}}
        of_run = {name: value for name, value in more.items() if name in {"seconds", "name", "path"}}
        jobs.append(failed(**of_job))
        ran(north, jobs[-1], **of_run)
    items = found().items
    assert [one.kind.value for one in items] == (["late_failures"] if is_listed else [])
    for one in items:
        assert {row.job for row in one.jobs} == set(jobs)
        assert one.amount == spent(jobs)
        assert (one.measured, one.used, one.confidence) == (None, None, None)


def test_the_last_attempt_must_have_run_for_an_hour_and_all_attempts_cost():
    north = priced_cluster()
    jobs = [failed() for _ in range(3)]
    for job in jobs:
        ran(north, job, seconds=3 * HOUR, start=at(4, 1))
        ran(north, job, seconds=600, start=at(5, 10))
    assert kinds() == []
    for job in jobs:
        ran(north, job, seconds=HOUR, start=at(6, 10))
    [one] = found().items
    assert one.amount == spent(jobs) > 0
    assert one.allocated * 60 == 3 * (180 + 10 + 60)


def test_pods_of_one_attempt_are_one_run():
    """Two pods of half an hour, one after the other, are an attempt of an hour."""
    north = priced_cluster()
    for _ in range(3):
        job, run = failed(), new_id()
        ran(north, job, seconds=1800, run_id=run)
        ran(north, job, seconds=1800, run_id=run, start=at(5, 10) + timedelta(minutes=30))
    assert kinds() == ["late_failures"]


def test_only_the_cost_of_the_period_counts():
    north = priced_cluster()
    jobs = [failed(finished_at=at(6, 1)) for _ in range(3)]
    for job in jobs:
        ran(north, job, seconds=2 * HOUR, start=at(5, 23))
    [one] = found(start=at(6), until=at(7)).items
    assert (one.amount, one.allocated) == (Decimal("7.5"), 3)
    assert found(start=at(5), until=at(6)).items == ()


def test_currencies_are_never_mixed_and_time_without_a_price_has_no_amount():
    north, south = priced_cluster(), make_cluster("globex", name="south")
    make_flavor(south, "h100")
    create_price(SYSTEM, NewPrice("south", "h100", Decimal(3), currency="EUR", effective_from=SEPTEMBER))
    west = make_cluster(name="west")
    make_flavor(west, "h100")
    jobs = [failed() for _ in range(3)]
    for job in jobs:
        for number, cluster in enumerate((north, south, west)):
            ran(cluster, job, seen=[HOUR], used="0", start=at(5, 10 + number))
    report = found()
    assert [(one.kind.value, one.currency, one.amount) for one in report.items] == [
        *[("idle", "", None)] * 3,
        *[("idle", "EUR", Decimal(3))] * 3,
        *[("idle", "USD", Decimal("2.5"))] * 3,
        ("late_failures", "", None),
        ("late_failures", "EUR", Decimal(9)),
        ("late_failures", "USD", Decimal("7.5")),
    ]
    assert [(one.kind.value, one.currency, one.count, one.amount) for one in report.totals] == [
        ("idle", "", 3, None), ("idle", "EUR", 3, 9), ("idle", "USD", 3, Decimal("7.5")),
        ("late_failures", "", 1, None), ("late_failures", "EUR", 1, 9), ("late_failures", "USD", 1, Decimal("7.5")),
    ]  # fmt: skip


def test_the_largest_amounts_are_kept_and_the_others_counted(monkeypatch):
    monkeypatch.setattr(queries, "MOST_OF_A_KIND", 2)
    north = priced_cluster()
    for units in (1, 3, 2):
        ran(north, new_id(), units=units, seen=[HOUR], used="0")
    report = found()
    assert [one.amount for one in report.items] == [Decimal("7.5"), Decimal(5)]
    assert [(one.count, one.left_out, one.amount) for one in report.totals] == [(3, 1, 15)]


def test_usage_stays_under_the_path_that_it_had():
    north = priced_cluster()
    jobs = [failed() for _ in range(3)]
    for job in jobs:
        ran(north, job, seen=[HOUR], used="0")
    change_tenant(SYSTEM, make_tenant("acme/one").id, name="optics")
    assert {one.tenant for one in found("acme/one").items} == {"acme/one"}
    assert len(found("acme/one").items) == 4


@pytest.fixture
def october():
    """A late failing name of one team, an idle job of another, each with a name that a spreadsheet or a page would run."""
    north = priced_cluster()
    for _ in range(3):
        ran(north, failed(name="=1+1<b>"), name="=1+1<b>")
    idle = failed("acme/two", "<script>x</script>", state="succeeded")
    ran(north, idle, path="acme/two", name="<script>x</script>", seen=[HOUR], used="0.01")
    return north


QUERY = {"month": "2026-10"}


def reader(path="acme", role="viewer"):
    user = make_user()
    bind(user, path, role)
    return user


def test_page_json_and_csv_agree(client, october):
    user = reader()
    shown = client.get("/api/v1/recommendations/report", QUERY, headers=bearer(user)).json()
    sheet = client.get(
        "/api/v1/recommendations/report", QUERY | {"format": "csv"}, headers=bearer(user)
    ).content.decode()
    idle, late = list(csv.DictReader(io.StringIO(sheet)))
    assert [item["kind"] for item in shown["items"]] == ["idle", "late_failures"]
    for line, item in zip((idle, late), shown["items"], strict=True):
        for name in set(line) - {"first_job", "name"}:
            assert line[name] == ("" if item[name] is None else str(item[name]))
        assert line["first_job"] == item["jobs"][0]["id"]
    assert (late["name"], shown["items"][1]["name"]) == ("'=1+1<b>", "=1+1<b>")
    assert (shown["items"][0]["amount"], shown["items"][0]["confidence"]) == ("2.475000", "1.0000")
    assert (shown["items"][1]["job_count"], len(shown["items"][1]["jobs"])) == (3, 3)
    client.force_login(user)
    page = client.get("/usage/recommendations/month/", QUERY).content.decode()
    assert "&lt;script&gt;x&lt;/script&gt;" in page
    assert "<script>x" not in page
    assert f"/jobs/{shown['items'][0]['jobs'][0]['id']}/" in page
    assert "None of your clusters has a Prometheus" in page


def test_rows_of_others_are_absent(client, october):
    team, stranger = reader("acme/one"), reader("other", "admin")
    items = client.get("/api/v1/recommendations/report", QUERY, headers=bearer(team)).json()["items"]
    assert [item["tenant"] for item in items] == ["acme/one"]
    own = client.get("/api/v1/recommendations/report", QUERY, headers=bearer(stranger)).json()
    assert (own["items"], own["totals"]) == ([], [])
    for path in ("acme", "acme/one", "nothing", "a\x00b"):
        got = client.get("/api/v1/recommendations/report", QUERY | {"tenant": path}, headers=bearer(stranger))
        assert got.status_code in {404, 422}, path
    assert (
        client.get("/api/v1/recommendations/report", QUERY | {"tenant": "acme/two"}, headers=bearer(team)).status_code
        == 404
    )
    assert client.get("/api/v1/recommendations/report", QUERY).status_code == 401
    client.force_login(stranger)
    page = client.get("/usage/recommendations/month/", QUERY).content.decode()
    assert "acme" not in page
    assert "No idle jobs in this month" in page
    assert "No jobs that fail late in this month" in page


@pytest.mark.parametrize(
    ("start", "until", "code"),
    [
        (at(1, 1), at(2), "not_whole_days"),
        (at(2), at(2), "empty_period"),
        (at(1), at(1) + timedelta(days=367), "span_too_large"),
    ],
)
def test_what_is_refused(start, until, code):
    with pytest.raises(Invalid) as refused:
        found(start=start, until=until)
    assert [one.code for one in refused.value.errors] == [code]
    with pytest.raises(NotFound):
        found("nothing")

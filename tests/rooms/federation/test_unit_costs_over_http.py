"""Unit costs over HTTP and on their page: what they show, to whom, and what hostile text becomes."""

import csv
import io
from datetime import timedelta

import pytest

from billing.queries import costs_of
from federation.models import Attempt, Job
from federation.operations import Observations, record_observations
from federation.queries.unit_costs import unit_cost_report
from foundation.clock import now
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_user
from tests.rooms.billing.ledgers import at, priced_cluster

from .ended_jobs import ended_job, used
from .test_hostile_reports import make_attempt, pod_of

pytestmark = pytest.mark.django_db
URL = "/api/v1/unit-costs"
PAGE = "/usage/unit-costs/"
OCTOBER = "month=2026-10"
NASTY = "=cmd|' /C calc'!A0<script>alert(1)</script>"


@pytest.fixture
def north():
    return priced_cluster()


@pytest.fixture
def finance():
    user = make_user()
    bind(user, "acme", "finance")
    return user


@pytest.fixture
def jobs(north):
    ended_job("succeeded", at(5), (north, at(30, month=9), 1), (north, at(4), 3), team="vision")
    ended_job("failed", at(6), (north, at(5), 4), user="bob", name="sweep")
    ended_job("running", None, (north, at(8), 2))
    ended_job("succeeded", at(6), (north, at(5), 400), path="zeta/one", user="eve")


def get(client, user, query=OCTOBER):
    return client.get(f"{URL}?{query}", headers=bearer(user))


def test_the_report_has_rows_totals_and_the_bridge(client, finance, jobs):
    answer = get(client, finance, f"{OCTOBER}&tenant=acme&group_by=job_name,label:team").json()
    assert [(item["job_name"], item["labels"], item["cost_per_successful_job"]) for item in answer["items"]] == [
        ("sweep", {"team": None}, None), ("train", {"team": "vision"}, "10.000000"),
    ]  # fmt: skip
    assert answer["items"][0] == {
        "job_name": "sweep", "labels": {"team": None}, "currency": "USD", "jobs": 1, "succeeded": 0, "failed": 1, "cancelled": 0,
        "cost": "10.000000", "unsuccessful_cost": "10.000000", "unsuccessful_share": "1.000000", "cost_per_job": "10.000000",
        "cost_per_successful_job": None, "gpu_hours": "4.000000", "unsuccessful_gpu_hours": "4.000000",
        "unpriced_gpu_hours": "0.000000", "gpu_hours_per_job": "4.000000", "gpu_hours_per_successful_job": None,
    }  # fmt: skip
    (total,) = answer["totals"]
    assert (total["jobs"], total["cost"], total["cost_per_successful_job"]) == (2, "20.000000", "20.000000")
    assert answer["bridge"] == [
        {"currency": "USD", "cost": "20.000000", "outside": "2.500000", "inside": "17.500000", "others": "5.000000", "usage_cost": "22.500000"}
    ]  # fmt: skip
    assert (answer["start"], answer["until"]) == ("2026-10-01T00:00:00.000Z", "2026-11-01T00:00:00.000Z")
    assert (answer["tenant"], answer["group_by"], answer["unsettled_jobs"]) == ("acme", ["job_name", "label:team"], 0)


def test_the_spreadsheet_has_the_same_rows_and_runs_nothing(client, finance, jobs, north):
    job = ended_job("cancelled", at(7), (north, at(6), 1))
    Job.objects.filter(id=job.id).update(labels={"team": NASTY})
    for query, headers in (("&format=csv", {}), ("", {"Accept": "text/csv"})):
        answer = client.get(f"{URL}?{OCTOBER}&group_by=label:team{query}", headers=bearer(finance) | headers)
        assert answer["Content-Type"] == "text/csv; charset=utf-8"
        assert answer["Content-Disposition"] == 'attachment; filename="unit-costs-20261001-20261101.csv"'
        rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
        assert [(row["label:team"], row["cost"], row["cost_per_successful_job"], row["currency"]) for row in rows] == [
            ("", "10.000000", "", "USD"), (f"'{NASTY}", "2.500000", "", "USD"), ("vision", "10.000000", "10.000000", "USD"),
        ]  # fmt: skip
    shown = get(client, finance, f"{OCTOBER}&group_by=label:team").json()["items"]
    assert [item["cost"] for item in shown] == [row["cost"] for row in rows]


@pytest.mark.parametrize(
    ("query", "field", "code"),
    [
        ("format=xlsx", "format", "unknown_format"),
        ("group_by=cluster", "group_by", "unknown_group"),
        ("group_by=label:", "group_by", "unknown_group"),
        ("group_by=label:a%00", "group_by", "out_of_range"),
        ("group_by=label:%25s", "group_by", "unknown_group"),
        ("label=team", "label", "bad_format"),
        ("label=:x", "label", "bad_format"),
        ("label=a%27b:x", "label", "bad_format"),
        ("cluster=north", "cluster", "unknown_filter"),
        ("user=a&user=b", "user", "given_twice"),
        ("from=2026-10-01T01:00:00Z", "from", "not_whole_days"),
        ("from=2025-01-01&to=2026-10-01", "to", "span_too_large"),
        ("month=2026-13", "month", "not_a_month"),
    ],
)
def test_a_query_that_makes_no_report_is_refused(client, finance, query, field, code):
    answer = get(client, finance, query)
    assert answer.status_code == 422
    assert [(error["field"], error["code"]) for error in answer.json()["errors"]] == [(field, code)]


def test_what_another_organisation_has_looks_absent(client, finance, jobs):
    for path in ("zeta", "zeta/one", "nowhere", "acme/nowhere"):
        assert get(client, finance, f"{OCTOBER}&tenant={path}").status_code == 404
    own = get(client, finance, f"{OCTOBER}&group_by=user,tenant").json()
    assert {item["user"] for item in own["items"]} == {"ada@acme.example", "bob@acme.example"}
    assert {item["tenant"] for item in own["items"]} == {"acme/one"}
    foreign, nobody = (get(client, finance, f"{OCTOBER}&user={name}@acme.example").json() for name in ("eve", "nobody"))
    assert foreign == nobody
    assert (foreign["items"], foreign["bridge"], foreign["totals"][0]["cost"]) == ([], [], "0.000000")
    assert client.get(URL).status_code == 401
    assert client.post(URL, headers=bearer(finance)).status_code == 405


def test_the_page_shows_the_month_by_the_chosen_keys(client, finance, jobs):
    client.force_login(finance)
    answer = client.get(f"{PAGE}?{OCTOBER}&tenant=acme&group_by=user&group_label=team")
    text = answer.content.decode()
    page = answer.context["page"]
    assert page.columns == ("user", "team")
    assert [(line.keys, line.cost, line.gpu_hours) for line in page.lines] == [
        ((("user", "ada@acme.example"), ("team", "vision")), 10, 4), ((("user", "bob@acme.example"), ("team", "")), 10, 4),
    ]  # fmt: skip
    assert "From here to usage" in text
    assert "20.00" in text
    assert "22.50" in text
    assert client.get(f"/api/v1/unit-costs?{page.csv_query}").status_code == 200
    filtered = client.get(f"{PAGE}?{OCTOBER}&user=bob@acme.example&label=&job_name=sweep").context["page"]
    assert [(one.jobs, one.succeeded) for one in filtered.totals] == [(1, 0)]
    assert filtered.bridges == ()
    assert "user=bob" in filtered.csv_query
    assert "No job ended in this month" in client.get(f"{PAGE}?month=2026-09").content.decode()
    assert 'href="/usage/unit-costs/"' in client.get("/usage/").content.decode()


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("group_by=cluster", 422), ("label=team", 422), ("group_label=a%00%27", 422), ("month=2026-99", 422), ("other=1", 400),
        ("tenant=zeta", 200), ("user=%00", 200), ("job_name=%27%3B--", 200), ("tenant=%00", 200), ("group_label=%00", 200),
    ],
)  # fmt: skip
def test_hostile_text_on_the_page_is_refused_or_finds_nothing(client, finance, jobs, query, status):
    client.force_login(finance)
    answer = client.get(f"{PAGE}?{query}")
    assert answer.status_code == status
    assert "zeta" not in answer.content.decode().replace('value="zeta"', "").replace("“zeta”", "")


def test_a_page_of_cents_adds_up(client, finance, north):
    for user in ("ada", "bob", "cyd"):
        job = ended_job("failed", at(5), user=user)
        used(job, north, at(4), 1 / 3)
    client.force_login(finance)
    page = client.get(f"{PAGE}?{OCTOBER}&group_by=user").context["page"]
    assert sum(line.cost for line in page.lines) == round(page.totals[0].cost, 2)
    assert {line.cost for line in page.lines} != {page.lines[0].cost}


def test_a_job_that_ended_and_is_not_settled_counts_as_far_as_it_was_seen(client):
    north = priced_cluster()
    attempt = make_attempt(north)
    record_observations(north.id, Observations(pods=[pod_of(attempt)]))
    today = now().replace(hour=0, minute=0, second=0, microsecond=0)
    span = today - timedelta(days=3), today + timedelta(days=2)
    running = unit_cost_report(SYSTEM, "acme", span)
    assert (running.rows, running.unsettled_jobs) == ((), 0)
    assert running.bridges[0].others > 9
    Attempt.objects.filter(id=attempt.id).update(state="failed", finished_at=now())
    Job.objects.filter(id=attempt.job_id).update(state="failed", finished_at=now())
    report = unit_cost_report(SYSTEM, "acme", span, ["job_name"])
    (row,) = report.rows
    cost = costs_of([attempt.job_id])[attempt.job_id]
    assert report.unsettled_jobs == 1
    assert cost.is_provisional
    assert abs(row.cost - cost.amount) < 1
    assert row.cost > 9
    (bridge,) = report.bridges
    assert bridge.outside == 0
    assert abs(bridge.others) < 1

"""`/allocation` and `/assets` say what `/usage` and `/idle` say, in OpenCost's words."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import pytest

from billing.engine.opencost import NotAWindow, steps_of, window_of
from billing.operations import record_runs
from tests.builders import bearer, bind, make_run, make_user

from .ledgers import at, priced_cluster
from .test_idle import offered, used

pytestmark = pytest.mark.django_db
OCTOBER = "2026-10-01T00:00:00Z,2026-11-01T00:00:00Z"


@pytest.fixture
def north():
    cluster = priced_cluster(amount="2.333333")
    offered(cluster, units=2)
    offered(cluster, "n2", start=at(5), until=at(6))
    return cluster


@pytest.fixture
def ask(client):
    def asked(path, who="acme", role="finance", **query):
        user = make_user()
        bind(user, who, role)
        return client.get(f"/api/v1/{path}", query, headers=bearer(user))

    return asked


@pytest.mark.parametrize(
    ("aggregate", "groups"),
    [
        ("namespace", "tenant"),
        ("cluster", "cluster"),
        ("namespace,label:flavor", "tenant,flavor"),
        ("controller", "job"),
    ],
)
def test_allocations_are_the_rows_of_the_usage_report(north, ask, aggregate, groups):
    used(north, one=4, two=2)
    record_runs([make_run(north, "acme/one", started_at=at(6), until_at=at(6) + timedelta(milliseconds=12_345_678))])
    (rows,) = ask("allocation", window=OCTOBER, aggregate=aggregate).json()["data"]
    items = ask("usage", month="2026-10", group_by=groups).json()["items"]
    said = {"/".join(item[group] for group in groups.split(",")): item for item in items}
    assert rows.keys() == said.keys()
    for name, row in rows.items():
        assert Decimal(str(row["totalCost"])) == Decimal(said[name]["cost"]["amount"])
        assert Decimal(str(row["gpuHours"])) == Decimal(said[name]["gpu_hours"])
        assert row["totalCost"] == row["gpuCost"] + row["cpuCost"] + row["sharedCost"]


def test_steps_add_up_to_the_window(north, ask):
    used(north, one=4, two=2)
    days = ask("allocation", window=OCTOBER, step="1d").json()["data"]
    (whole,) = ask("allocation", window=OCTOBER, step="1d", accumulate="true").json()["data"]
    assert len(days) == 31
    assert sum(Decimal(str(row["totalCost"])) for day in days for row in day.values()) == sum(
        Decimal(str(row["totalCost"])) for row in whole.values()
    )


def test_idle_is_a_row_or_a_part_of_the_others_and_all_is_what_assets_cost(north, ask):
    used(north, one=4, two=2)
    (rows,) = ask("allocation", window=OCTOBER, includeIdle="true").json()["data"]
    (shared,) = ask("allocation", window=OCTOBER, shareIdle="weighted").json()["data"]
    (nodes,) = ask("assets", window=OCTOBER).json()["data"]
    assert set(rows) == {"acme/one", "acme/two", "__idle__"}
    totals = [sum(Decimal(str(row["totalCost"])) for row in found.values()) for found in (rows, shared, nodes)]
    assert totals == [Decimal("2.333333") * 24 * (2 * 31 + 1)] * 3
    assert {row["properties"]["name"]: row["GPUHours"] for row in nodes.values()} == {"n1": 1488, "n2": 24}


def test_a_team_sees_its_rows_and_no_idle(north, ask):
    used(north, one=4, two=2)
    (rows,) = ask("allocation", "acme/one", "viewer", window=OCTOBER, includeIdle="true").json()["data"]
    assert set(rows) == {"acme/one"}
    (none,) = ask("assets", "other", window=OCTOBER).json()["data"]
    assert none == {}


@pytest.mark.parametrize(
    ("path", "query", "code"),
    [
        ("allocation", {}, "required"),
        ("allocation", {"window": "soon"}, "bad_format"),
        ("allocation", {"window": "7d", "aggregate": "pod"}, "unknown_group"),
        ("allocation", {"window": "7d", "step": "1m"}, "bad_format"),
        ("allocation", {"window": "7d", "step": "0d"}, "bad_format"),
        ("allocation", {"window": "7d", "shareIdle": "even"}, "bad_format"),
        ("allocation", {"window": "7d", "idleByNode": "true"}, "not_available"),
        ("allocation", {"window": "90m", "includeIdle": "true"}, "not_whole_days"),
        ("allocation", {"window": "2026-11-01T00:00:00Z,2026-10-01T00:00:00Z"}, "empty_period"),
        ("assets", {"window": "2020-11-01T00:00:00Z,2026-10-01T00:00:00Z"}, "span_too_large"),
        ("assets", {"window": "99999999999,1"}, "bad_format"),
    ],
)
def test_a_wrong_question_is_refused(ask, path, query, code):
    answer = ask(path, **query)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["code"] == code


NOW = datetime(2026, 11, 25, 13, 30, tzinfo=UTC)  # a Wednesday


@pytest.mark.parametrize(
    ("text", "start", "until"),
    [
        ("today", "25 00", "26 00"),
        ("week", "22 00", "26 00"),
        ("lastweek", "15 00", "22 00"),
        ("month", "01 00", "26 00"),
        ("lastmonth", "01 00", "01 00"),
        ("7d", "19 00", "26 00"),
        ("12h", "25 01", "25 13"),
        ("1790000000,1790003600", "21 14", "21 15"),
        ("2026-11-01T02:00:00+02:00,2026-11-02T00:00:00Z", "01 00", "02 00"),
    ],
)
def test_windows_are_those_of_opencost(text, start, until):
    assert tuple(f"{each:%d %H}" for each in window_of(text, NOW)) == (start, until)


def test_steps_cover_the_window_without_gaps():
    start, until = window_of("7d", NOW)
    steps = steps_of(start, until, "2d", 10)
    assert [steps[0][0], steps[-1][1]] == [start, until]
    assert all(one[1] == other[0] for one, other in pairwise(steps))
    with pytest.raises(NotAWindow):
        steps_of(start, until, "1h", 100)

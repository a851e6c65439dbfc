"""Standing recommendations from rows of the database: what is found, how people decide over HTTP, what was saved, and that no charge changes."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection

from billing.models import LedgerLine, Recommendation, UsageSegment
from billing.operations import posting
from billing.operations.recommendations import accept, dismiss, reopen, require_labels
from federation.operations import find_recommendations
from federation.queries.realised import realised_of
from foundation.clock import now
from tenancy.queries import SYSTEM
from tests.rooms.billing.ledgers import settle_pending_checks

from .advising import A_WEEK_AGO, HOUR, TODAY, found, only, only_of, priced, ran

pytestmark = pytest.mark.django_db


@pytest.fixture
def north():
    return priced("north", "h100", "4")[0]


def kinds():
    return sorted(kind for kind, _ in found())


def test_the_same_gpu_is_cheaper_elsewhere(north):
    priced("south", "h100", "3")
    job = ran(north, "train-1")
    last = ran(north, "train-2", at=A_WEEK_AGO + 5 * HOUR, hours=3)
    row = only("cheaper")
    assert (row.subject, row.low, row.high, row.currency, row.tenant_path) == (
        "train-# on H100-80GB, on_demand", 4, 4, "USD", "acme/one",
    )  # fmt: skip
    spent = sum(UsageSegment.objects.filter(meter__workload_id__in=[job.id, last.id]).values_list("cost", flat=True))
    assert (Decimal(row.evidence["cost"]), row.evidence["jobs"], row.evidence["last_job"]) == (spent, 2, str(last.id))
    assert row.evidence["to_cluster"] == "south"


@pytest.mark.parametrize(
    "spec",
    [
        {"constraints": {"clusters": ["north"]}}, {"constraints": {"exclude_clusters": ["south"]}}, {"constraints": {"regions": ["us-*"]}},
        {"constraints": {"capacity_types": ["spot"]}}, {"constraints": {"overflow": [{"after_seconds": 0, "clusters": ["north"]}]}},
        {"data": [{"name": "images"}]}, {"pod": {"networks": ["rdma"]}},
        {"pod": {"mounts": [{"storage": "s", "path": "/data"}]}},
    ],
)  # fmt: skip
def test_what_jobs_need_forbids_other_places(north, spec):
    priced("south", "h100", "3")
    ran(north, hours=9, **spec)
    ran(north, hours=9, at=A_WEEK_AGO + 20 * HOUR)
    assert kinds() == []


@pytest.mark.parametrize(
    "there",
    [
        {"owner": "acme/two"}, {"owner": "globex"}, {"currency": "EUR", "owner": "globex"}, {"unplaceable": "no"}, {"vendor": "amd"}, {"units": 0},
    ],
)  # fmt: skip
def test_only_places_for_every_team_are_offered(north, there):
    priced("south", "h100", "3", **there)
    ran(north, hours=9)
    assert kinds() == []


def test_clusters_that_take_no_jobs_are_not_offered(north):
    south, _ = priced("south", "h100", "3")
    south.__class__.objects.filter(id=south.id).update(wish="cordoned")
    ran(north, hours=9)
    assert kinds() == []


@pytest.mark.parametrize(("spec", "is_found"), [({"checkpoint_seconds": 600}, True), ({}, False)])
def test_spot_is_recommended_to_jobs_with_checkpoints(north, spec, is_found):
    priced("south", "h100-spot", "1", capacity_type="spot")
    ran(north, hours=9, **spec)
    assert kinds() == (["spot"] if is_found else [])


def test_one_job_without_checkpoints_forbids_spot(north):
    priced("south", "h100-spot", "1", capacity_type="spot")
    ran(north, "train-1", checkpoint_seconds=600)
    ran(north, "train-2", at=A_WEEK_AGO + 5 * HOUR)
    assert kinds() == []


def test_a_smaller_gpu_is_recommended_where_the_peak_fits(north):
    priced("north", "l4", "1", gpu_model="L4", gpu_memory_mib=23_034)
    ran(north, hours=9, peak=9_000, active=Decimal("0.1"))
    row = only("smaller")
    assert (row.low, row.high, row.confidence) == (18, 27, Decimal("0.5"))
    ran(north, "train-2", at=A_WEEK_AGO + 20 * HOUR, peak=19_000, active=Decimal("0.1"))
    find_recommendations()
    assert Recommendation.objects.filter(state="open", last_found_on=TODAY.date(), evidence__jobs=2).count() == 0


def test_idle_jobs_and_late_failures_are_of_their_name(north):
    for number in range(3):
        ran(
            north,
            "batch",
            at=A_WEEK_AGO + number * 20 * HOUR,
            hours=9,
            state="failed",
            peak=1,
            used="0.01",
            active=Decimal(0),
        )
    rows = found()
    idle, late = rows["idle", "batch"], rows["late_failures", "batch"]
    assert (late.low, late.high) == (36, 108)
    assert (idle.low, idle.high, idle.evidence["jobs"], idle.confidence) == (idle.high, Decimal("106.92"), 3, 1)


def test_cost_without_a_required_label_is_found(north):
    require_labels(SYSTEM, "acme", now().date(), ["team", "stage"])
    ran(north, labels={"team": "x"}, hours=9)
    ran(north, "other", at=A_WEEK_AGO + 20 * HOUR, hours=3)
    rows = found()
    assert {key: row.high for key, row in rows.items()} == {
        ("missing_label", "stage"): 48,
        ("missing_label", "team"): 12,
    }
    assert rows["missing_label", "team"].evidence["share"] == "0.2500"
    require_labels(SYSTEM, "acme", now().date(), [])
    find_recommendations()
    assert Recommendation.objects.count() == 2


def test_names_and_organisations_do_not_mix(north):
    """Another organisation's jobs are cheaper nowhere: its clusters are its own."""
    priced("south", "h100", "3")
    far, _ = priced("far", "h100", "4", owner="globex")
    ran(north, hours=9)
    ran(far, path="globex/x", hours=9)
    find_recommendations()
    assert [row.tenant_path for row in Recommendation.objects.all()] == ["acme/one"]


def test_twice_a_day_is_as_once(north):
    priced("south", "h100", "3")
    ran(north, hours=9)
    before = only("cheaper")
    again = only("cheaper")
    for field in Recommendation._meta.concrete_fields:
        assert getattr(before, field.attname) == getattr(again, field.attname)


def charges():
    settle_pending_checks()
    with connection.cursor() as cursor:
        tables = (
            "billing_usagesegment",
            "billing_meterday",
            "billing_tenantday",
            "billing_ledgerentry",
            "billing_ledgerline",
        )
        rows = []
        for table in tables:
            cursor.execute(f"SELECT md5(coalesce(string_agg(t::text, ',' ORDER BY t::text), '')) FROM {table} AS t")
            rows.append((table, cursor.fetchone()[0]))
    return rows


def test_charges_are_the_same_whatever_is_recommended_and_decided(north):
    priced("south", "h100", "3")
    ran(north, hours=9, checkpoint_seconds=600, peak=9_000, active=Decimal("0.01"), used="0.01")
    posting.post_days()
    before = charges()
    assert LedgerLine.objects.exists()
    require_labels(SYSTEM, "acme", now().date(), ["team"])
    rows = list(found().values())
    assert len(rows) >= 3
    for row in rows:
        accept(SYSTEM, row.id)
        reopen(SYSTEM, row.id)
        dismiss(SYSTEM, row.id, "no")
    posting.post_days()
    assert charges() == before


def accepted(row, days_ago=10):
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(
            "UPDATE billing_recommendation SET state = 'accepted', decided_high = high, decided_by_name = 'ada', decided_at = %s WHERE id = %s",
            [TODAY - timedelta(days=days_ago), row.id],
        )
        cursor.execute("SET LOCAL session_replication_role = origin")
    return Recommendation.objects.get(id=row.id)


def saved(row):
    return realised_of([Recommendation.objects.get(id=row.id)])[row.id].result


def history(north, south, *, after=6, before=6):
    """Jobs of two hours in the north before, and in the south since."""
    for number in range(before):
        ran(north, f"train-{number}", at=TODAY - timedelta(days=25 - number), hours=2)
    for number in range(after):
        ran(south, f"train-{number + 50}", at=TODAY - timedelta(days=8) + number * 20 * HOUR, hours=2)


def test_what_was_saved_is_measured_from_jobs_of_the_name(north):
    south, _ = priced("south", "h100", "3")
    history(north, south)
    ran(north, "other", at=TODAY - timedelta(days=5), hours=9)
    ran(north, "train-x-y", at=TODAY - timedelta(days=5) + 2 * HOUR, hours=9)
    row = accepted(only_of("train-#"))
    result = saved(row)
    assert (result.before.units, result.after.units, result.each_before, result.each_after) == (6, 6, 8, 6)
    assert (result.amount, result.low, result.high, result.is_beyond_chance) == (12, 12, 12, True)


@pytest.mark.parametrize(
    ("after", "extra", "why_not"),
    [(4, {}, "too_few_after"), (6, {"currency": "EUR"}, "other_currency"), (5, {}, None)],
)
def test_nothing_is_claimed_from_few_jobs_or_other_money(north, after, extra, why_not):
    south, _ = priced("south", "h100", "3")
    west, _ = priced("west", "h100", "1", owner="globex", currency="EUR")
    history(north, south, after=after)
    if extra:
        ran(west, "train-99", at=TODAY - timedelta(days=2), hours=2)
    assert saved(accepted(only_of("train-#"))).why_not == why_not


def test_the_day_of_the_decision_and_today_are_not_measured(north):
    south, _ = priced("south", "h100", "3")
    history(north, south)
    ran(south, "train-80", at=TODAY - timedelta(days=10) + HOUR, hours=2)
    result = saved(accepted(only_of("train-#")))
    assert (result.before.jobs, result.after.jobs) == (6, 6)

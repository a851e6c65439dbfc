"""Moving or renaming a team rewrites no past usage."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from django.db import IntegrityError

from billing.models import Meter
from billing.operations import record_runs
from billing.queries import discrepancies, usage_report
from billing.queries.progress import run_sources
from foundation.problems import NotFound
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bind, make_cluster, make_run, make_tenant, make_user
from tests.refusals import constraint_of

from .test_ledger import attack

pytestmark = pytest.mark.django_db
OCTOBER = (datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC))
NOVEMBER = (datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))
MOVED_AT = datetime(2026, 11, 21, tzinfo=UTC)
OLD, NEW = "acme/research/vision", "acme/products/vision"


@pytest.fixture
def north(time_machine):
    """With an hour of usage in October of a team, of the project below it, and of another team."""
    time_machine.move_to(MOVED_AT, tick=False)
    cluster = make_cluster(name="north")
    for path in (OLD, f"{OLD}/lenses", "acme/research/vision-two"):
        run_in(cluster, path, 10)
    return cluster


def run_in(cluster, path, month, **fields):
    record_runs([make_run(cluster, path, started_at=datetime(2026, month, 10, tzinfo=UTC), **fields)])


def move():
    team, products = make_tenant(OLD), make_tenant("acme/products")
    return change_tenant(SYSTEM, team.id, parent_id=products.id)


def rename():
    return change_tenant(SYSTEM, make_tenant(OLD).id, name="optics")


def hours(path="", actor=SYSTEM, period=NOVEMBER):
    start, until = period
    rows = usage_report(actor, path, start, until, ["tenant"]).rows
    return {row.keys["tenant"]: int(row.gpu_hours) for row in rows}


@pytest.mark.parametrize("change", [move, rename])
def test_a_past_month_stays_as_it_was_to_the_last_byte(north, client, change):
    reader = make_user()
    bind(reader, "acme", "viewer")
    client.force_login(reader)

    def everything():
        asked = [
            {"tenant": path, "month": "2026-10", "group_by": "tenant,job"}
            for path in ("", "acme", "acme/research", OLD)
        ]
        answers = [client.get("/api/v1/usage", query) for query in asked]
        answers += [client.get("/api/v1/usage", {**query, "format": "csv"}) for query in asked]
        assert {answer.status_code for answer in answers} == {200}
        page = client.get("/usage/", {"month": "2026-10", "group_by": "tenant"}).content.decode()
        return [answer.content for answer in answers], page[page.index("<tbody>") : page.index("</tfoot>")]

    before = everything()
    assert change().path != OLD
    assert everything() == before


def test_new_usage_stands_under_the_new_path_and_old_under_the_old(north):
    move()
    run_in(north, NEW, 11)
    both = (OCTOBER[0], NOVEMBER[1])
    assert hours(period=NOVEMBER) == {NEW: 1}
    assert hours(period=both) == {OLD: 1, f"{OLD}/lenses": 1, "acme/research/vision-two": 1, NEW: 1}
    assert hours("acme/products", period=both) == hours(NEW, period=both) == {NEW: 1}
    assert hours(OLD, period=both) == {OLD: 1, f"{OLD}/lenses": 1}
    assert hours("acme/research", period=both) == {OLD: 1, f"{OLD}/lenses": 1, "acme/research/vision-two": 1}
    assert discrepancies() == ()


def test_who_may_see_past_usage_follows_from_where_the_tenant_is_now(north):
    before, after, team = make_user(), make_user(), make_user()
    bind(before, "acme/research", "viewer")
    bind(after, "acme/products", "viewer")
    bind(team, OLD, "viewer")
    move()
    own = {OLD: 1, f"{OLD}/lenses": 1}
    assert hours(actor=actor_for(before), period=OCTOBER) == {"acme/research/vision-two": 1}
    assert hours("acme/research", actor_for(before), OCTOBER) == {"acme/research/vision-two": 1}
    assert hours(actor=actor_for(after), period=OCTOBER) == hours(OLD, actor_for(after), OCTOBER) == own
    assert hours("acme/research", actor_for(team), OCTOBER) == own
    for actor, path in ((before, OLD), (before, NEW), (after, "acme"), (team, "acme/products"), (team, "acme")):
        with pytest.raises(NotFound):
            usage_report(actor_for(actor), path, *OCTOBER)
    for path in ("acme/research/visio", "acme/research/vision/", "acme\x00", "/"):
        with pytest.raises(NotFound):
            usage_report(SYSTEM, path, *OCTOBER)


def test_a_team_that_takes_a_former_path_gets_none_of_its_usage_to_see(north):
    move()
    newcomer = make_user()
    bind(newcomer, OLD, "viewer")
    run_in(north, OLD, 11)
    assert hours(OLD, actor_for(newcomer), (OCTOBER[0], NOVEMBER[1])) == {OLD: 1}


def test_what_runs_on_while_its_team_is_renamed_stands_under_one_path_until_its_end(north, monkeypatch):
    run = make_run(north, OLD, started_at=datetime(2026, 11, 20, 23, tzinfo=UTC), is_final=False)
    unseen = make_run(north, OLD, started_at=datetime(2026, 11, 20, 22, tzinfo=UTC), until_at=MOVED_AT, is_final=False)
    record_runs([run])
    path = rename().path
    monkeypatch.setattr("billing.queries.progress.run_sources", [*run_sources, lambda *_: [unseen]])
    shown = {
        row.keys["tenant"]: (row.gpu_hours, row.provisional_gpu_hours)
        for row in usage_report(SYSTEM, "acme", *NOVEMBER, ["tenant"]).rows
    }
    assert shown == {OLD: (1, 0), path: (2, 2)}
    assert usage_report(SYSTEM, path, *NOVEMBER).total.running_jobs == 1
    assert usage_report(SYSTEM, OLD, *NOVEMBER).total.running_jobs == 0
    assert Meter.objects.get(source_uid=run.source_uid).tenant_path == OLD


ATTACKS = {
    "another path": ("UPDATE billing_meter SET tenant_path = 'acme'", "meter_keeps_what_it_was_opened_with"),
    "no path": ("UPDATE billing_meter SET tenant_path = ''", "meter_keeps_what_it_was_opened_with"),
}


@pytest.mark.parametrize(("statements", "constraint"), ATTACKS.values(), ids=ATTACKS.keys())
def test_the_database_keeps_the_path(statements, constraint):
    record_runs([make_run(make_cluster(), OLD, is_final=False)])
    with pytest.raises(IntegrityError) as refused:
        attack(statements, {})
    assert constraint_of(refused.value) == constraint


def test_the_database_itself_writes_the_path_of_a_new_meter():
    record_runs([make_run(make_cluster(), OLD)])
    attack(
        "INSERT INTO billing_meter (cluster_id, source_uid, tenant_id, tenant_path, user_id, user_name, workload_id,"
        " workload_name, run_id, flavor, capacity_type, unit, gpu_units, cpu_millicores, metered_from, metered_until,"
        " is_closed) SELECT cluster_id, 'forged', tenant_id, 'acme/sales', user_id, '', workload_id, '', run_id, flavor,"
        " capacity_type, unit, gpu_units, cpu_millicores, metered_from, metered_from, false FROM billing_meter",
        {},
    )
    assert Meter.objects.get(source_uid="forged").tenant_path == OLD


def test_what_runs_on_counts_under_the_path_of_now_if_the_report_is_asked_for_it(north, monkeypatch):
    run = make_run(north, OLD, started_at=datetime(2026, 11, 20, 20, tzinfo=UTC), is_final=False)
    record_runs([run])
    path = rename().path
    so_far = replace(run, until_at=MOVED_AT)
    monkeypatch.setattr("billing.queries.progress.run_sources", [*run_sources, lambda *_: [so_far]])
    for as_is, of in ((False, OLD), (True, path)):
        (row,) = usage_report(SYSTEM, "acme", *NOVEMBER, ["tenant"], as_is=as_is).rows
        assert (row.keys["tenant"], row.gpu_hours, row.provisional_gpu_hours, row.running_jobs) == (of, 4, 3, 1)
    assert usage_report(SYSTEM, path, *NOVEMBER, as_is=True).total.provisional_gpu_hours == 3

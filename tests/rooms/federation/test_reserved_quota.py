"""Reservations under quota: refused with numbers when too much would be reserved, counted in rounds and quotes for their time,
lent with a recall time, released if none of their jobs comes; and the database judges all of it.
"""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from federation.models import Attempt, Job, Reservation, ReservedNode
from federation.operations import run_scheduling_cycle
from federation.operations.reservations import release_no_shows
from foundation import clock
from foundation.ids import new_id
from foundation.plain_json import instant
from foundation.problems import Problem
from quotas.models import Hold, ReservedQuota
from quotas.operations import end_holds, put_limit
from tenancy.models import AuditEntry, Tenant
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM
from tests.builders import make_cluster, make_flavor, make_limit, make_node, make_tenant
from tests.processes_role import as_processes
from tests.rooms.federation.test_constraints import attack
from tests.rooms.federation.test_reservations import asked, inside, job, person, soon

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("quotes_look_anew")]


@pytest.fixture
def north():
    cluster = make_cluster("acme", "north")
    make_flavor(cluster)
    for name in ("n1", "n2", "n3"):
        make_node(cluster, name)
    make_tenant("acme/ml/vision")
    make_tenant("acme/ops")
    return cluster


def reserved_now(call, who=None, **changes):
    status, made = call(who or person("admin", "acme"), "post", "/reservations", asked(starts_at=..., **changes))
    assert status == 201, made
    return made


def free_job(**changes):
    return job(tenant="acme/ops", **changes)


@pytest.mark.usefixtures("north")
def test_a_reservation_beyond_a_limit_on_its_path_is_refused_with_the_numbers(call):
    make_limit("acme", nominal="24")
    make_limit("acme/ml", nominal="16")
    admin = person("admin", "acme")
    body = asked(count=2, name="one")
    status, made = call(admin, "post", "/reservations", body)
    assert (status, made["beyond_limit"], made["recall_seconds"], made["released_at"]) == (201, None, None, None)
    assert made["quota"] == [
        {"resource": "cpu", "reserved": "2", "used": "0"},
        {"resource": "gpu", "reserved": "16", "used": "0"},
        {"resource": "gpu:H100-80GB", "reserved": "16", "used": "0"},
        {"resource": "jobs", "reserved": "2", "used": "0"},
        {"resource": "memory", "reserved": "2Gi", "used": "0Mi"},
    ]
    begun = body["starts_at"].replace("T", " ")[:16]
    status, refused = call(admin, "post", "/reservations", asked(name="two"))
    assert (status, refused["code"]) == (409, "reserved_beyond_quota")
    [error] = refused["errors"]
    assert (error["field"], error["code"]) == ("quota.acme/ml.gpu", "quota_reserved")
    assert error["detail"].startswith("acme/ml has a limit of 16 gpu: 16 are reserved or guaranteed at ")
    assert begun[:13] in error["detail"]
    assert error["detail"].endswith("(1 reservation), 8 requested")
    put_limit(SYSTEM, "acme", "gpu", nominal=20_000)
    [error] = call(admin, "post", "/reservations", asked(name="two", tenant="acme/ops"))[1]["errors"]
    assert error["field"] == "quota.acme.gpu"
    assert not ReservedQuota.objects.filter(amounts__gpu=8000).exists()
    later = {"starts_at": soon(180), "ends_at": soon(240)}
    assert call(admin, "post", "/reservations", asked(name="two", **later))[0] == 201
    assert call(admin, "delete", f"/reservations/{made['id']}")[0] == 204
    assert call(admin, "post", "/reservations", asked(name="three"))[0] == 201


@pytest.mark.usefixtures("north")
def test_what_is_reserved_counts_from_start_to_end_and_quote_capacity_and_round_agree(call):
    make_limit("acme", nominal="16")
    reserved_now(call)
    ops, ml = person("submitter", "acme/ops"), person("submitter", "acme/ml")
    for number in range(2):
        assert call(ops, "post", "/jobs", free_job(name=f"free-{number}"))[0] == 201
    run_scheduling_cycle()
    assert [row.name for row in Job.objects.filter(state="dispatching")] == ["free-0"]
    waits = Job.objects.get(state="queued")
    assert waits.reason_code == "waiting_for_quota"
    assert "8 GPUs of it reserved from" in waits.reason_message
    admin = person("admin", "acme")
    [told] = call(admin, "get", f"/jobs/{waits.id}/explanation")[1]["quota"]
    assert (told["held"], told["reserved"], told["lacking"]) == ("8", "8", "8")
    assert told["reserved_from"] is not None
    quoted = call(ops, "post", "/quotes", free_job(name="free-3"))[1]
    assert (quoted["offers"], quoted["reason"]["code"]) == ([], "waiting_for_quota")
    assert call(ml, "post", "/jobs", inside(tenant="acme/ml"))[0] == 201
    run_scheduling_cycle()
    hold = Hold.objects.get(within__isnull=False)
    assert (hold.within_id, hold.cluster_name) == (Reservation.objects.get().id, "north")
    assert Attempt.objects.count() == 2, "what it uses of what it reserved is not kept from others twice, nor free"
    [shown] = call(ml, "get", "/reservations")[1]["items"]
    assert {line["resource"]: line["used"] for line in shown["quota"]}["gpu"] == "8"


@pytest.mark.usefixtures("north")
def test_a_job_that_may_run_past_the_start_leaves_room_and_one_that_ends_before_does_not(call):
    make_limit("acme", nominal="8")
    assert call(person("manager"), "post", "/reservations", asked())[0] == 201
    ops = person("submitter", "acme/ops")
    call(ops, "post", "/jobs", free_job(name="long", deadline_seconds=3600))
    run_scheduling_cycle()
    assert Job.objects.get(name="long").reason_code == "waiting_for_quota"
    call(ops, "post", "/jobs", free_job(name="short", deadline_seconds=3000))
    run_scheduling_cycle()
    assert Job.objects.get(name="short").state == "dispatching"


@pytest.mark.usefixtures("north")
def test_unused_nodes_and_quota_are_lent_to_jobs_that_end_within_the_recall_time(call):
    make_limit("acme", nominal="24")
    made = reserved_now(call, count=3, recall_seconds=1200)
    assert made["recall_seconds"] == 1200
    ops = person("submitter", "acme/ops")
    call(ops, "post", "/jobs", free_job(name="long", deadline_seconds=1200))
    call(ops, "post", "/jobs", free_job(name="short", deadline_seconds=1080))
    run_scheduling_cycle()
    states = dict(Job.objects.values_list("name", "state"))
    assert states == {"long": "queued", "short": "dispatching"}
    assert Job.objects.get(name="long").reason_code in {"waiting_for_quota", "kept_for_reservation"}
    for wrong in (179, 86_401, "600", True, 0, -1):
        status, refused = call(person("manager"), "post", "/reservations", asked(name="two", recall_seconds=wrong))
        assert (status, refused["errors"][0]["field"]) == (422, "recall_seconds")


def pass_seconds(seconds):
    """Lets time pass for every reservation, as far as placement can tell."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        past: Any = timedelta(seconds=seconds)
        for table in ("federation_reservation", "federation_reservednode", "quotas_reservedquota"):
            cursor.execute(f"UPDATE {table} SET starts_at = starts_at - %s, until_at = until_at - %s", [past, past])
        cursor.execute("UPDATE federation_reservation SET ends_at = ends_at - %s", [past])
        cursor.execute("SET LOCAL session_replication_role = DEFAULT")


@pytest.mark.usefixtures("north")
def test_a_reservation_to_which_no_job_comes_is_released_after_a_time_and_shown_so(call):
    manager = person("manager")
    made = reserved_now(call, manager)
    assert made["release_at"] == instant(Reservation.objects.get().starts_at + timedelta(hours=1))
    pass_seconds(3590)
    assert release_no_shows() == 0
    browser = Client()
    browser.force_login(manager)
    page = reverse("reservation", args=[made["id"]])
    assert "None of its jobs has run yet" in browser.get(page).content.decode()
    pass_seconds(11)
    run_scheduling_cycle()
    assert release_no_shows() == 0
    row = Reservation.objects.get()
    assert row.released_at == row.until_at == row.quota.until_at == ReservedNode.objects.get().until_at
    shown = call(manager, "get", f"/reservations/{made['id']}")[1]
    assert (shown["state"], shown["ends_at"], shown["release_at"]) == ("released", shown["released_at"], None)
    assert [one["name"] for one in call(manager, "get", "/reservations?state=released")[1]["items"]] == ["eval"]
    assert call(manager, "get", "/reservations?state=ended")[1]["items"] == []
    assert "was released" in browser.get(page).content.decode()
    assert call(manager, "delete", f"/reservations/{made['id']}")[1]["code"] == "state_conflict"
    entry = AuditEntry.objects.get(action="reservation.release")
    assert (entry.detail["no_show_seconds"], entry.tenant_id) == (3600, row.tenant_id)
    assert "was released" in attack("UPDATE federation_reservation SET released_at = NULL")


@pytest.mark.usefixtures("north")
def test_a_job_that_came_or_waits_keeps_its_reservation(call):
    ml = person("submitter", "acme/ml")
    made = reserved_now(call)
    call(ml, "post", "/jobs", inside(tenant="acme/ml", name="waits"))
    pass_seconds(3601)
    assert release_no_shows() == 0
    run_scheduling_cycle()
    attempt = Attempt.objects.get()
    end_holds({attempt.id: "voided"})
    Job.objects.update(state="cancelled", finished_at=clock.now())
    assert release_no_shows() == 0, "one of its jobs has come"
    assert call(ml, "get", f"/reservations/{made['id']}")[1]["state"] == "active"


@pytest.mark.usefixtures("north")
def test_without_a_time_for_it_no_reservation_is_released(call, settings):
    settings.RESERVATION_NO_SHOW_SECONDS = 0
    assert reserved_now(call)["release_at"] is None
    pass_seconds(7000)
    assert release_no_shows() == 0


@pytest.mark.usefixtures("north")
def test_after_a_limit_is_lowered_reservations_stay_and_are_marked_and_no_more_are_made(call):
    tenant = make_tenant("acme/ml")
    put_limit(SYSTEM, "acme/ml", "gpu", nominal=16_000)
    manager = person("manager")
    made = call(manager, "post", "/reservations", asked(count=2))[1]
    put_limit(SYSTEM, "acme/ml", "gpu", nominal=12_000)
    shown = call(manager, "get", f"/reservations/{made['id']}")[1]
    assert (shown["state"], len(shown["nodes"])) == ("scheduled", 2)
    assert shown["beyond_limit"].startswith("acme/ml has a limit of 12 gpu: 16 are reserved or guaranteed at ")
    assert call(manager, "post", "/reservations", asked(name="two"))[1]["code"] == "reserved_beyond_quota"
    browser = Client()
    browser.force_login(manager)
    assert (
        "More is reserved than a limit allows"
        in browser.get(reverse("reservation", args=[made["id"]])).content.decode()
    )
    assert "beyond a limit" in browser.get(reverse("reservations")).content.decode()
    put_limit(SYSTEM, "acme/ml", "gpu", nominal=16_000)
    assert call(manager, "get", f"/reservations/{made['id']}")[1]["beyond_limit"] is None
    assert ReservedQuota.objects.get().tenant_id == tenant.id


@pytest.mark.usefixtures("north")
def test_a_tenant_with_reservations_stays_where_it_is_until_they_have_ended(call):
    make_tenant("acme/lab")
    admin = person("admin", "acme")
    made = call(admin, "post", "/reservations", asked())[1]
    vision, lab = Tenant.objects.get(path="acme/ml"), Tenant.objects.get(path="acme/lab")
    with pytest.raises(Problem) as refused:
        change_tenant(SYSTEM, vision.id, parent_id=lab.id)
    assert (refused.value.code, "1 reservation that" in refused.value.detail) == ("tenant_has_reservations", True)
    told = attack(
        "UPDATE tenancy_tenant SET parent_id = %s, path = 'acme/lab/ml', depth = 2 WHERE id = %s", lab.id, vision.id
    )
    assert "has reserved quota and stays" in told
    call(admin, "delete", f"/reservations/{made['id']}")
    change_tenant(SYSTEM, vision.id, parent_id=lab.id)


RESERVE = """
INSERT INTO quotas_reservedquota (id, tenant_id, cluster_name, amounts, starts_at, until_at)
VALUES (gen_random_uuid(), %s, %s, %s, now() + %s * interval '1 minute', now() + %s * interval '1 minute')
"""


def test_the_database_adds_up_what_is_reserved_whoever_writes(processes_role):
    make_limit("acme", nominal="8")
    make_limit("acme/ml", nominal="6", clusters=("north",))
    ml, ops = make_tenant("acme/ml"), make_tenant("acme/ops")
    with as_processes():
        assert attack(RESERVE, ml.id, "north", '{"gpu": 4000}', 0, 60) == "it was allowed"
        for tenant, where, amount, starts, ends, allowed in (
            (ml, "north", 3000, 30, 90, False),
            (ml, "north", 2000, 59, 90, True),
            (ml, "north", 7000, 100, 110, False),
            (ml, "south", 7000, 100, 110, True),
            (ops, "north", 5000, -60, 1, False),
            (ops, "north", 4000, -60, 0, True),
            (ops, "north", 3000, 0, 59, True),
            (ops, "north", 2000, 61, 120, False),
            (ops, "north", 1000, 0, 0, True),
        ):
            told = attack(RESERVE, tenant.id, where, f'{{"gpu": {amount}}}', starts, ends)
            assert ("stays_within" not in told and told == "it was allowed") == allowed, (told, amount, starts)
        assert "reserved_quota_amounts_are_whole" in attack(RESERVE, ml.id, "north", '{"gpu": -1}', 0, 1)
        assert "reserved_quota_amounts_are_whole" in attack(RESERVE, ml.id, "north", "[]", 0, 1)
        assert "reserved_quota_ends_after" in attack(RESERVE, ml.id, "north", "{}", 1, 0)
        for change in (
            "until_at = until_at + interval '1 second'",
            "starts_at = starts_at - interval '1 second'",
            "amounts = '{}'",
            "cluster_name = 'south'",
            "tenant_id = gen_random_uuid()",
        ):
            assert "only ever ends sooner" in attack(f"UPDATE quotas_reservedquota SET {change}")
        assert "permission denied" in attack("DELETE FROM quotas_reservedquota")
    assert "kept as it was written" in attack("DELETE FROM quotas_reservedquota")


@pytest.mark.usefixtures("north")
def test_a_reservation_its_nodes_and_its_quota_have_the_same_times(call):
    made = call(person("manager"), "post", "/reservations", asked())[1]
    for change in ("until_at = until_at - interval '1 minute'", "until_at = starts_at, cancelled_at = now()"):
        assert "reservation_times_follow_its_quota" in attack(f"UPDATE federation_reservation SET {change}")
    for change in ("quota_id = NULL", "recall_seconds = 600", "no_show_seconds = NULL"):
        assert "stays as it was asked for" in attack(f"UPDATE federation_reservation SET {change}")
    assert "a_released_reservation" in attack("UPDATE federation_reservation SET released_at = now()")
    assert attack("UPDATE quotas_reservedquota SET until_at = until_at - interval '1 minute'") == "it was allowed"
    assert call(person("manager"), "get", f"/reservations/{made['id']}")[1]["ends_at"] < made["ends_at"]
    assert (
        Reservation.objects.get().until_at
        == ReservedNode.objects.get().until_at
        == ReservedQuota.objects.get().until_at
    )


def test_a_hold_is_within_quota_of_its_own_tenant_or_one_above_on_the_same_cluster():
    ml, ops = make_tenant("acme/ml/vision"), make_tenant("acme/ops")
    kept = ReservedQuota.objects.create(
        tenant=make_tenant("acme/ml"), cluster_name="north", amounts={"gpu": 8000},
        starts_at=clock.now(), until_at=clock.now() + timedelta(hours=1),
    )  # fmt: skip
    insert = (
        "INSERT INTO quotas_hold (holder_id, tenant_id, within_id, cluster_name, amounts, state)"
        " VALUES (gen_random_uuid(), %s, %s, %s, '{\"gpu\": 1}', 'pending')"
    )
    assert attack(insert, ml.id, kept.id, "north") == "it was allowed"
    for wrong in ((ops.id, kept.id, "north"), (ml.id, kept.id, "south"), (ml.id, new_id(), "north")):
        assert "is not within the quota" in attack(insert, *wrong)
    assert "refused" in attack(
        "UPDATE quotas_hold SET within_id = NULL, state = 'voided', ended_at = statement_timestamp()"
    )

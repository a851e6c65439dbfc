"""Room that is kept for a job through the whole gateway: rows, what its tenant is charged, the API and the page."""

import json
from datetime import timedelta

import pytest
from django.db import DatabaseError, connection, transaction

from federation.models import Job, JobEvent, KeptRoom
from federation.operations import request_cancellation as cancel_job
from federation.operations import run_scheduling_cycle
from federation.operations.kept_room import keep_room
from federation.queries.in_use import features_in_use
from federation.queries.kept_room import load_kept
from federation.queries.snapshot import load_snapshot
from foundation.clock import database_now
from placement.answers.recording import snapshot_of, snapshot_text
from quotas.models import KeptIdle, PastUse
from quotas.operations import put_limit
from quotas.queries import discrepancies, uses
from tenancy.queries import SYSTEM
from tests.builders import (
    actor_for,
    bearer,
    bind,
    make_cluster,
    make_flavor,
    make_limit,
    make_node,
    make_spec,
    make_tenant,
    make_user,
    submit,
)
from tests.refusals import constraint_of

pytestmark = pytest.mark.django_db
ML = "acme/ml"
EARLIER = "make_interval(secs => %s)"
SHIFTS = (
    f"UPDATE federation_keptroom SET since_at = since_at - {EARLIER}, until_at = until_at - {EARLIER}, again_at = again_at - {EARLIER}",
    f"UPDATE quotas_keptidle SET created_at = created_at - {EARLIER}, until_at = until_at - {EARLIER} WHERE ended_at IS NULL",
)
GANG = {"count": 2, "gpu": {"count": 8}}


@pytest.fixture
def user():
    found = make_user()
    bind(found, "acme")
    make_tenant(ML)
    return found


@pytest.fixture
def cluster():
    found = make_cluster(name="c1")
    make_flavor(found)
    return found


@pytest.fixture
def nodes(cluster):
    """Two nodes of eight GPUs."""
    make_node(cluster, "n0")
    return make_node(cluster, "n1")


def old(job, hours=1.0):
    """The job as if submitted so long ago."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(
            "UPDATE federation_job SET created_at = now() - make_interval(secs => %s) WHERE id = %s",
            [hours * 3600, job.id],
        )
        cursor.execute("SET LOCAL session_replication_role = origin")
    return job


def shifted(hours):
    """Everything about kept room as if it had happened so many hours earlier."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        for statement in SHIFTS:
            cursor.execute(statement, [hours * 3600] * statement.count("%s"))
        cursor.execute("SET LOCAL session_replication_role = origin")


def waiting_gang(user, tenant=ML, **changes):
    """A gang of two nodes beside a run of one GPU, which keeps it from one of them; it has waited for an hour."""
    submit(actor_for(user), {**make_spec(name="small", pod={"gpu": {"count": 1}}), "tenant": "acme"})
    run_scheduling_cycle()
    gang = submit(actor_for(user), {**make_spec(name="gang", pod=GANG, **changes), "tenant": tenant})
    return old(gang)


def test_what_is_kept_is_a_row_and_its_idle_gpus_count_as_used(user, nodes, client):
    gang = waiting_gang(user)
    run_scheduling_cycle()
    row = KeptRoom.objects.get()
    assert (row.job_id, sorted(row.nodes), row.outcome) == (gang.id, ["n0", "n1"], "")
    assert row.until_at - row.since_at == timedelta(seconds=21_600)
    idle = KeptIdle.objects.get()
    assert (idle.holder_id, idle.amounts, idle.tenant_id) == (row.id, {"gpu": 15_000}, gang.tenant_id)
    # the text says the numbers of the rows
    gang.refresh_from_db()
    count = f"{idle.amounts['gpu'] // 1000} GPUs idle there count as used by {ML}"
    assert f"{row.until_at:%H:%M} UTC at most; {count}" in gang.reason_message
    shifted(2)
    used = uses()[ML].used["gpu"]
    assert used == pytest.approx(15_000 * (1 - 0.5 ** (2 / 24)), rel=1e-3)
    assert uses()[ML].held.get("gpu", 0) == 0
    [shown] = client.get("/api/v1/kept-room", headers=bearer(user)).json()["items"]
    assert (shown["job"], shown["tenant"], shown["cluster"], sorted(shown["nodes"])) == (
        str(gang.id), ML, "c1", ["n0", "n1"],
    )  # fmt: skip
    assert (shown["idle_gpus"], shown["expected_start"]) == (15, None)
    assert shown["idle_gpu_hours"] == pytest.approx(30, rel=1e-3)
    assert discrepancies() == ()


def test_a_cycle_that_changes_nothing_writes_nothing(user, nodes, django_assert_num_queries):
    waiting_gang(user)
    run_scheduling_cycle()
    before = list(KeptRoom.objects.values()), list(KeptIdle.objects.values())
    run_scheduling_cycle()
    run_scheduling_cycle()
    assert (list(KeptRoom.objects.values()), list(KeptIdle.objects.values())) == before


def test_a_cycle_without_kept_room_does_not_ask_about_it(user, nodes):
    assert not features_in_use().kept_room
    waiting_gang(user)
    run_scheduling_cycle()
    assert features_in_use().kept_room
    assert len(load_kept(database_now())) == 1


def test_what_ends_is_added_to_past_use_once(user, nodes):
    gang = waiting_gang(user)
    run_scheduling_cycle()
    shifted(3)
    cancel_job(actor_for(user), gang.id)
    run_scheduling_cycle()
    row, idle = KeptRoom.objects.get(), KeptIdle.objects.get()
    assert (row.outcome, idle.ended_at is None) == ("withdrawn", False)
    level = PastUse.objects.get(tenant=gang.tenant, resource="gpu").level
    assert level == pytest.approx(15_000 * (1 - 0.5 ** (3 / 24)), rel=1e-3)
    run_scheduling_cycle()
    assert PastUse.objects.get(tenant=gang.tenant, resource="gpu").level == level
    assert discrepancies() == ()
    assert not features_in_use().kept_room


def test_a_placed_job_ends_its_room(user, nodes, cluster):
    gang = waiting_gang(user)
    run_scheduling_cycle()
    make_node(cluster, "n2")
    run_scheduling_cycle()
    gang.refresh_from_db()
    assert gang.state == "dispatching"
    run_scheduling_cycle()
    assert KeptRoom.objects.get().outcome == "placed"
    assert KeptIdle.objects.get().ended_at is not None


def test_room_is_given_up_after_its_time_rests_and_is_kept_again(user, nodes):
    gang = waiting_gang(user)
    run_scheduling_cycle()
    shifted(6.1)
    other = submit(actor_for(user), {**make_spec(name="other", pod={"gpu": {"count": 8}}), "tenant": "acme"})
    run_scheduling_cycle()
    row = KeptRoom.objects.get()
    assert row.outcome == "given_up"
    idle = KeptIdle.objects.get()
    assert idle.ended_at == idle.until_at == row.until_at
    assert "did not become free in time" in JobEvent.objects.get(job=gang, kind="kept_room_given_up").message
    assert Job.objects.get(id=other.id).state == "dispatching"
    Job.objects.filter(id=gang.id).update(reason_at=database_now() - timedelta(minutes=1))
    run_scheduling_cycle()
    gang.refresh_from_db()
    assert "nodes were kept for it from" in gang.reason_message
    assert KeptRoom.objects.count() == 1
    assert discrepancies() == ()
    shifted(6)
    run_scheduling_cycle()
    assert sorted(KeptRoom.objects.values_list("outcome", flat=True)) == ["", "given_up"]


def test_while_no_cycle_runs_nothing_counts_beyond_the_bound(user, nodes):
    waiting_gang(user)
    run_scheduling_cycle()
    shifted(30)  # it was given up 24 hours ago
    expected = 15_000 * (0.5 ** (24 / 24) - 0.5 ** (30 / 24))
    assert uses()[ML].used["gpu"] == pytest.approx(expected, rel=1e-3)
    run_scheduling_cycle()
    assert uses()[ML].used["gpu"] == pytest.approx(expected, rel=1e-3)
    assert discrepancies() == ()


def test_nothing_is_kept_for_a_job_that_quota_would_not_let_start(user, nodes):
    limit = make_limit(ML, nominal="16")
    submit(actor_for(user), {**make_spec(name="own", pod={"gpu": {"count": 1}}), "tenant": ML})
    waiting_gang(user)
    run_scheduling_cycle()
    assert not KeptRoom.objects.exists()
    put_limit(SYSTEM, ML, "gpu", nominal=17_000)
    limit.refresh_from_db()
    assert limit.nominal == 17_000
    run_scheduling_cycle()
    assert KeptRoom.objects.exists()


def test_another_amount_is_another_row(user, nodes, cluster):
    gang = waiting_gang(user)
    run_scheduling_cycle()
    small = submit(
        actor_for(user), {**make_spec(name="urgent", pod={"gpu": {"count": 1}}, priority_class="high"), "tenant": ML}
    )
    run_scheduling_cycle()
    assert Job.objects.get(id=small.id).state == "dispatching"
    assert KeptIdle.objects.count() == 1  # a row that is younger than a minute stays
    shifted(0.1)
    run_scheduling_cycle()
    amounts = list(KeptIdle.objects.order_by("id").values_list("amounts", "ended_at"))
    assert [one["gpu"] for one, _ in amounts] == [15_000, 14_000]
    assert [ended is None for _, ended in amounts] == [False, True]
    assert KeptRoom.objects.get().job_id == gang.id
    keep_room(())
    assert KeptRoom.objects.get().outcome == "released"
    assert not KeptIdle.objects.filter(ended_at=None).exists()
    assert discrepancies() == ()


def test_a_snapshot_with_kept_room_is_recorded_and_read_back(user, nodes):
    waiting_gang(user)
    run_scheduling_cycle()
    snapshot = load_snapshot(database_now(), 10)
    assert len(snapshot.kept) == 1
    assert snapshot_of(json.loads(snapshot_text(snapshot))).kept == snapshot.kept


def test_kept_room_of_others_is_not_shown(user, nodes, client):
    waiting_gang(user)
    run_scheduling_cycle()
    stranger, neighbour = make_user(), make_user()
    bind(neighbour, "acme/other", "viewer")
    for reader in (stranger, neighbour):
        assert client.get("/api/v1/kept-room", headers=bearer(reader)).json()["items"] == []
        client.force_login(reader)
        assert "Room kept" not in client.get("/shares/").content.decode()
        client.logout()
    headers = bearer(neighbour)
    assert client.get("/api/v1/kept-room", {"tenant": ML}, headers=headers).status_code == 404
    assert client.get("/api/v1/kept-room", {"tenant": "\0"}, headers=headers).status_code in (404, 422)
    assert client.get("/api/v1/kept-room", {"tenent": ML}, headers=headers).status_code == 422
    found = client.get("/api/v1/kept-room", {"tenant": "acme"}, headers=bearer(user)).json()
    assert len(found["items"]) == 1
    assert client.get("/api/v1/kept-room", {"tenant": "acme/other"}, headers=bearer(user)).json()["items"] == []


def test_the_page_shows_for_whom_since_when_and_what_it_costs(user, nodes, client):
    waiting_gang(user)
    run_scheduling_cycle()
    shifted(2)
    client.force_login(user)
    text = client.get("/shares/").content.decode()
    assert "Room kept for waiting jobs" in text
    assert "gang" in text
    assert "30.0" in text
    assert "Room kept" not in client.get("/shares/?tenant=acme/nothing").content.decode()


ATTACKS = {
    "UPDATE quotas_keptidle SET amounts = '{}'": "kept_idle_only_ends",
    "UPDATE quotas_keptidle SET created_at = created_at - interval '9 days'": "kept_idle_only_ends",
    "UPDATE quotas_keptidle SET until_at = now() + interval '9 days'": "kept_idle_only_ends",
    "DELETE FROM quotas_keptidle": "kept_idle_only_ends",
    "INSERT INTO quotas_keptidle (id, holder_id, tenant_id, amounts, created_at, until_at)"
    " SELECT gen_random_uuid(), gen_random_uuid(), tenant_id, amounts, now() - interval '1 day', until_at FROM quotas_keptidle": "kept_idle_begins_now",
    "INSERT INTO quotas_keptidle (id, holder_id, tenant_id, amounts, until_at, ended_at)"
    " SELECT gen_random_uuid(), gen_random_uuid(), tenant_id, amounts, until_at, now() FROM quotas_keptidle": "kept_idle_begins_now",
    "INSERT INTO quotas_keptidle (id, holder_id, tenant_id, amounts, until_at)"
    " SELECT gen_random_uuid(), holder_id, tenant_id, amounts, until_at FROM quotas_keptidle": "one_open_kept_idle_per_holder",
    "INSERT INTO quotas_keptidle (id, holder_id, tenant_id, amounts, until_at)"
    " SELECT gen_random_uuid(), gen_random_uuid(), tenant_id, '{\"gpu\": -1}', until_at FROM quotas_keptidle": "kept_idle_amounts_are_whole",
    "UPDATE federation_keptroom SET since_at = since_at - interval '1 day'": "kept_room_only_ends",
    "UPDATE federation_keptroom SET until_at = until_at + interval '1 hour'": "kept_room_only_ends",
    "DELETE FROM federation_keptroom": "kept_room_only_ends",
    "UPDATE federation_keptroom SET outcome = 'placed'": "kept_room_ends_with_an_outcome",
    "UPDATE federation_keptroom SET ended_at = since_at": "kept_room_ends_with_an_outcome",
    "UPDATE federation_keptroom SET ended_at = since_at, outcome = 'given_up'": "kept_room_is_given_up_after_its_time",
    "UPDATE federation_keptroom SET ended_at = since_at - interval '1s', outcome = 'placed'": "kept_room_ends_after_it_began",
    "UPDATE federation_keptroom SET nodes = '{}'": "kept_room_lists_its_nodes",
    "INSERT INTO federation_keptroom (id, job_id, cluster_id, nodes, until_at, again_at, outcome)"
    " SELECT gen_random_uuid(), job_id, cluster_id, nodes, until_at, again_at, '' FROM federation_keptroom": "one_room_is_kept_for_a_job",
    "INSERT INTO federation_keptroom (id, job_id, cluster_id, nodes, until_at, again_at, outcome)"
    " SELECT gen_random_uuid(), job_id, cluster_id, nodes, now() - interval '1 day', again_at, '' FROM federation_keptroom": "kept_room_is_given_up_in_time",
}


@pytest.mark.parametrize(("statement", "constraint"), ATTACKS.items())
def test_the_database_refuses_what_is_not_so(user, nodes, statement, constraint):
    waiting_gang(user)
    run_scheduling_cycle()
    with pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert constraint_of(refused.value) == constraint


def test_nobody_chooses_when_a_charge_ends(user, nodes):
    waiting_gang(user)
    run_scheduling_cycle()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE quotas_keptidle SET ended_at = now() + interval '9 days'")
        cursor.execute("SELECT ended_at <= clock_timestamp() FROM quotas_keptidle")
        assert cursor.fetchone() == (True,)
        with pytest.raises(DatabaseError), transaction.atomic():
            cursor.execute("UPDATE quotas_keptidle SET ended_at = NULL")
    assert discrepancies() == ()

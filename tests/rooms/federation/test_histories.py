"""A database that was restored, or taken over without its last commits, closes dispatch itself, and opens it when nothing was lost."""

from datetime import timedelta

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.models.functions import Now

from clusters.drivers import Unreachable
from clusters.models import Cluster
from federation import locks, operations
from federation.models import Attempt, ClusterUpkeep, ComparedCluster, DatabaseHistory, Job, Standstill
from federation.operations import histories, reconciliation, transitions
from federation.operations.histories import watch_history
from federation.operations.reconciliation import compare_clusters, reconcile_clusters
from federation.operations.restoration import begin_standstill
from federation.queries.standstill import HISTORY_CHANGED, circumstances, is_dispatch_closed
from foundation.clock import database_now
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import make_user, submit
from tests.concurrency.test_quota_races import at_once
from tests.live import call, gpu_job, place, simulated_cluster
from tests.rooms.federation.test_evidence import released
from tests.rooms.federation.test_restoration import call_api, everything, forget_attempts, uids

pytestmark = pytest.mark.django_db(transaction=True)
EARLIER, STILL_EARLIER = "1/00000001/5/7", "1/00000002/5/7"


def restored(history=EARLIER):
    """The database as a restore leaves it: the accepted history is not its own."""
    DatabaseHistory.objects.all().delete()
    DatabaseHistory.objects.create(accepted=history)


def settle():
    """As if all calls of before had arrived."""
    Standstill.objects.filter(ended_at=None).update(compare_from="2026-01-01T00:00Z")


def compare():
    """Compares all clusters as soon as comparisons count."""
    watch_history()
    settle()
    reconcile_clusters()
    watch_history()


def standstill():
    return Standstill.objects.latest("id")


def test_a_comparison_that_died_with_the_earlier_server_holds_up_no_other(cluster):
    reconcile_clusters()
    soon = Now() + timedelta(minutes=3)
    ClusterUpkeep.objects.update(compare_claimed_until=soon, slow_compare_until=soon)
    restored()
    compare()
    assert not is_dispatch_closed()


class Lost(Exception):
    """Not the cluster's failure: the database's, or our own."""


@pytest.mark.parametrize("failure", [Unreachable("no answer"), Lost()], ids=["cluster", "other"])
def test_a_comparison_that_fails_is_soon_tried_again_by_anyone_while_dispatch_waits_for_it(
    cluster, monkeypatch, failure
):
    def fail(_):
        raise failure

    reconcile_clusters()
    restored()
    watch_history()
    settle()
    monkeypatch.setattr(reconciliation, "_reconcile", fail)
    reconcile_clusters()
    upkeep = ClusterUpkeep.objects.get()
    assert upkeep.compare_claimed_until is None, "no process compares it any more"
    assert upkeep.compare_due_at - database_now() <= timedelta(seconds=5)
    monkeypatch.undo()
    ClusterUpkeep.objects.update(compare_due_at=Now(), slow_compare_until=Now() + timedelta(minutes=3))
    compare_clusters()
    watch_history()
    assert not is_dispatch_closed()
    monkeypatch.setattr(reconciliation, "_reconcile", fail)
    reconcile_clusters()
    assert ClusterUpkeep.objects.get().compare_due_at - database_now() > timedelta(seconds=30), "nothing waits for it"


def test_a_failed_comparison_ends_its_claim_with_another_session_if_its_own_has_ended(cluster, monkeypatch):
    def end_the_session(_):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            (pid,) = cursor.fetchone()
        with psycopg.connect(**plain_parameters(), autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")

    monkeypatch.setattr(reconciliation, "_reconcile", end_the_session)
    reconcile_clusters()
    assert ClusterUpkeep.objects.get().compare_claimed_until is None


def plain_parameters():
    return {k: v for k, v in connection.get_connection_params().items() if k not in {"cursor_factory", "context"}}


def test_the_first_history_of_an_installation_is_accepted_and_closes_nothing(cluster):
    reconcile_clusters()
    assert DatabaseHistory.objects.get().accepted == circumstances().history
    assert not circumstances().is_changed
    assert circumstances().is_history_known
    assert not Standstill.objects.exists()


def test_each_statement_that_lets_a_job_start_compares_the_history_before_anyone_noticed(cluster, submitter):
    _, attempt = place(submitter)
    waiting = submit(submitter, gpu_job("waits"))
    claim = locks.claim_due_attempts(cluster.id, 5)
    transitions.mark_created(claim.token, {attempt.id: {attempt.remote_objects.get().id: "uid-1"}})
    restored()
    assert is_dispatch_closed()
    assert transitions.commit_to_start(claim.token, [attempt.id]) == {}
    Attempt.objects.update(claim_expires_at=None)
    assert locks.claim_due_attempts(cluster.id, 5).attempt_ids == ()
    assert locks.claim_probes(cluster.id, 5).attempt_ids == ()
    assert locks.claim_left_waiting(cluster.id, 0, 5).attempt_ids == ()
    with transaction.atomic():
        assert locks.lock_queued_jobs([waiting.id]) == {}
    assert not Standstill.objects.exists(), "no process has noticed"
    DatabaseHistory.objects.all().delete()
    with transaction.atomic():
        assert set(locks.lock_queued_jobs([waiting.id])) == {waiting.id}
    assert set(transitions.commit_to_start(claim.token, [attempt.id])) == {attempt.id}


def test_nothing_on_a_silent_cluster_is_given_up_before_anyone_noticed(cluster, submitter):
    _, attempt = place(submitter)
    restored()
    Cluster.objects.update(health="unreachable", silent_since="2026-01-01T00:00Z")
    operations.sweep()
    attempt.refresh_from_db()
    assert attempt.state == "reserved"


def test_a_standstill_begins_without_a_hand_and_ends_without_one_where_nothing_was_lost(cluster, submitter, client):
    released(submitter, jobs=2, gpus=1)
    submit(submitter, gpu_job("waits", gpus=1))
    ran = uids(cluster)
    restored()
    everything()
    begun = standstill()
    assert (begun.reason, begun.needs_operator, begun.ended_at) == (HISTORY_CHANGED, False, None)
    assert not ComparedCluster.objects.exists(), "calls of before may still arrive"
    assert uids(cluster) == ran
    assert DatabaseHistory.objects.get().accepted == circumstances().history
    compare()
    assert standstill().ended_by == histories.NOTHING_FOUND
    everything()
    assert set(ran) < set(uids(cluster))
    acts = AuditEntry.objects.filter(action__startswith="dispatch.").order_by("id")
    assert list(acts.values_list("action", "actor_name")) == [
        ("dispatch.close", SYSTEM.name),
        ("dispatch.open", SYSTEM.name),
    ]
    assert acts[0].detail["before"] == EARLIER


def test_where_a_run_was_forgotten_the_standstill_waits_for_an_operator_who_sees_why(
    cluster, submitter, client, capsys
):
    released(submitter, jobs=2, gpus=1)
    ran = uids(cluster)
    forget_attempts()
    restored()
    everything()
    compare()
    compare()
    assert (standstill().ended_at, standstill().needs_operator) == (None, True)
    assert uids(cluster) == ran
    operator = make_user("ops@example.com")
    operator.is_staff = True
    operator.save()
    told = call_api(client, operator, "get")[1]
    assert told["lost_commits"] == [{"cluster": "east", "adopted": 2, "vanished": 0}]
    assert (told["is_closed"], told["needs_operator"], told["uncompared"]) == (True, True, [])
    client.force_login(operator)
    page = client.get("/standstill/").content.decode()
    assert "2 runs that the database had forgotten were adopted" in page
    assert "An operator has to resume" in page
    call_command("standstill", "status")
    assert "east: 2 runs that the database had forgotten were adopted" in capsys.readouterr().out
    call_command("standstill", "open")
    everything()
    assert (uids(cluster), Attempt.objects.count()) == (ran, 2)


def test_a_forgotten_release_and_a_vanished_run_need_an_operator_and_end_nothing(cluster, submitter):
    released(submitter, jobs=1, gpus=1)
    (seen,) = call(cluster, "list_jobs")
    call(cluster, "delete_job", seen.namespace, seen.name, seen.uid)
    restored()
    compare()
    assert ComparedCluster.objects.values_list("vanished", "adopted", "strangers").get() == (1, 0, 0)
    assert (standstill().ended_at, standstill().needs_operator) == (None, True)
    assert not Attempt.objects.filter(finished_at__isnull=False).exists()


def test_a_running_object_of_an_unknown_job_needs_an_operator_and_is_left_alone(cluster, submitter):
    (job_id,) = released(submitter)
    ran = uids(cluster)
    forget_attempts()
    Job.objects.filter(id=job_id).update(state="cancelled", finished_at=Now())
    restored()
    compare()
    assert ComparedCluster.objects.get().strangers == 1
    assert (standstill().needs_operator, uids(cluster)) == (True, ran)


def test_an_unknown_object_that_does_not_run_must_be_gone_before_its_cluster_counts_as_compared(
    cluster, submitter, monkeypatch
):
    _, attempt = place(submitter)
    monkeypatch.setattr(transitions, "commit_to_start", lambda *_: {})
    operations.dispatch_attempts()
    attempt.refresh_from_db()
    assert (attempt.state, len(uids(cluster))) == ("created", 1)
    monkeypatch.undo()
    forget_attempts()
    restored()
    compare()
    assert (uids(cluster), standstill().ended_at, standstill().needs_operator) == ([], None, False)
    compare()
    assert standstill().ended_by == histories.NOTHING_FOUND


def test_one_silent_cluster_keeps_it_closed_until_it_is_compared_or_an_operator_answers_for_it(cluster, submitter):
    simulated_cluster("west")
    Cluster.objects.filter(name="west").update(health="unreachable", silent_since="2026-01-01T00:00Z")
    restored()
    compare()
    assert (standstill().ended_at, standstill().needs_operator) == (None, False)
    with pytest.raises(CommandError, match="west was not compared"):
        call_command("standstill", "open")
    call_command("standstill", "open", "--answer-for", "west is off")
    assert (standstill().needs_operator, "west is off" in standstill().ended_by) == (True, True)
    restored()
    compare()
    Cluster.objects.filter(name="west").update(health="ready", silent_since=None)
    compare()
    assert standstill().ended_by == histories.NOTHING_FOUND


def test_a_standstill_that_an_operator_began_needs_one_and_counts_no_comparison_of_before_the_change(
    cluster, submitter
):
    begin_standstill(SYSTEM, "restored by hand")
    reconcile_clusters()
    ComparedCluster.objects.update(history=EARLIER)  # as the server of before wrote it
    restored()
    with pytest.raises(CommandError, match="east was not compared"):
        call_command("standstill", "open")
    assert Standstill.objects.count() == 1
    compare()
    assert (standstill().ended_at, standstill().reason) == (None, "restored by hand")
    call_command("standstill", "open")
    assert standstill().ended_at is not None


def test_an_operator_takes_over_a_standstill_that_the_gateway_began(cluster):
    restored()
    watch_history()
    begin_standstill(SYSTEM, "wait for me")
    compare()
    assert (standstill().ended_at, standstill().needs_operator) == (None, True)
    assert standstill().reason == f"{HISTORY_CHANGED}; wait for me"


def test_a_history_that_changes_again_makes_earlier_comparisons_void(cluster, submitter):
    simulated_cluster("west")
    Cluster.objects.filter(name="west").update(health="unreachable", silent_since="2026-01-01T00:00Z")
    restored()
    compare()
    ComparedCluster.objects.update(history=EARLIER)  # what was compared on the server that has gone
    restored(STILL_EARLIER)
    Cluster.objects.filter(name="west").update(health="ready", silent_since=None)
    watch_history()
    assert (Standstill.objects.count(), circumstances().is_settling) == (1, True)
    reconcile_clusters()
    assert not ComparedCluster.objects.filter(history=circumstances().history).exists()
    compare()
    assert standstill().ended_by == histories.NOTHING_FOUND


def test_a_list_that_was_made_before_the_change_counts_for_nothing(cluster, submitter, monkeypatch):
    released(submitter)
    ran = uids(cluster)
    original = reconciliation._list

    async def overtaken(*given):
        seen = await original(*given)
        forgotten.append(1)
        return seen

    def rows(seen):
        if forgotten:
            forget_attempts()
            restored()
            watch_history()
            settle()
        return {}

    forgotten = []
    monkeypatch.setattr(reconciliation, "_list", overtaken)
    monkeypatch.setattr(reconciliation, "_rows", rows)
    reconcile_clusters()
    assert (uids(cluster), ComparedCluster.objects.count(), Attempt.objects.count()) == (ran, 0, 0)
    assert cluster.events.filter(kind="unknown_runs").count() == 0


def test_of_bells_that_notice_at_the_same_moment_one_begins_the_standstill(cluster):
    restored()
    at_once([watch_history] * 6 + [lambda: begin_standstill(SYSTEM, "by hand")])
    assert Standstill.objects.count() == 1
    assert standstill().needs_operator
    assert not circumstances().is_changed


def test_what_an_operator_is_asked_before_any_process_noticed_says_that_dispatch_is_closed(cluster, client, capsys):
    restored()
    operator = make_user("ops@example.com")
    operator.is_staff = True
    operator.save()
    told = call_api(client, operator, "get")[1]
    assert (told["is_closed"], told["reason"], told["began_at"]) == (True, HISTORY_CHANGED, None)
    call_command("standstill", "status")
    assert "Dispatch is closed" in capsys.readouterr().out
    client.force_login(operator)
    assert b"begins within seconds" in client.get("/standstill/").content
    assert call_api(client, operator, "post", "/open")[0] == 409


def samples(client):
    lines = [line.rpartition(" ") for line in client.get("/metrics").content.decode().splitlines()]
    return {name: value for name, _, value in lines if name.startswith(("switchyard_dispatch", "switchyard_database"))}


def test_the_metrics_say_that_dispatch_is_closed_and_who_can_open_it(client, cluster):
    assert samples(client)["switchyard_dispatch_closed"] == "0.0"
    restored()
    assert samples(client)["switchyard_dispatch_closed"] == "1.0"
    begin_standstill(SYSTEM, "by hand")
    found = samples(client)
    assert found["switchyard_dispatch_needs_operator"] == "1.0"
    assert found["switchyard_database_history_known"] == "1.0"


def test_a_server_that_reveals_nothing_stops_nothing_and_is_reported(client, cluster, capsys):
    """As some managed servers do: each function raises an error of its own."""
    refusing = "LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'feature_not_supported'; END $$"
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA managed")
        cursor.execute(
            f"CREATE FUNCTION managed.pg_control_system() RETURNS TABLE (system_identifier bigint) {refusing}"
        )
        cursor.execute(f"CREATE FUNCTION managed.pg_current_wal_lsn() RETURNS pg_lsn {refusing}")
        cursor.execute("SET LOCAL search_path = managed, public, pg_catalog")
        watch_history()
        now = circumstances()
        assert (now.history.split("/")[:2], now.is_history_known, now.is_changed) == (["?", "?"], False, False)
        assert not is_dispatch_closed()
        assert samples(client)["switchyard_database_history_known"] == "0.0"
        call_command("standstill", "status")
        assert "begin a standstill by hand" in capsys.readouterr().out
        restored(now.history.replace(now.history.rpartition("/")[2], "7"))
        assert is_dispatch_closed(), "tables of another restore are noticed there too"
        transaction.set_rollback(True)

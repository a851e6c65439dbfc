"""An urgent job takes the place of running ones of its organisation: live, on simulated clusters."""

from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now

import quotas.operations
from billing.models import Meter
from federation import operations
from federation.engine.lifecycle import AttemptState
from federation.models import (
    Attempt,
    DatabaseHistory,
    Job,
    JobEvent,
    Preemption,
    PreemptionVictim,
    PriorityClass,
    Standstill,
)
from federation.operations import endings, preemption
from federation.operations.consequences import Ending
from federation.queries.queue import load_queue
from foundation.clock import database_now
from placement.preemption.plan import plan
from quotas.models import Hold
from tenancy.models import AuditEntry, User
from tests.builders import bind, make_tenant, make_user, submit
from tests.live import gpu_job, observe_until
from tests.rooms.federation.test_constraints import attack

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def classes():
    PriorityClass.objects.filter(name="high").update(preempts="lower")
    PriorityClass.objects.update(shield_seconds=0)


def urgent(name="urgent", **fields):
    return gpu_job(name, **fields) | {"priority_class": "high"}


def running(*jobs):
    return lambda: Job.objects.filter(id__in=[job.id for job in jobs], state="running").count() == len(jobs)


def told(job):
    job.refresh_from_db()
    return job.state, job.reason_code


def test_an_urgent_job_takes_the_place_of_a_running_one_which_is_stopped_once_and_resumes(cluster, submitter):
    first, second = (submit(submitter, gpu_job(f"batch-{n}", seconds=100_000)) for n in range(2))
    observe_until(running(first, second))
    job = submit(submitter, urgent(seconds=5))
    operations.run_scheduling_cycle()
    assert told(job) == ("queued", "waiting_for_preemption")
    assert "1 less urgent job is being stopped for it" in job.reason_message
    made = Preemption.objects.get()
    victim = PreemptionVictim.objects.get()
    stopped, other = (first, second) if victim.job_id == first.id else (second, first)
    assert (made.beneficiary_id, made.cluster_id, len(made.nodes)) == (job.id, cluster.id, 1)
    assert told(stopped) == ("running", "interrupted")
    observe_until(running(job, other))
    operations.run_scheduling_cycle()  # one more: it ends claims first
    made.refresh_from_db()
    assert (made.outcome, Preemption.objects.count()) == ("placed", 1)
    attempt = Attempt.objects.get(id=victim.attempt_id)
    assert (attempt.state, attempt.end_reason) == ("preempted", "preempted_for_job")
    assert attempt.end_message == f"Preempted for job {job.id}"
    assert told(stopped)[0] == "queued"
    observe_until(lambda: Job.objects.filter(id=job.id, state="succeeded").exists() and running(stopped, other)())
    kinds = list(JobEvent.objects.filter(job=stopped).order_by("id").values_list("kind", flat=True))
    assert kinds.count("interrupted") == 1
    assert [one.number for one in stopped.attempts.order_by("number")] == [1, 2]
    attempt.refresh_from_db()
    hold, meter = Hold.objects.get(holder_id=attempt.id), Meter.objects.get(run_id=attempt.id)
    assert (hold.state, meter.is_closed, attempt.lost_seconds is not None) == ("posted", True, True)
    assert PreemptionVictim.objects.count() == 1


def started(submitter, name="batch", minutes=60, **fields):
    """A job that runs since a while, without a turn of the observer."""
    job = submit(submitter, gpu_job(name) | fields)
    operations.run_scheduling_cycle()
    since = Now() - timedelta(minutes=minutes)
    Attempt.objects.filter(job=job).update(
        state="running", starting_at=since, released_at=since, started_at=since, next_action_at=None
    )
    Job.objects.filter(id=job.id).update(state="running", started_at=since)
    return job, Attempt.objects.get(job=job)


@pytest.fixture
def contest(cluster, submitter):
    """A job that runs on each node, and an urgent one for which the younger is being stopped."""
    victim, other = started(submitter, "young", 10)[0], started(submitter, "old", 300)[0]
    job = submit(submitter, urgent())
    operations.run_scheduling_cycle()
    return job, victim, other


def end_of(job):
    """Ends the attempt as dispatch does when its cluster has confirmed that nothing of it is left."""
    attempt = Attempt.objects.get(job=job, finished_at=None)
    with transaction.atomic():
        ended = Ending(attempt.id, AttemptState.PREEMPTED, attempt.stop_reason, attempt.stop_message)
        assert endings.end_attempts([ended]) == 1
    post(attempt)


def post(attempt):
    with transaction.atomic():
        quotas.operations.end_holds({attempt.id: "posted"})


def outcomes():
    return list(Preemption.objects.order_by("id").values_list("outcome", flat=True))


def test_the_cheaper_job_is_stopped_and_its_nodes_are_kept_from_others_until_the_urgent_one_is_placed(
    contest, submitter
):
    job, victim, other = contest
    [(stopped, lost_seconds)] = PreemptionVictim.objects.values_list("job", "lost_seconds")
    assert stopped == victim.id
    assert 600 <= lost_seconds < 660
    assert told(other)[1] != "interrupted"
    quick = submit(submitter, gpu_job("quick", gpus=1) | {"priority_class": "normal"})
    operations.run_scheduling_cycle()
    assert (told(job), told(quick)[0]) == (("queued", "waiting_for_preemption"), "queued")
    assert PreemptionVictim.objects.count() == 1, "it is decided once"
    end_of(victim)
    Job.objects.filter(id=job.id).update(retry_at=Now() + timedelta(hours=1))  # the urgent one is not considered now
    operations.run_scheduling_cycle()
    assert told(quick) == ("queued", "kept_for_urgent")
    Job.objects.filter(id=job.id).update(retry_at=None)
    operations.run_scheduling_cycle()
    operations.run_scheduling_cycle()
    assert (told(job)[0], told(victim)[0], outcomes()) == ("dispatching", "queued", ["placed"])


def test_a_silent_clusters_victim_frees_nothing_and_the_claim_is_given_up_at_its_deadline(contest):
    job, victim, _ = contest
    Attempt.objects.filter(job=victim).update(state="unknown", state_before_unknown="running")
    operations.run_scheduling_cycle()
    assert told(job) == ("queued", "waiting_for_preemption")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE federation_preemption DISABLE TRIGGER a_preemption_ends_once")
        cursor.execute("UPDATE federation_preemption SET created_at = now() - interval '2 hours', deadline_at = now()")
        cursor.execute("ALTER TABLE federation_preemption ENABLE TRIGGER a_preemption_ends_once")
    operations.run_scheduling_cycle()
    assert outcomes()[0] == "expired"
    assert JobEvent.objects.filter(job=job, kind="claim_expired").exists()
    assert PreemptionVictim.objects.filter(job=victim).count() == 1
    assert Hold.objects.get(holder_id=Attempt.objects.get(job=victim).id).state == "pending"


@pytest.mark.parametrize("change", [operations.request_cancellation, operations.request_suspension])
def test_a_claim_ends_when_its_job_is_cancelled_or_suspended_and_the_victim_goes_on_by_itself(
    contest, submitter, change
):
    job, victim, _ = contest
    change(submitter, job.id)
    operations.run_scheduling_cycle()
    assert outcomes() == ["withdrawn"]
    end_of(victim)
    operations.run_scheduling_cycle()
    assert told(victim)[0] == "dispatching"


def test_a_victim_that_its_user_cancels_is_cancelled(contest, submitter):
    job, victim, _ = contest
    operations.request_cancellation(submitter, victim.id)
    attempt = Attempt.objects.get(job=victim)
    assert attempt.stop_reason == "cancelled"
    with transaction.atomic():
        endings.end_attempts([Ending(attempt.id, AttemptState.CANCELLED, "cancelled", "")])
    post(attempt)
    operations.run_scheduling_cycle()
    assert (told(victim)[0], told(job)[0]) == ("cancelled", "dispatching")


def test_it_uses_up_no_retry_and_no_cluster_is_avoided(contest):
    _, victim, _ = contest
    none = dict.fromkeys(("preempted", "node_lost", "spot", "infrastructure", "program"), 0)
    Job.objects.filter(id=victim.id).update(spec=victim.spec | {"retries": none})
    end_of(victim)
    assert told(victim) == ("queued", "attempt_returned")
    assert "is stopped: Preempted for job" in victim.reason_message
    operations.run_scheduling_cycle()
    assert not [one for one in load_queue(database_now(), 100) if one.constraints.refusals]


def test_without_a_class_that_allows_it_nothing_is_stopped(cluster, submitter):
    PriorityClass.objects.update(preempts="never")
    started(submitter), started(submitter)
    job = submit(submitter, urgent())
    operations.run_scheduling_cycle()
    assert (told(job), Preemption.objects.count()) == (("queued", "waiting_for_capacity"), 0)


def test_a_shield_is_kept_and_told(cluster, submitter):
    PriorityClass.objects.update(shield_seconds=3600)
    started(submitter, minutes=59), started(submitter, minutes=30)
    job = submit(submitter, urgent())
    operations.run_scheduling_cycle()
    assert (told(job), Preemption.objects.count()) == (("queued", "waiting_for_capacity"), 0)
    assert "2 running jobs of lower priority cannot be stopped yet: the first is shielded until" in job.reason_message


def test_a_job_of_another_organisation_is_left_alone(cluster, submitter):
    tenant = make_tenant("globex/lab")
    for _ in range(2):
        Job.objects.filter(id=started(submitter)[0].id).update(tenant=tenant)
    job = submit(submitter, urgent())
    operations.run_scheduling_cycle()
    assert (told(job), Preemption.objects.count()) == (("queued", "waiting_for_capacity"), 0)


def test_the_brake_lets_an_organisation_stop_a_share_of_its_gpus_an_hour(cluster, submitter, settings):
    settings.PREEMPTION_HOURLY_SHARE = "0.4"
    started(submitter, "young", 10), started(submitter, "old", 300)
    first = submit(submitter, urgent("first"))
    operations.run_scheduling_cycle()
    end_of(Job.objects.get(name="young"))
    operations.run_scheduling_cycle()
    assert told(first)[0] == "dispatching"
    second = submit(submitter, urgent("second"))
    operations.run_scheduling_cycle()
    assert (told(second)[0], Preemption.objects.count()) == ("queued", 1)
    assert "cannot be stopped now: at most 16 in a cycle, and a share an hour" in second.reason_message
    settings.PREEMPTION_HOURLY_SHARE = "1"
    operations.run_scheduling_cycle()
    assert Preemption.objects.count() == 2
    settings.PREEMPTION_MOST_VICTIMS = 0
    third = submit(submitter, urgent("third"))
    operations.run_scheduling_cycle()
    assert told(third)[1] == "waiting_for_capacity"


@pytest.mark.parametrize(
    "what",
    ["victim stopped", "victim suspended", "beneficiary cancelled", "tenant moved", "standstill", "database restored"],
)
def test_what_changes_while_the_engine_decides_is_respected(cluster, submitter, monkeypatch, what):
    victim, attempt = started(submitter)
    started(submitter, minutes=600)
    job = submit(submitter, urgent())

    def decide_slowly(*arguments):
        found = plan(*arguments)
        assert found.decision is not None
        match what:
            case "victim stopped":
                Attempt.objects.filter(id=attempt.id).update(stop_requested_at=Now(), stop_reason="suspended")
            case "victim suspended":
                operations.request_suspension(submitter, victim.id)
            case "beneficiary cancelled":
                operations.request_cancellation(submitter, job.id)
            case "tenant moved":
                Job.objects.filter(id=victim.id).update(tenant=make_tenant("globex/lab"))
            case "standstill":
                Standstill.objects.create(reason="a test")
            case "database restored":  # to an earlier state; no process has noticed yet
                DatabaseHistory.objects.update_or_create(id=1, defaults={"accepted": "1/00000001/5/7"})
                assert not Standstill.objects.exists()
        return found

    with monkeypatch.context() as slow:
        slow.setattr(preemption, "plan", decide_slowly)
        operations.run_scheduling_cycle()
    assert (Preemption.objects.count(), PreemptionVictim.objects.count()) == (0, 0)
    assert not Attempt.objects.filter(stop_reason="preempted_for_job").exists()


def test_a_failure_in_the_middle_marks_nothing(cluster, submitter, monkeypatch):
    started(submitter), started(submitter)
    job = submit(submitter, urgent())
    with monkeypatch.context() as broken:
        broken.setattr(preemption, "_tell", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            operations.run_scheduling_cycle()
    assert (Preemption.objects.count(), Attempt.objects.filter(stop_requested_at__isnull=False).count()) == (0, 0)
    operations.run_scheduling_cycle()
    assert told(job)[1] == "waiting_for_preemption"


def test_the_database_judges(contest):
    job, victim, other = contest
    made = Preemption.objects.get()
    insert = """
        INSERT INTO federation_preemption (id, beneficiary_id, cluster_id, organisation, nodes, cost_gpu_seconds, is_exact,
               considered, alternatives, deadline_at, outcome)
        VALUES (gen_random_uuid(), %s, %s, 'acme', '[]', 0, true, '[]', '[]', now() + interval '1 hour', '')"""
    assert "one_live_preemption_per_beneficiary" in attack(insert, job.id, made.cluster_id)
    stop = """
        INSERT INTO federation_preemptionvictim (attempt_id, preemption_id, job_id, lost_seconds, ran_seconds, shield_seconds,
               times_preempted, gpu_milli, cost_gpu_seconds)
        VALUES (%s, %s, %s, 0, %s, %s, %s, 0, 0)"""
    mine, theirs = Attempt.objects.get(job=victim), Attempt.objects.get(job=other)
    assert "federation_preemptionvictim_pkey" in attack(stop, mine.id, made.id, victim.id, 9, 9, 0)
    assert "a_victims_shield_is_kept" in attack(stop, theirs.id, made.id, other.id, 8, 9, 0)
    assert "a_job_is_preempted_a_few_times_at_most" in attack(stop, theirs.id, made.id, other.id, 9, 9, 3)
    assert "must not be stopped" in attack(stop, theirs.id, made.id, victim.id, 9, 9, 0)
    Job.objects.filter(id=other.id).update(priority=100)
    assert "must not be stopped" in attack(stop, theirs.id, made.id, other.id, 9, 9, 0)
    Job.objects.filter(id=other.id).update(priority=99)
    assert "it was allowed" in attack(stop, theirs.id, made.id, other.id, 9, 9, 0)
    assert "is decided" in attack("UPDATE federation_preemption SET nodes = '[\"n\"]'")
    assert "a_preemption_ends_with_an_outcome" in attack("UPDATE federation_preemption SET ended_at = now()")
    assert "a_preemption_ends_with_an_outcome" in attack(
        "UPDATE federation_preemption SET outcome = 'gone', ended_at = now()"
    )
    ends = "UPDATE federation_preemption SET outcome = 'placed', ended_at = now()"
    assert attack(ends) == "it was allowed"
    assert "is decided" in attack(ends)
    assert "priority_class_preempts_is_known" in attack("UPDATE federation_priorityclass SET preempts = 'all'")
    assert "priority_class_shield_is_in_range" in attack("UPDATE federation_priorityclass SET shield_seconds = 2592001")


def test_its_users_see_why_it_was_stopped_and_what_others_would_have_cost(contest, call, client):
    job, victim, other = contest
    ada = User.objects.get(email="ada@acme.example")
    status, page = call(ada, "get", f"/jobs/{victim.id}/preemptions")
    assert status == 200, page
    (one,) = page["items"]
    assert (one["role"], one["outcome"], one["ended_at"], one["is_exact"]) == ("victim", None, None, True)
    assert one["beneficiary"] == {
        "job": str(job.id), "name": "urgent", "tenant": "acme/research/vision", "priority": 100,
    }  # fmt: skip
    (stopped,) = one["victims"]
    lost = stopped["lost_seconds"]  # at the decision, which a busy host takes late
    assert 600 <= lost < 660
    assert (stopped["job"], stopped["cost_gpu_seconds"]) == (str(victim.id), (lost + 60) * 8)
    assert [(c["job"], c["name"], c["gpus"]) for c in one["considered"]] == [(str(other.id), "old", 8.0)]
    assert call(ada, "get", f"/jobs/{job.id}/preemptions")[1]["items"][0]["role"] == "beneficiary"
    assert call(ada, "get", f"/jobs/{other.id}/preemptions")[1]["items"] == []
    client.force_login(ada)
    shown = client.get(f"/jobs/{victim.id}/").content.decode()
    assert "Stopped for" in shown
    assert "left running" in shown
    assert f"Preempted for job {job.id}, which has priority 100; this job has 0." in shown
    assert "1 job stopped for it" in client.get(f"/jobs/{job.id}/").content.decode()
    assert "Jobs that could be stopped" not in client.get(f"/jobs/{other.id}/").content.decode()


def test_names_of_jobs_that_a_user_may_not_see_are_not_shown(contest, call, client):
    job, victim, other = contest
    Job.objects.filter(id__in=[job.id, other.id]).update(tenant=make_tenant("acme/secret"), name="hush")
    ben = make_user("ben@acme.example")
    bind(ben, "acme/research/vision", "viewer")
    _, page = call(ben, "get", f"/jobs/{victim.id}/preemptions")
    (one,) = page["items"]
    assert (one["beneficiary"]["name"], one["beneficiary"]["tenant"], one["considered"][0]["name"]) == (
        None,
        None,
        None,
    )
    client.force_login(ben)
    assert "hush" not in client.get(f"/jobs/{victim.id}/").content.decode()
    assert call(ben, "get", f"/jobs/{job.id}/preemptions")[0] == 404


def test_classes_say_whether_they_replace_others_and_how_long_their_jobs_are_shielded(call, client):
    operator = make_user("operator@example.org")
    operator.is_staff = True
    operator.save()
    body = {"name": "urgent", "value": 500, "is_open": True, "preempts": "lower", "shield_seconds": 60}
    status, made = call(operator, "put", "/priority-classes", body)
    assert (status, made["preempts"], made["shield_seconds"]) == (201, "lower", 60)
    entry = AuditEntry.objects.get(action="priority_class.put")
    assert (entry.detail["after"]["preempts"], entry.detail["after"]["shield_seconds"]) == ("lower", 60)
    plain = {"name": "urgent", "value": 500, "is_open": True}
    status, made = call(operator, "put", "/priority-classes", plain)
    assert (status, made["preempts"], made["shield_seconds"]) == (200, "never", 300)
    for changes, field in (
        ({"preempts": "all"}, "preempts"),
        ({"shield_seconds": -1}, "shield_seconds"),
        ({"shield_seconds": 2_592_001}, "shield_seconds"),
        ({"shield_seconds": "9"}, "shield_seconds"),
    ):
        status, refused = call(operator, "put", "/priority-classes", plain | changes)
        assert (status, [error["field"] for error in refused["errors"]]) == (422, [field])
    client.force_login(operator)
    form = {"value": "5", "open_to": "all", "preempts": "lower", "shield_seconds": "0", "grants": ""}
    assert client.post(f"/priority-classes/{made['id']}/", form).status_code == 302
    row = PriorityClass.objects.get(name="urgent")
    assert (row.preempts, row.shield_seconds) == ("lower", 0)
    listed = client.get("/priority-classes/").content.decode()
    assert "replaces running jobs of lower priority" in listed
    assert "its jobs have no minimum run time" in listed
    refused = client.post(f"/priority-classes/{made['id']}/", form | {"shield_seconds": "soon"})
    assert refused.status_code == 422

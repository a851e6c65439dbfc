"""A job within its tenant's quota takes back what other tenants borrowed: live, on simulated clusters."""

from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now

import quotas.operations
from federation import operations
from federation.models import Attempt, Job, JobEvent, Preemption, PreemptionVictim, PriorityClass
from federation.operations import preemption
from federation.queries.quotes import capacity_of, quote_of
from placement.preemption.plan import plan
from quotas.engine.holds import Borrowing
from quotas.models import QuotaLimit
from tests.builders import bind, make_tenant, make_user, submit
from tests.live import gpu_job
from tests.rooms.federation.test_constraints import attack
from tests.rooms.federation.test_preemption import end_of, told

pytestmark = pytest.mark.django_db(transaction=True)
GPU = 1000


@pytest.fixture(autouse=True)
def lent(submitter):
    """Sixteen GPUs, all of the fleet: half of each department's, which borrow from each other."""
    PriorityClass.objects.update(shield_seconds=0)
    for path in ("acme/a", "acme/b"):
        make_tenant(path)
    quotas.operations.put_limit(submitter, "acme", "gpu", nominal=16 * GPU)
    for path in ("acme/a", "acme/b"):
        quotas.operations.put_limit(
            submitter, path, "gpu", nominal=8 * GPU, borrowing=Borrowing(None, None, reclaims=True)
        )


def job_of(submitter, tenant, name, gpus=8, **fields):
    return submit(submitter, {**gpu_job(name, gpus=gpus), "tenant": tenant} | fields)


def started(submitter, tenant, name, minutes=60, **fields):
    job = job_of(submitter, tenant, name, **fields)
    operations.run_scheduling_cycle()
    since = Now() - timedelta(minutes=minutes)
    Attempt.objects.filter(job=job).update(
        state="running", starting_at=since, released_at=since, started_at=since, next_action_at=None
    )
    Job.objects.filter(id=job.id).update(state="running", started_at=since)
    return job


@pytest.fixture
def borrowed(cluster, submitter):
    """Department b holds both nodes."""
    return started(submitter, "acme/b", "young", 10), started(submitter, "acme/b", "old", 300)


def victims():
    return list(PreemptionVictim.objects.values_list("job__name", flat=True))


def test_the_owner_gets_its_quota_back_and_both_see_why(borrowed, submitter, call, client):
    young, old = borrowed
    job = job_of(submitter, "acme/a", "mine")
    operations.run_scheduling_cycle()
    assert told(job) == ("queued", "waiting_for_preemption")
    assert job.reason_message.startswith("1 job that borrowed its quota is being stopped for it; 1 node of")
    assert (victims(), told(young)) == (["young"], ("running", "interrupted"))
    loan = {
        "tenant": "acme/b", "resource": "gpu", "clusters": [], "held": "16", "nominal": "8", "is_overdue": False,
        "weight": 0.75,
    }  # fmt: skip
    assert PreemptionVictim.objects.get().loan == loan
    assert "whose tenant takes back quota that it lent: acme/b holds 16 gpu, of which 8 are its own." in (
        JobEvent.objects.filter(job=young, kind="interrupted").get().message
    )
    # What b submits meanwhile gets neither the nodes nor the quota, however often cycles run.
    greedy = [job_of(submitter, "acme/b", f"greedy-{n}", gpus=1) for n in range(3)]
    for _ in range(2):
        operations.run_scheduling_cycle()
    end_of(young)
    operations.run_scheduling_cycle()
    operations.run_scheduling_cycle()
    assert (told(job)[0], told(young)[0]) == ("dispatching", "queued")
    assert {told(one)[0] for one in greedy} == {"queued"}
    assert list(Preemption.objects.values_list("outcome", flat=True)) == ["placed"]
    assert dict(QuotaLimit.objects.values_list("tenant__path", "held")) == {
        "acme": 16 * GPU, "acme/a": 8 * GPU, "acme/b": 8 * GPU,
    }  # fmt: skip
    ada = make_user("root@acme.example")
    bind(ada, "acme", "admin")
    for one, role in (young, "victim"), (job, "beneficiary"):
        status, page = call(ada, "get", f"/jobs/{one.id}/preemptions")
        assert status == 200, page
        (shown,) = page["items"]
        assert (shown["role"], shown["victims"][0]["loan"]) == (role, loan)
        assert [(c["job"], c["loan"]) for c in shown["considered"]] == [(str(old.id), loan)]
    blind = make_user("b@acme.example")
    bind(blind, "acme/a", "admin")
    (shown,) = call(blind, "get", f"/jobs/{job.id}/preemptions")[1]["items"]
    assert (shown["victims"][0]["name"], shown["victims"][0]["loan"]["tenant"]) == (None, None)
    client.force_login(ada)
    text = client.get(f"/jobs/{young.id}/").content.decode()
    assert "takes back quota that it lent" in text
    assert "acme/b held 16 gpu, 8 its own" in text


@pytest.mark.usefixtures("quotes_look_anew")
def test_what_is_kept_for_the_owner_is_quoted_to_no_other_tenant(borrowed, submitter):
    young, _ = borrowed
    job_of(submitter, "acme/a", "mine")
    operations.run_scheduling_cycle()
    end_of(young)
    body = {**gpu_job("late", gpus=1), "tenant": "acme/b"}
    quoted = quote_of(submitter, body)
    assert not quoted.quote.offers
    shape = {"tenant": "acme/b", "pod_sets": [{"cpu": "1", "memory": "1Gi", "gpu": {"count": 1}}]}
    found = capacity_of(submitter, shape).capacity
    assert (found.total, [(one.own, one.borrowable) for one in found.clusters[0].flavors]) == (0, [(0, 0)])
    late = submit(submitter, body)
    operations.run_scheduling_cycle()
    assert told(late)[0] == "queued"
    assert quoted.quote.wait.message == late.reason_message


def test_who_was_stopped_gets_nothing_back_in_turn(borrowed, submitter):
    young, _ = borrowed
    job = job_of(submitter, "acme/a", "mine")
    operations.run_scheduling_cycle()
    end_of(young)
    operations.run_scheduling_cycle()
    Attempt.objects.filter(job=job).update(state="running", started_at=Now() - timedelta(hours=1), next_action_at=None)
    Job.objects.filter(id=job.id).update(state="running")
    operations.run_scheduling_cycle()
    assert (told(young)[0], Preemption.objects.count()) == ("queued", 1)
    stop = """
        INSERT INTO federation_preemption (id, beneficiary_id, cluster_id, organisation, nodes, cost_gpu_seconds, is_exact,
               considered, alternatives, deadline_at, outcome)
        SELECT gen_random_uuid(), %s, cluster_id, 'acme', '[]', 0, true, '[]', '[]', now() + interval '1 hour', ''
          FROM federation_preemption"""
    Job.objects.filter(id=young.id).update(priority=100)
    with connection.cursor() as cursor:
        cursor.execute(stop, [young.id])
    made = Preemption.objects.get(beneficiary=young)
    assert "was stopped for this one before" in attack(VICTIM, Attempt.objects.get(job=job).id, made.id, job.id, None)


VICTIM = """
    INSERT INTO federation_preemptionvictim (attempt_id, preemption_id, job_id, lost_seconds, ran_seconds, shield_seconds,
           times_preempted, gpu_milli, cost_gpu_seconds, loan)
    VALUES (%s, %s, %s, 0, 9, 9, 0, 0, 0, %s)"""


def test_the_database_lets_no_tenant_lose_what_is_its_own(borrowed, submitter):
    job_of(submitter, "acme/a", "mine")
    operations.run_scheduling_cycle()
    made, old = Preemption.objects.get(), Attempt.objects.get(job__name="old")
    refused = VICTIM, old.id, made.id, old.job_id
    assert "must not be stopped" in attack(*refused, "{}")  # the eight that remain are its own
    assert "must not be stopped" in attack(*refused, None)
    QuotaLimit.objects.filter(tenant__path="acme/b").update(nominal=4 * GPU)
    assert attack(*refused, "{}") == "it was allowed"
    QuotaLimit.objects.filter(tenant__path="acme/b").update(nominal=8 * GPU)
    QuotaLimit.objects.filter(tenant__path="acme/a").update(nominal=4 * GPU)
    assert "must not be stopped" in attack(*refused, "{}")


@pytest.mark.parametrize("what", ["a's limit", "no room in the brake", "b's own", "shield", "higher class borrows"])
def test_when_nothing_is_taken_back_and_when_it_is(borrowed, submitter, settings, what):
    reason, count = "waiting_for_capacity", 0
    match what:
        case "a's limit":
            QuotaLimit.objects.filter(tenant__path="acme/a").update(reclaims=False)
        case "no room in the brake":
            settings.PREEMPTION_MOST_VICTIMS = 0
        case "b's own":
            QuotaLimit.objects.filter(tenant__path="acme/b").update(nominal=16 * GPU)
        case "shield":
            PriorityClass.objects.update(shield_seconds=36_000)
        case "higher class borrows":
            Job.objects.filter(name__in=["young", "old"]).update(priority=1000)
            reason, count = "waiting_for_preemption", 1
    job = job_of(submitter, "acme/a", "mine")
    operations.run_scheduling_cycle()
    assert (told(job), Preemption.objects.count()) == (("queued", reason), count)
    if what == "shield":
        assert "2 running jobs that borrowed its quota cannot be stopped yet" in job.reason_message


def test_what_b_stops_borrowing_while_the_engine_decides_stays(borrowed, submitter, monkeypatch):
    _, old = borrowed
    job = job_of(submitter, "acme/a", "mine")

    def decide_slowly(*arguments):
        found = plan(*arguments)
        assert found.decision is not None
        QuotaLimit.objects.filter(tenant__path="acme/b").update(nominal=16 * GPU)
        return found

    with monkeypatch.context() as slow:
        slow.setattr(preemption, "plan", decide_slowly)
        operations.run_scheduling_cycle()
    assert Preemption.objects.count() == 0
    assert not Attempt.objects.filter(stop_requested_at__isnull=False).exists()
    assert told(job)[0] == "queued"
    assert told(old)[0] == "running"


def test_killed_between_the_marks_and_the_start_the_next_cycles_go_on(borrowed, submitter, monkeypatch):
    young, _ = borrowed
    job = job_of(submitter, "acme/a", "mine")
    with monkeypatch.context() as broken:
        broken.setattr(preemption, "_tell", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            operations.run_scheduling_cycle()
    assert (Preemption.objects.count(), Attempt.objects.filter(stop_requested_at__isnull=False).count()) == (0, 0)
    operations.run_scheduling_cycle()
    assert victims() == ["young"]
    end_of(young)
    for _ in range(2):
        operations.run_scheduling_cycle()
    assert told(job)[0] == "dispatching"
    assert PreemptionVictim.objects.count() == 1

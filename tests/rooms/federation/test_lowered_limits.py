"""A limit that is lowered below what is held: after its delay, running jobs are stopped until it is kept. Live."""

from datetime import timedelta

import pytest
from django.db.models.functions import Now

import quotas.operations
from federation import operations
from federation.models import Attempt, Job, JobEvent, Preemption, PreemptionVictim, PriorityClass, Standstill
from federation.operations import lowered_limits
from federation.queries.pages import job_view
from foundation.clock import database_now
from quotas.engine.holds import Borrowing
from quotas.models import QuotaLimit
from quotas.operations import put_limit
from quotas.queries import discrepancies
from tenancy.models import AuditEntry
from tests.builders import actor_for, bind, make_tenant, make_user
from tests.rooms.federation.test_constraints import attack
from tests.rooms.federation.test_preemption import end_of, told
from tests.rooms.federation.test_reclaim import VICTIM, started

pytestmark = pytest.mark.django_db(transaction=True)
GPU = 1000
HOUR = 3600


@pytest.fixture(autouse=True)
def unshielded():
    PriorityClass.objects.update(shield_seconds=0)


@pytest.fixture
def running(cluster, submitter):
    """Two departments on sixteen GPUs: a holds 12, b holds 4."""
    for path in ("acme/a", "acme/b"):
        make_tenant(path)
    put_limit(submitter, "acme/a", "gpu", nominal=12 * GPU)
    return {
        name: started(submitter, tenant, name, minutes, gpus=4)
        for name, tenant, minutes in (
            ("old", "acme/a", 600), ("young", "acme/a", 10), ("middle", "acme/a", 60), ("other", "acme/b", 1),
        )
    }  # fmt: skip


def lower(actor, gpus, after, path="acme/a", **borrowing):
    return put_limit(actor, path, "gpu", nominal=gpus * GPU, borrowing=Borrowing(**borrowing), reclaim_after=after)[0]


def cycle(times=1):
    for _ in range(times):
        operations.run_scheduling_cycle()


def stopped():
    return set(PreemptionVictim.objects.values_list("job__name", flat=True))


def test_after_the_delay_the_cheapest_jobs_go_and_all_who_ask_learn_why(running, submitter, call, client):
    limit = lower(submitter, 8, HOUR)
    assert (limit.surplus, limit.reclaim_after) == (4 * GPU, HOUR)
    assert abs(limit.reclaim_at - database_now() - timedelta(seconds=HOUR)) < timedelta(minutes=1)
    cycle()
    assert stopped() == set()
    ada = make_user("root@acme.example")
    bind(ada, "acme", "admin")
    shown = call(ada, "get", f"/quotas/{limit.id}")[1]
    assert (shown["surplus"], shown["reclaim_after"], shown["lowered_by"]) == ("4", HOUR, submitter.name)
    assert shown["reclaim_at"] is not None
    client.force_login(ada)
    assert "4 GPUs over the limit; taken back from" in client.get("/quotas/").content.decode()
    lower(submitter, 8, 0)
    assert "4 GPUs over the limit; jobs are stopped for it" in client.get("/quotas/").content.decode()
    cycle(2)
    assert stopped() == {"young"}
    young = running["young"]
    assert told(young) == ("running", "interrupted")
    text = f"Limit of acme/a lowered by {submitter.name}: it allows 8 gpu, and 12 were held. About 10 min"
    assert JobEvent.objects.get(job=young, kind="interrupted").message.startswith(text)
    end_of(young)
    cycle(2)
    attempt = Attempt.objects.get(job=young)
    assert (attempt.state, attempt.end_reason) == ("preempted", "limit_lowered")
    assert told(young) == ("queued", "waiting_for_quota")
    assert (stopped(), QuotaLimit.objects.get(id=limit.id).reclaim_at) == ({"young"}, None)
    entry = AuditEntry.objects.get(action="quota.taken_back")
    assert (entry.object_id, entry.detail["jobs"]) == (str(limit.id), [str(young.id)])
    (view,) = call(ada, "get", f"/jobs/{young.id}/preemptions")[1]["items"]
    assert (view["role"], view["beneficiary"], view["cluster"], view["outcome"]) == ("victim", None, None, "reduced")
    assert view["limits"] == [
        {
            "limit": str(limit.id), "tenant": "acme/a", "resource": "gpu", "clusters": [], "held": "12", "most": "8",
            "lowered_by": submitter.name,
        }
    ]  # fmt: skip
    assert {one["name"] for one in view["considered"]} == {"old", "middle"}
    page = client.get(f"/jobs/{young.id}/").content.decode()
    assert f"The limit of acme/a was lowered by {submitter.name} to 8 gpu, and 12 were held." in page
    assert discrepancies() == ()
    lower(submitter, 12, None)
    cycle()
    assert told(young)[0] == "dispatching"


def test_without_a_delay_nothing_is_taken_back_and_what_ends_meanwhile_counts(running, submitter):
    limit = lower(submitter, 4, None)
    cycle(2)
    assert (stopped(), limit.reclaim_at, limit.surplus) == (set(), None, 8 * GPU)
    Attempt.objects.filter(job=running["middle"]).update(stop_requested_at=Now(), stop_reason="cancelled")
    lower(submitter, 4, 0)
    cycle(2)
    assert stopped() == {"young"}


@pytest.mark.parametrize("by", ["raising", "forgetting the delay", "removing", "a standstill", "a shield", "the brake"])
def test_what_keeps_jobs_running(running, submitter, settings, by):
    limit = lower(submitter, 4, 0)
    if by == "raising":
        lower(submitter, 12, 0)
    elif by == "forgetting the delay":
        lower(submitter, 4, None)
    elif by == "removing":
        quotas.operations.delete_limit(submitter, limit.id)
    elif by == "a standstill":
        Standstill.objects.create(reason="a test")
    elif by == "a shield":
        PriorityClass.objects.update(shield_seconds=24 * HOUR)
    else:
        settings.PREEMPTION_MOST_VICTIMS = 0
    cycle()
    assert stopped() == set()


def test_raising_the_limit_cancels_what_was_not_stopped_yet(running, submitter, settings):
    settings.PREEMPTION_MOST_VICTIMS = 1
    settings.PREEMPTION_HOURLY_SHARE = 1
    lower(submitter, 0, 0)
    cycle()
    assert stopped() == {"young"}
    limit = lower(submitter, 8, 0)
    assert limit.reclaim_at is not None  # young still holds what it has until nothing of it is left
    cycle(2)
    assert stopped() == {"young"}
    limit = lower(submitter, 12, 0)
    assert limit.reclaim_at is None
    lower(submitter, 4, 0)
    cycle()
    assert stopped() == {"young", "middle"}


def test_each_reduction_begins_the_delay_again_and_repeating_it_does_not(running, submitter):
    first = lower(submitter, 8, HOUR).reclaim_at
    assert lower(submitter, 8, HOUR).reclaim_at == first
    assert lower(submitter, 10, HOUR).reclaim_at == first
    assert lower(submitter, 6, HOUR).reclaim_at > first
    quotas.operations.end_holds({Attempt.objects.get(job=running["old"]).id: "posted"})
    assert QuotaLimit.objects.get(tenant__path="acme/a").reclaim_at is not None
    quotas.operations.end_holds({Attempt.objects.get(job=running["young"]).id: "posted"})
    assert QuotaLimit.objects.get(tenant__path="acme/a").reclaim_at is None


def test_whoever_writes_a_limit_in_sql_cannot_shorten_the_delay(running, submitter):
    limit = lower(submitter, 8, HOUR)
    assert attack("UPDATE quotas_quotalimit SET reclaim_at = now() - interval '1 day'") == "it was allowed"
    assert QuotaLimit.objects.get(id=limit.id).reclaim_at == limit.reclaim_at
    assert "quota_reclaim_delay" in attack("UPDATE quotas_quotalimit SET reclaim_after = 2592001")
    attack("UPDATE quotas_quotalimit SET nominal = 99000000, reclaim_at = now()")
    assert QuotaLimit.objects.get(id=limit.id).reclaim_at is None
    attack("UPDATE quotas_quotalimit SET nominal = 4000")
    assert QuotaLimit.objects.get(id=limit.id).reclaim_at > database_now() + timedelta(minutes=59)


MADE = """
    INSERT INTO federation_preemption (id, organisation, nodes, cost_gpu_seconds, is_exact, considered, alternatives, limits,
           deadline_at, ended_at, outcome)
    VALUES (gen_random_uuid(), 'acme', '[]', 0, true, '[]', '[]', %s, now() + interval '1 hour', %s, %s)"""


def test_the_database_lets_no_job_be_stopped_in_vain(running, submitter):
    lower(submitter, 8, 0)
    refused = "a_preemption_has_a_beneficiary_or_limits"
    assert refused in attack(MADE, "[]", database_now(), "reduced")
    assert refused in attack(MADE, "[{}]", database_now(), "placed")
    assert refused in attack(MADE, "[{}]", None, "")
    assert attack(MADE, '[{"limit": "x"}]', database_now(), "reduced") == "it was allowed"
    made = Preemption.objects.get()

    def stop(name, loan=None):
        attempt = Attempt.objects.get(job__name=name)
        return attack(VICTIM, attempt.id, made.id, attempt.job_id, loan)

    assert "no lowered limit needs the end" in stop("other")
    assert "no lowered limit needs the end" in stop("old", "{}")
    Attempt.objects.filter(job__name="young").update(stop_requested_at=Now(), stop_reason="cancelled")
    assert "no lowered limit needs the end" in stop("old")
    assert stop("young") == "it was allowed"
    lower(submitter, 4, HOUR)
    assert "no lowered limit needs the end" in stop("old")
    lower(submitter, 4, 0)
    assert stop("old") == "it was allowed"


def test_an_interrupted_round_leaves_nothing_behind(running, submitter, monkeypatch):
    lower(submitter, 8, 0)

    def dies(*_):
        raise KeyboardInterrupt

    for name in ("record_victims", "_audit"):
        with monkeypatch.context() as patched:
            patched.setattr(lowered_limits, name, dies)
            with pytest.raises(KeyboardInterrupt):
                cycle()
        assert not Attempt.objects.filter(stop_requested_at__isnull=False).exists()
        assert (Preemption.objects.count(), JobEvent.objects.filter(kind="interrupted").count()) == (0, 0)
    cycle(2)
    assert stopped() == {"young"}


def test_a_decision_is_dropped_when_the_limit_was_raised_or_the_job_has_ended(running, submitter, monkeypatch):
    lower(submitter, 8, 0)
    apply = lowered_limits._apply
    for change in (
        lambda: lower(submitter, 12, 0),
        lambda: operations.request_suspension(submitter, running["young"].id),
    ):
        monkeypatch.setattr(lowered_limits, "_apply", lambda *given, change=change: (change(), apply(*given))[1])
        assert lowered_limits.take_back_surplus() == 0
        lower(submitter, 8, 0)
    assert stopped() == set()


def test_what_borrowers_hold_beyond_an_organisations_limit_is_taken_without_guarantees(running, submitter):
    put_limit(submitter, "acme", "gpu", nominal=16 * GPU)
    put_limit(submitter, "acme/a", "gpu", nominal=4 * GPU, borrowing=Borrowing(None))
    put_limit(submitter, "acme/b", "gpu", nominal=4 * GPU, borrowing=Borrowing(0, 0))
    lower(submitter, 8, 0, "acme")
    cycle()
    assert stopped() == {"young", "middle"}  # other is cheaper, and in its tenant's guarantee


def test_a_limit_of_another_department_is_not_shown_to_who_may_not_see_it(running, submitter, call):
    put_limit(submitter, "acme/b", "gpu", nominal=4 * GPU)
    lower(submitter, 8, 0)
    lower(submitter, 0, 0, "acme/b")
    cycle()
    assert stopped() == {"young", "other"}
    assert Preemption.objects.count() == 1
    blind = make_user("b@acme.example")
    bind(blind, "acme/b", "admin")
    (view,) = call(blind, "get", f"/jobs/{running['other'].id}/preemptions")[1]["items"]
    assert [one["tenant"] for one in view["limits"]] == ["acme/b"]
    assert "acme/a" not in str(view)
    assert "young" not in str(view)
    shown = job_view(actor_for(blind), running["other"].id)
    assert "acme/a" not in str(shown.events)
    assert Job.objects.get(id=running["other"].id).reason_message.startswith("Limit of acme/b lowered by")


def test_a_limit_that_cannot_borrow_any_more_begins_its_delay(running, submitter):
    above, _ = put_limit(submitter, "acme", "gpu", nominal=16 * GPU)
    assert lower(submitter, 4, HOUR, borrowing_limit=None).reclaim_at is None
    quotas.operations.delete_limit(submitter, above.id)
    limit = QuotaLimit.objects.get(tenant__path="acme/a", removed_at=None)
    assert (limit.surplus, limit.lowered_by) == (8 * GPU, submitter.name)
    assert limit.reclaim_at > database_now() + timedelta(minutes=59)
    cycle()
    assert stopped() == set()

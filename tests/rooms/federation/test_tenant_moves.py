"""Tenants with running work move in the tree: the run goes on, and quota and budgets count it right until its end."""

import pytest
from django.db import IntegrityError, connection, transaction

import quotas.operations
import quotas.queries
from billing.models import Meter
from federation import operations
from federation.models import Attempt, Job
from federation.queries.proof import disagreements
from foundation.problems import Conflict
from quotas.models import Hold, QuotaLimit
from quotas.operations import end_holds, take_holds
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM
from tests.builders import hold_request, make_budget, make_tenant, submit
from tests.live import gpu_job, observe_until
from tests.refusals import constraint_of

GPU = 1000


def move(path, to):
    return change_tenant(SYSTEM, make_tenant(path).id, parent_id=make_tenant(to).id)


@pytest.mark.django_db(transaction=True)
def test_a_job_runs_on_while_its_tenant_moves_and_ends_at_the_new_limits(cluster, submitter):
    for path, gpus in (("acme", 16), ("acme/a", 8), ("acme/b", 8)):
        make_tenant(path)
        quotas.operations.put_limit(submitter, path, "gpu", nominal=gpus * GPU)
    make_tenant("acme/a/team")
    running = submit(submitter, {**gpu_job("runs", gpus=8, seconds=4), "tenant": "acme/a/team"})
    observe_until(lambda: Job.objects.filter(id=running.id, state="running").exists())
    waiting = submit(submitter, {**gpu_job("waits", gpus=8, seconds=1), "tenant": "acme/a"})
    operations.run_scheduling_cycle()
    assert Job.objects.get(id=waiting.id).reason_code == "waiting_for_quota"

    move("acme/a/team", "acme/b")

    assert dict(QuotaLimit.objects.values_list("tenant__path", "held")) == {
        "acme": 8 * GPU, "acme/a": 0, "acme/b": 8 * GPU,
    }  # fmt: skip
    operations.run_scheduling_cycle()
    assert Job.objects.get(id=waiting.id).state == "dispatching", "what has moved away is free for others"
    observe_until(lambda: not Job.objects.exclude(state="succeeded").exists())
    observe_until(lambda: not Attempt.objects.filter(settled_at=None).exists())
    assert Attempt.objects.filter(job=running).count() == 1, "nothing was stopped"
    assert Meter.objects.filter(workload_id=running.id).count() == 1, "its time is metered as one run"
    assert {limit.held for limit in QuotaLimit.objects.all()} == {0}
    assert not Hold.objects.filter(state="pending").exists()
    assert quotas.queries.discrepancies() == ()
    assert disagreements() == ()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("budget", "refused"), [("acme", False), ("acme/a/team", False), ("acme/a", True), ("acme/b", True)]
)
def test_work_moves_only_between_places_with_the_same_budgets_above(budget, refused):
    for path in ("acme/a/team/p", "acme/b"):
        make_tenant(path)
    make_budget(budget)
    asked = hold_request("acme/a/team/p")
    take_holds([asked])
    if not refused:
        assert move("acme/a/team", "acme/b").path == "acme/b/team"
        return
    with pytest.raises(Conflict) as conflict:
        move("acme/a/team", "acme/b")
    assert conflict.value.code == "moved_work_has_budget"
    assert conflict.value.detail.startswith(f"acme/a/team has work, and {budget} has a budget")
    by_hand = "UPDATE tenancy_tenant SET parent_id = %s WHERE id = %s"
    with pytest.raises(IntegrityError) as by_database, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(by_hand, [make_tenant("acme/b").id, make_tenant("acme/a/team").id])
    assert constraint_of(by_database.value) == "moved_work_keeps_its_budgets"
    end_holds({asked.holder_id: "posted"})
    assert move("acme/a/team", "acme/b").path == "acme/b/team"

"""Tenants that are removed, renamed and moved while jobs are submitted to them, with real commits."""

import threading
import time
from types import SimpleNamespace

import pytest
from django.db import connection

from federation.drivers import policy_hooks
from federation.models import Job
from federation.operations import bulk_submission, submission, submit_job, submit_jobs
from foundation.problems import Problem
from tenancy.models import AuditEntry, IdempotencyRecord, Tenant
from tenancy.operations import change_tenant, remove_tenant
from tenancy.queries import SYSTEM
from tests.builders import actor_for, bind, make_spec, make_tenant, make_user
from tests.concurrency.test_quota_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)
TENANT, PATIENCE_SECONDS = "acme/research", 20
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"


@pytest.fixture
def actor():
    user = make_user()
    bind(user, "acme", "submitter")
    make_tenant(TENANT)
    return actor_for(user)


@pytest.fixture
def hook(monkeypatch):
    entry = SimpleNamespace(name="rules", value="rules:review", load=lambda: lambda spec, _: spec)
    monkeypatch.setattr(policy_hooks, "_hooks_on", lambda _: (entry,))


def single(actor):
    submit_job(actor, {"tenant": TENANT, **make_spec()}, show=lambda job: {"id": str(job.id)}, key="k", raw=b"k")


def bulk(actor):
    def tell(problem):
        raise problem

    body = {"tenant": TENANT, "jobs": [make_spec() | {"idempotency_key": "k"}]}
    submit_jobs(actor, body, show=lambda job: {"id": str(job.id)}, tell=tell)


SENDS = [(single, submission, "_insert"), (bulk, bulk_submission, "_store")]


def outcome(work):
    try:
        work()
    except Problem as problem:
        return problem.code
    return "done"


def is_waited_for():
    with connection.cursor() as cursor:
        cursor.execute(WAITING)
        return cursor.fetchone()[0] > 0


def under_way(monkeypatch, send, meanwhile):
    """The outcomes of a submission, and of what happens before it writes: it goes on when that is done, or waits."""
    sender, module, name = send
    arrived, done = threading.Event(), threading.Event()
    write = getattr(module, name)

    def wait_and_write(*told):
        arrived.set()
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while not (done.is_set() or is_waited_for()):
            assert time.monotonic() < ends_at
            done.wait(0.01)
        write(*told)

    def do_meanwhile():
        assert arrived.wait(PATIENCE_SECONDS)
        try:
            return outcome(meanwhile)
        finally:
            done.set()

    monkeypatch.setattr(module, name, wait_and_write)
    return at_once([lambda: outcome(sender), do_meanwhile])


def send_of(send, actor):
    sender, module, name = send
    return (lambda: sender(actor), module, name)


def remove():
    remove_tenant(SYSTEM, Tenant.objects.get(path=TENANT).id)


def rename_above():
    change_tenant(SYSTEM, Tenant.objects.get(path="acme").id, name="umbrella")


@pytest.mark.parametrize("send", SENDS)
def test_a_job_under_way_while_its_tenant_is_removed_is_refused_and_leaves_nothing(monkeypatch, actor, send):
    assert under_way(monkeypatch, send_of(send, actor), remove) == ["tenant_changed", "done"]
    assert not Job.objects.exists()
    assert not IdempotencyRecord.objects.exists()


@pytest.mark.parametrize("send", SENDS)
def test_a_reviewed_tenant_is_removed_only_after_the_commit_and_then_it_is_not_empty(monkeypatch, actor, hook, send):
    assert under_way(monkeypatch, send_of(send, actor), remove) == ["done", "tenant_not_empty"]
    assert Job.objects.get().tenant.path == TENANT


@pytest.mark.parametrize("send", SENDS)
def test_a_reviewed_tenant_moves_with_those_above_it_only_after_the_commit(monkeypatch, actor, hook, send):
    assert under_way(monkeypatch, send_of(send, actor), rename_above) == ["done", "done"]
    assert Job.objects.get().tenant.path == "umbrella/research"
    actions = AuditEntry.objects.filter(action__in=["job.submit", "job.submit_many", "tenant.change"]).order_by("id")
    assert list(actions.values_list("action", flat=True))[-1] == "tenant.change"


def test_many_submissions_and_removals_never_fail_otherwise_than_with_a_problem(actor, hook):
    body = {"tenant": TENANT, **make_spec()}

    def send():
        return outcome(lambda: submit_job(actor, body, show=lambda job: {"id": str(job.id)}))

    outcomes = at_once([send, send, lambda: outcome(remove), send, send])
    removed = outcomes.pop(2)
    assert removed in {"done", "tenant_not_empty"}
    assert set(outcomes) <= {"done", "not_found", "tenant_changed"}
    assert Job.objects.count() == outcomes.count("done")
    assert (removed == "done") is not Tenant.objects.filter(path=TENANT).exists()

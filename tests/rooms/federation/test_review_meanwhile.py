"""What changes while a policy hook reviews a job: the tenant, the submitter's role, and what the tenant's rules allow."""

import json
from types import SimpleNamespace

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from federation.drivers import policy_hooks
from federation.models import Job
from federation.operations import put_class, put_policy, remove_policy, submit_job, submit_jobs
from foundation.problems import Problem
from tenancy.models import AuditEntry, IdempotencyRecord, RoleBinding, Tenant, User
from tenancy.operations import change_tenant, create_tenant, remove_tenant
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bind, make_spec, make_tenant, make_user

TENANT, OTHER = "acme/research", "acme/lab"
URGENT = {"name": "urgent", "value": 500, "is_open": True}


@pytest.fixture
def actor():
    user = make_user("ada@example.com")
    bind(user, "acme", "submitter")
    make_tenant(TENANT)
    make_tenant(OTHER)
    return actor_for(user)


@pytest.fixture
def hook(monkeypatch):
    """Installs a hook that does this once while it reviews a job, and accepts the job."""

    def install(act):
        left = [act]

        def review(spec, _):
            if left:
                left.pop()()
            return spec

        entry = SimpleNamespace(name="rules", value="rules:review", load=lambda: review)
        monkeypatch.setattr(policy_hooks, "_hooks_on", lambda _: (entry,))

    return install


def show(job):
    return {"id": str(job.id)}


def single(actor, key="", **spec):
    body = {"tenant": TENANT, **make_spec(**spec)}
    submit_job(actor, body, show=show, key=key, raw=json.dumps(body).encode())


def bulk(actor, key="", **spec):
    """The first item's refusal is raised. The second is for another tenant, and must be stored in any case."""
    keyed = {"idempotency_key": key} if key else {}
    items = [{**make_spec(**spec), **keyed}, {"tenant": OTHER, **make_spec(name="other")}]
    problems = []
    body = {"tenant": TENANT, "jobs": items}
    answer = submit_jobs(actor, body, show=show, tell=lambda problem: problems.append(problem) or {})
    assert "job" in answer.body["items"][1]
    Job.objects.filter(tenant__path=OTHER).delete()
    if problems:
        raise problems[0]


def outcome(send, actor, **spec):
    try:
        send(actor, **spec)
    except Problem as problem:
        return problem.code
    return "stored"


def tenant_id():
    return Tenant.objects.get(path=TENANT).id


def remove():
    remove_tenant(SYSTEM, tenant_id())


def replace():
    remove()
    create_tenant(SYSTEM, name="research", kind="department", parent_id=Tenant.objects.get(path="acme").id)


def rename():
    change_tenant(SYSTEM, tenant_id(), name="moved")


def move():
    change_tenant(SYSTEM, tenant_id(), parent_id=Tenant.objects.get(path=OTHER).id)


def end_role():
    """Another role, which may only look, remains."""
    bind(User.objects.get(), TENANT, "viewer")
    RoleBinding.objects.filter(tenant__path="acme").update(role="viewer")
    bind(User.objects.get(), OTHER, "submitter")


def end_all_roles():
    RoleBinding.objects.all().delete()
    bind(User.objects.get(), OTHER, "submitter")


def withdraw_class():
    put_class(SYSTEM, {**URGENT, "is_open": False})


def forbid_strategy():
    put_policy(SYSTEM, tenant_id(), {"strategies": ["cheapest"]})


CHANGES = [
    (remove, "not_found"),
    (replace, "tenant_changed"),
    (rename, "not_found"),
    (move, "not_found"),
    (end_role, "permission_denied"),
    (end_all_roles, "not_found"),
]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("send", [single, bulk])
@pytest.mark.parametrize("key", ["", "k"])
@pytest.mark.parametrize(("change", "code"), CHANGES)
def test_a_job_is_not_stored_for_what_was_changed_during_its_review(actor, hook, change, code, key, send):
    hook(change)
    assert outcome(send, actor, key=key) == code
    assert not Job.objects.exists()
    assert not AuditEntry.objects.filter(action__in=["job.submit"]).exists()
    assert not IdempotencyRecord.objects.filter(key="k").exists()


@pytest.mark.django_db
@pytest.mark.parametrize("send", [single, bulk])
def test_nor_with_a_class_or_a_strategy_that_was_withdrawn_during_its_review(actor, hook, send):
    put_class(SYSTEM, URGENT)
    hook(withdraw_class)
    assert outcome(send, actor, priority_class="urgent") == "validation_failed"
    hook(forbid_strategy)
    assert outcome(send, actor, strategy="soonest") == "validation_failed"
    assert not Job.objects.exists()
    remove_policy(SYSTEM, tenant_id())
    assert outcome(send, actor, strategy="soonest") == "stored"


@pytest.mark.django_db
def test_without_a_hook_the_tenant_is_read_once(actor, hook):
    single(actor)  # what a process keeps is read now
    with CaptureQueriesContext(connection) as plain:
        single(actor)
    hook(lambda: None)
    with CaptureQueriesContext(connection) as reviewed:
        single(actor)
    locked = [query["sql"] for query in plain if "FOR SHARE" in query["sql"]]
    assert locked == []
    assert sum("FOR SHARE" in query["sql"] for query in reviewed) == 1
    assert len(reviewed) == len(plain) + 3

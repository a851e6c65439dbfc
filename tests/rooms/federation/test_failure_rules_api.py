"""A tenant's failure rules over HTTP: who may set them, what is recorded, and what jobs and attempts show."""

import pytest

from federation.models import Diagnosis, TenantFailureRules
from federation.operations import Observations, record_observations
from tenancy.models import AuditEntry
from tests.builders import bind, make_tenant
from tests.builders import make_user as new_user
from tests.rooms.federation.test_retries import failed, make_attempt, pod_of

pytestmark = pytest.mark.django_db
STOP = {"name": "seven", "when": {"exit_codes": [7]}}
STORED = {"name": "seven", "when": {"exit_codes": [7]}, "then": "stop"}


def person(role: str, path: str = "acme/team"):
    user = new_user()
    bind(user, path, role)
    return user


def test_a_manager_sets_reads_and_removes_rules_with_an_audit_entry_each(call):
    team = make_tenant("acme/team")
    manager, path = person("manager"), f"/tenants/{team.id}/failure-rules"
    assert call(manager, "get", path)[1] == {"tenant": "acme/team", "rules": [], "above": []}
    for _ in range(3):  # the same again changes nothing
        status, shown = call(manager, "put", path, {"rules": [STOP]})
        assert (status, shown["rules"]) == (200, [STORED])
    assert call(manager, "put", path, {"rules": [{"name": "again", "then": "again"}]})[0] == 200
    assert call(manager, "delete", path) == (204, None)
    assert call(manager, "delete", path)[0] == 404
    trail = AuditEntry.objects.filter(object_kind="failure_rules").order_by("id")
    assert [entry.action for entry in trail] == ["failure_rules.put", "failure_rules.put", "failure_rules.remove"]
    assert trail[1].detail["before"] == [STORED]


def test_an_empty_list_removes_them(call):
    team = make_tenant("acme/team")
    manager, path = person("manager"), f"/tenants/{team.id}/failure-rules"
    call(manager, "put", path, {"rules": [STOP]})
    assert call(manager, "put", path, {"rules": []})[1]["rules"] == []
    assert not TenantFailureRules.objects.exists()


def test_only_those_who_manage_the_tenant_set_its_rules_and_strangers_see_nothing(call):
    team = make_tenant("acme/team")
    path = f"/tenants/{team.id}/failure-rules"
    admin, submitter, stranger = person("admin", "acme"), person("submitter"), person("admin", "globex")
    assert call(admin, "put", f"/tenants/{team.parent_id}/failure-rules", {"rules": [STOP]})[0] == 200
    assert call(submitter, "put", path, {"rules": []})[1]["code"] == "permission_denied"
    assert call(submitter, "get", path)[1]["above"] == [{"tenant": "acme", "rules": [STORED]}]
    assert call(stranger, "get", path)[0] == 404
    assert call(stranger, "put", path, {"rules": []})[0] == 404
    assert call(person("manager"), "put", f"/tenants/{team.parent_id}/failure-rules", {"rules": []})[0] == 404


@pytest.mark.parametrize("body", [[], {"rules": 7}, {"rules": [{}]}, {"rule": []}, {"rules": [7]}])
def test_what_are_no_rules_is_refused_field_by_field(call, body):
    team = make_tenant("acme/team")
    status, shown = call(person("manager"), "put", f"/tenants/{team.id}/failure-rules", body)
    assert (status, shown["code"]) == (422, "validation_failed")


def test_a_job_its_attempt_and_its_page_say_why_it_failed_and_what_follows(call, client):
    attempt = make_attempt(failure_rules=[{**STORED, "then": "again", "retries": 3, "text": "Seven again"}])
    seen = Observations(jobs=[failed(attempt)], pods=[pod_of(attempt, exit_code=7)])
    record_observations(attempt.cluster_id, seen)
    viewer = person("viewer")
    wanted = {
        "class": "program",
        "text": "Seven again (pod p0, exit code 7).",
        "rule": "Job: seven",
        "next_step": "again",
        "next_step_text": "The job starts again, retry 1 of 3.",
        "retry": 1,
        "retries": 3,
        "retry_at": None,
        "node": "node",
        "is_infrastructure": False,
        "kept_place": None,
    }
    assert call(viewer, "get", f"/jobs/{attempt.job_id}/attempts")[1]["items"][0]["failure"] == wanted
    assert Diagnosis.objects.count() == 1
    client.force_login(viewer)
    page = client.get(f"/jobs/{attempt.job_id}/").content.decode()
    assert "Seven again (pod p0, exit code 7). The job starts again, retry 1 of 3." in page
    assert "Rule: Job: seven" in page

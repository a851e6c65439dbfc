"""The pages of failure rules: every rule that the API takes survives the form, and no change is lost or made by others."""

from typing import Any

import pytest
from django.test import Client

from federation.models import TenantFailureRules
from federation.operations import put_failure_rules
from foundation.problems import Conflict
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import bind, make_tenant, make_user

pytestmark = pytest.mark.django_db
FULL: list[dict[str, Any]] = [
    {
        "name": "nccl",
        "when": {
            "exit_codes": ["1", "129-159"], "signals": [6, 9], "seen": ["node_lost", "spot"], "pod_sets": ["worker*"],
            "node_taints": ["a=b:NoSchedule"], "messages": ["lost, again", "xid*"], "log": ["@nccl_timeout", "a b c d"],
        },
        "then": "again_elsewhere", "class": "network", "text": "NCCL timed out", "retries": 5,
        "backoff": {"seconds": 30, "most_seconds": 600}, "avoid": {"what": "cluster", "seconds": 60},
    },
    {"name": "oom", "when": {"seen": ["out_of_memory"]}, "then": "more_memory", "retries": 2,
     "backoff": {"seconds": 0, "most_seconds": 86400}, "memory": {"factor": "1.5", "most": "256Gi"}},
    {"name": "again", "when": {}, "then": "again", "retries": 3, "backoff": {"seconds": 0, "most_seconds": 86400}},
    {"name": "seven", "when": {"exit_codes": [7]}, "then": "stop"},
]  # fmt: skip
HERE = {"name": "here", "when": {}, "then": "again_here", "retries": 3, "backoff": {"seconds": 0, "most_seconds": 600},
        "keep_seconds": 45}  # fmt: skip


def signed_in(role, path="acme/team"):
    client = Client()
    client.force_login(bind(make_user(), path, role).user)
    return client


@pytest.fixture
def team():
    return make_tenant("acme/team")


def put(tenant, rules):
    return put_failure_rules(SYSTEM, tenant.id, {"rules": rules})


def stored(tenant):
    found = TenantFailureRules.objects.filter(tenant=tenant).first()
    return found.rules if found else []


def form_of(answer, **change):
    """The controls of the page's form, filled as the page fills them."""
    shown = answer.context["page"]
    return {**shown.form.values, "version": shown.version, **change}


def version_at(client, base):
    return client.get(base).context["page"].version


@pytest.mark.parametrize("number", range(len(FULL) + 1))
def test_a_rule_that_is_opened_and_saved_stays_what_it_is(team, number):
    before = list(put(team, [*FULL, HERE]).own)
    client, base = signed_in("manager"), f"/tenants/{team.id}/failure-rules/"
    path = f"{base}rule/?name={before[number]['name']}"
    assert client.post(path, form_of(client.get(path))).status_code == 302
    assert stored(team) == before


def test_a_new_rule_becomes_the_last_and_rules_are_moved_and_removed(team):
    client, base = signed_in("manager"), f"/tenants/{team.id}/failure-rules/"
    assert "No rules of its own" in client.get(base).content.decode()
    for name in ("first", "second", "third"):
        new = form_of(client.get(f"{base}rule/"), name=name, then="stop")
        assert client.post(f"{base}rule/", new).status_code == 302
    for act, name, wanted in (
        ("up", "third", "first third second"),
        ("down", "first", "third first second"),
        ("up", "third", "third first second"),
        ("remove", "first", "third second"),
        ("remove", "third", "second"),
        ("remove", "second", ""),
    ):
        sent = {"act": act, "name": name, "version": version_at(client, base)}
        assert client.post(f"{base}change/", sent).status_code == 302
        assert " ".join(one["name"] for one in stored(team)) == wanted
    assert not TenantFailureRules.objects.exists()
    assert AuditEntry.objects.filter(action="failure_rules.put").count() == 8


def test_a_change_that_was_made_from_older_rules_is_refused_and_kept_as_typed(team):
    put(team, FULL)
    client, base = signed_in("manager"), f"/tenants/{team.id}/failure-rules/"
    form = form_of(client.get(f"{base}rule/?name=seven"), text="mine")
    put(team, FULL[2:])
    for path, sent in (
        (f"{base}rule/?name=seven", form),
        (f"{base}rule/", {**form, "name": "new"}),
        (f"{base}rule/?name=nccl", form),
        (f"{base}rule/?name=seven", {**form, "version": ""}),
        (f"{base}change/", {"act": "remove", "name": "seven", "version": form["version"]}),
        (f"{base}change/", {"act": "remove", "name": "nccl", "version": version_at(client, base)}),
    ):
        answer = client.post(path, sent)
        assert answer.status_code == 409, path
        assert "meanwhile" in answer.content.decode()
    assert [one["name"] for one in stored(team)] == ["again", "seven"]


def test_two_who_change_the_same_rules_do_not_undo_each_other(team):
    for rules in ([], FULL[3:]):
        version = put(team, rules).version
        put_failure_rules(SYSTEM, team.id, {"rules": FULL[2:]}, version=version)
        with pytest.raises(Conflict):
            put_failure_rules(SYSTEM, team.id, {"rules": []}, version=version)
        assert len(stored(team)) == 2


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"name": "Not A Name"}, "a DNS label"),
        ({"name": ""}, "DNS label"),
        ({"name": "oom"}, "another rule has this name"),
        ({"then": "explode"}, "one of"),
        ({"exit_codes": "0"}, "a code from 1 to 255"),
        ({"signals": "nine"}, "a number from 1"),
        ({"seen": "ghosts"}, "one of"),
        ({"pod_sets": "A B"}, "pod set"),
        ({"retries": "1000"}, "100"),
        ({"retries": "many"}, "a whole number"),
        ({"backoff_seconds": "-1"}, "a whole number"),
        ({"backoff_seconds": "60", "backoff_most_seconds": "5"}, "at least"),
        ({"avoid_what": "moon", "then": "again_elsewhere"}, "one of"),
        ({"avoid_seconds": "5"}, "only with"),
        ({"then": "more_memory", "memory_factor": "99"}, "a number as text"),
        ({"memory_most": "1Gi"}, "only with"),
        ({"then": "stop", "retries": "3"}, "a rule that stops the job has no retries"),
    ],
)
def test_what_is_no_rule_is_said_at_its_control_and_changes_nothing(team, change, word):
    before = list(put(team, FULL).own)
    client, base = signed_in("manager"), f"/tenants/{team.id}/failure-rules/"
    answer = client.post(f"{base}rule/?name=again", form_of(client.get(f"{base}rule/?name=again"), **change))
    assert answer.status_code == 422
    shown = answer.context["page"].form
    assert word in str(shown.errors), (shown.errors, shown.loose)
    assert not shown.loose
    assert stored(team) == before


def test_inherited_rules_are_shown_nearest_first_before_the_gateways_own(team):
    put(make_tenant("acme"), [{**FULL[3], "name": "of-acme"}])
    put(team, [{**FULL[3], "name": "of-team"}])
    below = make_tenant("acme/team/x")
    text = signed_in("viewer", "acme/team/x").get(f"/tenants/{below.id}/failure-rules/").content.decode()
    places = [text.index(word) for word in ("No rules of its own", "of-team", "of-acme", "The gateway")]
    assert places == sorted(places)
    assert "New rule" not in text
    assert "/change/" not in text


@pytest.mark.parametrize("role", ["viewer", "submitter", "manager", "finance", "admin"])
def test_each_role_changes_rules_where_it_may_and_nowhere_else(team, role):
    client = signed_in(role)
    for path, wanted in (
        ("acme/team", 302 if role in {"manager", "admin"} else 403),
        ("acme/team/x", 302 if role in {"manager", "admin"} else 403),
        ("acme", 404),
        ("acme/other", 404),
        ("globex", 404),
    ):
        tenant = make_tenant(path)
        before = list(put(tenant, FULL[3:]).own)
        base, version = f"/tenants/{tenant.id}/failure-rules/", put(tenant, FULL[3:]).version
        assert client.get(base).status_code == (404 if wanted == 404 else 200), path
        assert client.get(f"{base}rule/").status_code == (200 if wanted == 302 else wanted), path
        new = {"name": "new", "then": "stop", "version": version}
        remove = {"act": "remove", "name": "seven", "version": version}
        assert client.post(f"{base}change/", remove).status_code == wanted, path
        assert stored(tenant) == ([] if wanted == 302 else before), path
        put(tenant, FULL[3:])
        assert client.post(f"{base}rule/", new).status_code == wanted, path
        assert len(stored(tenant)) == (2 if wanted == 302 else 1), path


def test_texts_of_rules_are_shown_as_text(team):
    put(team, [{"name": "x", "when": {"log": ["<script>alert(1)</script>"]}, "text": "<b>bold</b>"}])
    client, base = signed_in("manager"), f"/tenants/{team.id}/failure-rules/"
    for path in (base, f"{base}rule/?name=x"):
        text = client.get(path).content.decode()
        assert "<script>alert" not in text
        assert "<b>bold" not in text


def test_a_form_without_its_token_is_refused(team):
    client, manager = Client(enforce_csrf_checks=True), make_user()
    bind(manager, "acme/team", "manager")
    client.force_login(manager)
    for path in ("rule/", "change/"):
        assert client.post(f"/tenants/{team.id}/failure-rules/{path}", {"act": "remove"}).status_code == 403

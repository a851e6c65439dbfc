"""The submit form offers the priority classes that may be used; operators set classes on their page."""

import re

import pytest

from federation.models import Job, PlacementPolicy, PriorityClass
from federation.operations import put_policy
from tests.builders import actor_for, bind, make_tenant
from tests.rooms.federation.test_priority_classes import TEAM, grant, operator, person, team

__all__ = ["operator", "team"]
pytestmark = pytest.mark.django_db
FORM = {
    "tenant": TEAM, "name": "train", "image": "registry.example/train:1", "count": "1", "kind": "none", "cpu": "1",
    "memory": "1Gi",
}  # fmt: skip


def options_in(answer):
    """Values of the priority control and which of them is chosen."""
    [control] = re.findall(
        r'<select[^>]* name="priority_class"[^>]*>(.*?)</select>', answer.content.decode(), re.DOTALL
    )
    found = re.findall(r'<option value="([^"]*)"( selected)?>([^<]*)<', control)
    return [value for value, _, _ in found], [text for _, chosen, text in found if chosen]


def test_the_form_offers_what_may_be_used_in_the_tenant_and_leaves_the_choice_to_its_default(client, team):
    grant(grants=[{"role": "manager", "tenant": TEAM}])
    grant("closed", 7)
    make_tenant("acme/other")
    put_policy(actor_for(person("manager", "acme")), team.id, {"default_priority_class": "low"})
    user = person("submitter", "acme")
    client.force_login(user)
    assert options_in(client.get(f"/jobs/new/?tenant={TEAM}")) == (["", "high", "normal", "low"], ["default: low"])
    bind(user, TEAM, "manager")
    assert options_in(client.get(f"/jobs/new/?tenant={TEAM}"))[0] == ["", "urgent", "high", "normal", "low"]
    client.post("/jobs/new/", FORM)
    client.post("/jobs/new/", {**FORM, "priority_class": "urgent"})
    assert list(Job.objects.order_by("id").values_list("priority", flat=True)) == [-100, 500]


def test_the_form_shows_the_classes_of_another_tenant_when_it_is_chosen(client, team):
    grant(grants=[{"tenant": TEAM}])
    make_tenant("acme/other")
    client.force_login(person("submitter", "acme"))
    chosen = {**FORM, "priority_class": "urgent", "show": "offers"}
    headers = {"HX-Request": "true"}
    assert options_in(client.post("/jobs/new/", chosen, headers=headers))[1] == ["urgent (500)"]
    other = client.post("/jobs/new/", {**chosen, "tenant": "acme/other"}, headers=headers)
    assert options_in(other) == (["", "high", "normal", "low"], [])
    assert 'id="priority-class" hx-swap-oob' in other.content.decode()
    spec = {"by": "json", "spec": "{}", "show": "offers"}
    assert "priority-class" not in client.post("/jobs/new/", spec, headers=headers).content.decode()


def test_a_class_that_was_withdrawn_meanwhile_is_refused_at_its_control(client, team):
    grant(grants=[{"role": "manager"}])
    client.force_login(person("submitter"))
    answer = client.post("/jobs/new/", {**FORM, "priority_class": "urgent"})
    assert answer.status_code == 422
    assert '<div class="field-error" id="e-priority_class"><p>you may not use' in answer.content.decode()


def test_operators_set_classes_on_their_page(client, operator, team):
    client.force_login(operator)
    typed = {"name": "urgent", "value": "-7", "description": "", "grants": f"manager *\n\n* {TEAM}"}
    assert client.post("/priority-classes/new/", typed).status_code == 302
    row = PriorityClass.objects.get(name="urgent")
    assert (row.value, row.is_open, row.is_default, row.grants.count()) == (-7, False, False, 2)
    page = client.get("/priority-classes/").content.decode()
    assert f"everyone who may submit jobs in {TEAM}" in page
    assert "role manager" in page
    form = client.get(f"/priority-classes/{row.id}/").content.decode()
    assert f"manager *\n* {TEAM}" in form or f"* {TEAM}\nmanager *" in form
    assert (
        client.post(f"/priority-classes/{row.id}/", {"value": "9", "open_to": "all", "is_default": "yes"}).status_code
        == 302
    )
    row.refresh_from_db()
    assert (row.value, row.is_open, row.is_default, row.grants.count()) == (9, True, True, 0)
    kept = client.post(f"/priority-classes/{row.id}/", {"value": "9", "open_to": "all"})
    assert (kept.status_code, b"make another class the default instead" in kept.content) == (422, True)
    assert client.post(f"/priority-classes/{row.id}/remove/").status_code == 409
    normal = PriorityClass.objects.get(name="normal")
    assert client.post(f"/priority-classes/{normal.id}/remove/").status_code == 302
    assert not PriorityClass.objects.filter(name="normal").exists()


@pytest.mark.parametrize(
    ("typed", "control"),
    [
        ({"name": "A B", "value": "1"}, "name"),
        ({"name": "a", "value": "-x"}, "value"),
        ({"name": "a", "value": "9999999"}, "value"),
        ({"name": "a", "value": "1", "grants": "manager"}, "grants"),
        ({"name": "a", "value": "1", "grants": "root *"}, "grants"),
        ({"name": "a", "value": "1", "grants": "manager acme/nowhere"}, "grants"),
        ({"name": "a", "value": "1", "grants": "* *"}, "grants"),
        ({"name": "a", "value": "1", "grants": "manager *", "open_to": "all"}, "grants"),
    ],
)
def test_the_page_marks_the_control_at_fault(client, operator, typed, control):
    client.force_login(operator)
    answer = client.post("/priority-classes/new/", typed)
    assert (answer.status_code, f'id="e-{control}"' in answer.content.decode()) == (422, True)
    assert PriorityClass.objects.count() == 3


def test_others_see_the_page_without_its_forms(client, team):
    client.force_login(person("admin", "acme"))
    page = client.get("/priority-classes/").content.decode()
    assert "high" in page
    assert "/priority-classes/new/" not in page
    row = PriorityClass.objects.get(name="high")
    assert client.get("/priority-classes/new/").status_code == 403
    assert client.post("/priority-classes/new/", {"name": "mine", "value": "1"}).status_code == 403
    assert client.get(f"/priority-classes/{row.id}/").status_code == 403
    assert client.post(f"/priority-classes/{row.id}/remove/").status_code == 403
    assert PriorityClass.objects.count() == 3


def test_the_policy_page_sets_the_default_class(client, team):
    client.force_login(person("manager"))
    assert client.post(f"/tenants/{team.id}/policy/", {"default_priority_class": "high"}).status_code == 302
    assert PlacementPolicy.objects.get().default_priority_class.name == "high"
    page = client.get(f"/tenants/{team.id}/policy/").content.decode()
    assert '<option value="high" selected>high</option>' in page
    assert "<dt>Default priority class</dt><dd>high</dd>" in page

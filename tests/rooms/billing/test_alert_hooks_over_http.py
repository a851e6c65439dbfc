"""Alert hooks over HTTP and on pages: the secret once, strict bodies, and foreigners learn nothing."""

import json
import re
import runpy
import time
from pathlib import Path

import pytest

from billing.models import AlertDelivery, AlertHook
from billing.operations.deliveries import deliver_alerts
from tenancy.models import AuditEntry
from tests.apiserver import api_server
from tests.builders import bind, make_tenant, make_user

from .hooking import KINDS, SECRET_PATH, Receiver, deliver, make_hook, reach_half

pytestmark = pytest.mark.django_db
HOWTO = Path(__file__).parents[3] / "docs/howto/receive-alerts.md"


@pytest.fixture
def receiver():
    with api_server(tls=False) as api:
        yield Receiver(api)


@pytest.fixture
def finance():
    make_tenant("acme/research")
    return person("finance")


def person(role, path="acme"):
    user = make_user()
    bind(user, path, role)
    return user


def body(receiver, **changes):
    return {"tenant": "acme", "name": "finance", "url": receiver.url(SECRET_PATH), "kinds": list(KINDS)} | changes


def test_a_hook_is_made_tested_paused_resumed_and_deleted(call, finance, receiver):
    status, made = call(finance, "post", "/alert-hooks", body(receiver))
    assert (status, made["server"], made["form"], made["paused_at"]) == (201, receiver.url(""), "json", None)
    assert made["secret"].startswith("swyh_")
    shown = call(finance, "get", f"/alert-hooks/{made['id']}")[1]
    assert shown == {name: value for name, value in made.items() if name != "secret"}
    assert call(finance, "get", "/alert-hooks?tenant=acme")[1] == {"items": [shown], "next": None}
    status, test = call(finance, "post", f"/alert-hooks/{made['id']}/test")
    assert (status, test["state"], test["attempts"], test["text"]) == (
        202, "pending", 0, "This is a test of the alert hook finance of acme.",
    )  # fmt: skip
    assert call(finance, "post", f"/alert-hooks/{made['id']}/test")[1]["code"] == "test_pending"
    deliver_alerts()
    assert receiver.ids == [test["id"]]
    [listed] = call(finance, "get", f"/alert-hooks/{made['id']}/deliveries")[1]["items"]
    assert (listed["state"], listed["last_status"], listed["next_at"]) == ("delivered", 200, None)
    assert call(finance, "post", f"/alert-hooks/{made['id']}/deliveries/{test['id']}/again")[0] == 202
    deliver_alerts()
    assert receiver.ids == [test["id"]] * 2
    assert call(finance, "post", f"/alert-hooks/{made['id']}/pause")[1]["pause"] == "user"
    assert call(finance, "post", f"/alert-hooks/{made['id']}/test")[1]["code"] == "hook_paused"
    assert call(finance, "post", f"/alert-hooks/{made['id']}/resume")[1]["pause"] is None
    assert call(finance, "delete", f"/alert-hooks/{made['id']}")[0] == 204
    assert call(finance, "get", f"/alert-hooks/{made['id']}")[0] == 404
    actions = AuditEntry.objects.filter(action__startswith="hook.").order_by("id").values_list("action", flat=True)
    assert list(actions) == [
        f"hook.{verb}" for verb in ("create", "test", "deliver_again", "pause", "resume", "delete")
    ]


def test_a_repeated_request_makes_one_hook_and_does_not_repeat_the_secret(call, finance, receiver):
    first = call(finance, "post", "/alert-hooks", body(receiver), **{"Idempotency-Key": "k"})[1]
    status, second = call(finance, "post", "/alert-hooks", body(receiver), **{"Idempotency-Key": "k"})
    assert (status, second) == (201, first | {"secret": None})
    assert AlertHook.objects.count() == 1
    assert call(finance, "post", "/alert-hooks", body(receiver))[1]["code"] == "hook_exists"


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"kinds": []}, "kinds", "min_length"),
        ({"kinds": ["test"]}, "kinds[0]", "invalid_choice"),
        ({"form": "xml"}, "form", "invalid_choice"),
        ({"url": "https://169.254.169.254/"}, "url", "address_not_allowed"),
        ({"url": "gopher://example.com"}, "url", "bad_url"),
        ({"secret": "mine"}, "secret", "unknown_field"),
        ({"name": " x"}, "name", "bad_format"),
        ({"name": ""}, "name", "blank"),
    ],
)
def test_a_wrong_field_is_named(call, finance, receiver, changes, field, code):
    status, refused = call(finance, "post", "/alert-hooks", body(receiver, **changes))
    assert (status, [(one["field"], one["code"]) for one in refused["errors"]]) == (422, [(field, code)])
    assert SECRET_PATH not in repr(list(AuditEntry.objects.values()))


def test_foreigners_and_those_who_may_not_manage_it_get_404(call, receiver):
    hook, _ = make_hook(receiver, "acme/research")
    delivery = AlertDelivery.objects.create(hook=hook, kind="test", subject="1", tenant_path="acme", facts={})
    own = f"/alert-hooks/{hook.id}"
    others = [
        person("admin", "globex"),
        person("viewer"),
        person("submitter", "acme/research"),
        person("admin", "acme/other"),
    ]
    for user in others:
        assert call(user, "get", "/alert-hooks")[1]["items"] == []
        for verb, path in (
            ("get", own), ("delete", own), ("post", f"{own}/pause"), ("post", f"{own}/resume"), ("post", f"{own}/test"),
            ("get", f"{own}/deliveries"), ("post", f"{own}/deliveries/{delivery.uid}/again"),
        ):  # fmt: skip
            assert call(user, verb, path)[0] == 404, (user, verb, path)
    assert call(person("viewer"), "post", "/alert-hooks", body(receiver))[0] == 403
    assert call(person("admin", "globex"), "post", "/alert-hooks", body(receiver))[0] == 404
    manager = person("manager", "acme/research")
    assert call(manager, "get", own)[0] == 200
    other, _ = make_hook(receiver, "acme/research", "other")
    assert call(manager, "post", f"/alert-hooks/{other.id}/deliveries/{delivery.uid}/again")[0] == 404


def test_a_tenant_has_so_many_hooks_and_no_more(call, finance, receiver, monkeypatch):
    monkeypatch.setattr("billing.operations.hooks.MOST_HOOKS", 1)
    make_hook(receiver)
    assert call(finance, "post", "/alert-hooks", body(receiver, name="second"))[1]["code"] == "too_many_hooks"
    assert call(finance, "post", "/alert-hooks", body(receiver, name="second", tenant="acme/research"))[0] == 201


def test_the_pages_make_a_hook_show_its_secret_once_and_its_deliveries(client, finance, receiver):
    client.force_login(finance)
    form = {"tenant": "acme", "name": "channel <b>", "url": receiver.url(SECRET_PATH), "form": "chat", "kinds": "all"}
    made = client.post("/budgets/hooks/", form).content.decode()
    [secret] = set(re.findall(r"swyh_[\w-]+", made))
    hook = AlertHook.objects.get()
    pages = [
        client.get(path).content.decode() for path in ("/budgets/", "/budgets/hooks/", f"/budgets/hooks/{hook.id}/")
    ]
    assert all(secret not in page and SECRET_PATH not in page for page in pages)
    assert SECRET_PATH not in made
    assert "channel &lt;b&gt;" in pages[2]
    receiver.answer = 500
    reach_half()
    deliver()
    shown = client.get(f"/budgets/hooks/{hook.id}/").content.decode()
    assert "acme/research has spent 50 % of its budget" in shown
    assert "it answered 500" in shown
    receiver.answer = 200
    uid = AlertDelivery.objects.get().uid
    assert client.post(f"/budgets/hooks/{hook.id}/deliveries/{uid}/again/").status_code == 302
    assert client.post(f"/budgets/hooks/{hook.id}/test/").status_code == 302
    deliver()
    assert set(AlertDelivery.objects.values_list("state", flat=True)) == {"delivered"}
    for verb in ("pause", "resume", "remove"):
        assert client.post(f"/budgets/hooks/{hook.id}/{verb}/").status_code == 302
    assert not AlertHook.objects.exists()


def test_a_refused_form_does_not_repeat_the_url(client, finance, receiver):
    client.force_login(finance)
    form = {"tenant": "acme", "name": "x", "url": "https://10.0.0.1/canary", "form": "chat", "kinds": "anomaly"}
    answer = client.post("/budgets/hooks/", form)
    assert answer.status_code == 422
    assert "canary" not in answer.content.decode()
    assert "SWITCHYARD_EGRESS_ALLOW" in answer.content.decode()
    assert client.post("/budgets/hooks/", {}).status_code == 404


def test_the_page_on_receiving_gives_a_body_that_is_accepted(call, finance, receiver):
    [block] = re.findall(r"^```json\n(.*?)^```$", HOWTO.read_text(), re.MULTILINE | re.DOTALL)
    status, made = call(finance, "post", "/alert-hooks", json.loads(block) | {"url": receiver.url()})
    assert (status, made["kinds"]) == (201, sorted(KINDS))


def test_the_page_on_receiving_verifies_what_is_posted(receiver, tmp_path):
    """Its snippet, as it stands there."""
    [block] = re.findall(r"^```python\n(.*?)^```$", HOWTO.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "snippet.py").write_text(block)
    is_genuine = runpy.run_path(str(tmp_path / "snippet.py"))["is_genuine"]
    _, secret = make_hook(receiver)
    reach_half()
    deliver()
    [(headers, sent)] = receiver.posts
    signature = headers["Switchyard-Signature"]
    assert is_genuine(secret, signature, sent)
    assert not is_genuine(secret, signature, sent.replace(b"50", b"51"))
    assert not is_genuine("swyh_other", signature, sent)
    assert not is_genuine(secret, signature.replace("t=", "t=1"), sent)
    assert not is_genuine(secret, "", sent)
    old = signature.replace(f"t={int(time.time())}", "t=1")
    assert not is_genuine(secret, old, sent, tolerance_seconds=-1)

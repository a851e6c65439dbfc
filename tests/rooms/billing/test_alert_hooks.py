"""Alerts go to hooks: each once per hook, again until it is accepted, signed, and to no address that the egress guard refuses."""

import contextlib
import hashlib
import hmac
import json
import logging
import time

import pytest
from django.db.models import F

from billing.engine.amounts import decimal_text
from billing.models import AlertDelivery, AlertHook, BudgetForecastAlert, SpendAnomaly
from billing.operations import deliveries, hooks
from billing.operations.anomalies import inspect_spending
from billing.operations.deliveries import attempt, claim_deliveries, deliver_alerts, make_deliveries, settle
from billing.operations.forecasts import foresee_budgets
from clusters.drivers import resolve
from clusters.drivers.posting import POST_SECONDS
from foundation.plain_json import instant
from foundation.problems import Conflict, Invalid
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.apiserver import api_server
from tests.builders import make_tenant

from .hooking import KINDS, LONG, PATH, SECRET_PATH, Receiver, deliver, due_now, make_hook, reach_half
from .invoicing import closed_month, issued
from .ledgers import priced_cluster
from .test_anomalies import spike
from .test_forecasts import north, past_days, twenty_days

pytestmark = pytest.mark.django_db
NAME = "hooks.example.com"


@pytest.fixture
def receiver():
    with api_server(tls=False) as api:
        yield Receiver(api)


def states():
    return list(AlertDelivery.objects.order_by("id").values_list("state", "attempts", "last_status"))


def test_an_alert_goes_once_to_each_hook_of_its_tenant_and_of_those_above(receiver):
    for tenant in ("acme", "acme/research", "acme/other", "globex"):
        make_hook(receiver, tenant)
    reach_half()
    for _ in range(3):
        deliver()
    assert len(receiver.posts) == 2
    assert len(set(receiver.ids)) == 2
    assert {(body["kind"], body["tenant"]) for body in receiver.bodies} == {("budget_spent", "acme/research")}
    assert set(AlertDelivery.objects.values_list("hook__tenant__path", flat=True)) == {"acme", "acme/research"}
    assert states() == [("delivered", 1, 200)] * 2


def test_the_body_has_exact_figures_and_its_signature_is_right(receiver):
    _, secret = make_hook(receiver)
    reach_half()
    deliver()
    [(headers, sent)] = receiver.posts
    body = json.loads(sent)
    assert body["id"] == headers["Switchyard-Delivery"]
    assert body["text"].startswith(
        "acme/research has spent 50 % of its budget for 2026-11-01 to 2098-12-31: 2.50 USD of 5.00 USD."
    )
    assert body["data"] | {"budget": ""} == {
        "amount": "5.00", "budget": "", "currency": "USD", "measure": "money", "percent": 50, "period": "dates",
        "period_start": "2026-11-01T00:00:00.000Z", "period_end": "2099-01-01T00:00:00.000Z", "spent": "2.50",
    }  # fmt: skip
    stamp, _, digest = headers["Switchyard-Signature"].partition(",")
    signed = stamp.removeprefix("t=").encode() + b"." + sent
    assert digest == "v1=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    assert (headers["Switchyard-Attempt"], headers["Content-Type"]) == ("1", "application/json")


def test_a_chat_gets_the_text_alone_without_markup_of_its_own(receiver):
    hook, _ = make_hook(receiver, form="chat")
    facts = {"tenant": "acme", "at": "2026-11-27T00:00:00.000Z", "flavor": "<!channel> & more", "day": "2026-11-26",
             "currency": "USD", "cost": "610.000000000000", "usual": "10.000000000000", "anomaly": "x"}  # fmt: skip
    AlertDelivery.objects.create(hook=hook, kind="anomaly", subject="x", tenant_path="acme", facts=facts)
    deliver()
    text = "acme spent 610.00 USD on &lt;!channel&gt; &amp; more on 2026-11-26. Usual are 10.00 USD."
    assert receiver.bodies == [{"text": text}]


def test_an_issued_document_goes_to_hooks_that_want_documents(receiver):
    cluster = priced_cluster()
    closed_month(cluster)
    make_hook(receiver)
    make_hook(receiver, name="budgets alone", kinds=("budget_spent",))
    document = issued()
    deliver()
    [body] = receiver.bodies
    assert (body["kind"], body["data"]["number"], body["data"]["month"]) == ("document", document.number, "2026-10")
    assert body["text"] == f"Invoice {document.number} of acme for 2026-10 is issued: 15.00 USD."


def test_an_unusual_day_goes_to_hooks_once_however_often_it_is_found(receiver):
    cluster = north()
    past_days(cluster, "acme/one", days=40)
    make_hook(receiver)
    spike(cluster)
    for _ in range(2):
        inspect_spending()
        deliver()
    [body] = receiver.bodies
    found = SpendAnomaly.objects.get()
    assert (body["kind"], body["tenant"], body["at"]) == ("anomaly", "acme/one", instant(found.found_at))
    assert body["data"] == {
        "anomaly": str(found.id), "cost": "610.00", "currency": "USD", "day": f"{found.day}", "flavor": "h100", "usual": "10.00",
    }  # fmt: skip


def test_a_threshold_that_is_expected_goes_to_hooks_with_its_range(receiver):
    past_days(north(), "acme/one")
    twenty_days(notify_at=(), notify_forecast_at=(100,))
    make_hook(receiver)
    foresee_budgets()
    deliver()
    [body] = receiver.bodies
    alert = BudgetForecastAlert.objects.get()
    assert (body["kind"], body["tenant"], body["data"]["percent"]) == ("budget_forecast", "acme", 100)
    assert body["data"]["reached_on"] == f"{alert.reached_on}"
    assert [body["data"][name] for name in ("low", "expected", "high")] == [
        decimal_text(one) for one in (alert.low, alert.expected, alert.high)
    ]


def test_what_arose_before_the_hook_or_while_it_was_paused_is_not_delivered(receiver):
    older, _ = make_hook(receiver, name="older")
    cluster = reach_half()
    hook, _ = make_hook(receiver)
    deliver()
    hooks.pause_hook(SYSTEM, hook.id)
    reach_half("acme/two", cluster)
    deliver()
    hooks.resume_hook(SYSTEM, hook.id)
    deliver()
    assert not hook.deliveries.exists()
    reach_half("acme/three", cluster)
    deliver()
    assert [row.tenant_path for row in hook.deliveries.all()] == ["acme/three"]
    assert [row.tenant_path for row in older.deliveries.order_by("id")] == ["acme/research", "acme/two", "acme/three"]
    assert len(receiver.posts) == 4


def test_a_worker_that_died_between_post_and_record_posts_again_with_the_same_id(receiver):
    make_hook(receiver)
    reach_half()
    make_deliveries()
    died = claim_deliveries()
    answers = attempt(died)
    deliver_alerts()
    assert len(receiver.posts) == 1, "the lease protects it"
    deliver()
    assert len(receiver.posts) == 2
    assert receiver.ids[0] == receiver.ids[1]
    assert receiver.posts[0][1] == receiver.posts[1][1]
    assert [headers["Switchyard-Attempt"] for headers, _ in receiver.posts] == ["1", "2"]
    settle(died, answers)
    assert states() == [("delivered", 2, 200)]


def test_a_late_result_does_not_undo_that_of_a_later_attempt(receiver):
    make_hook(receiver)
    reach_half()
    make_deliveries()
    receiver.answer = 500
    slow = claim_deliveries()
    answers = attempt(slow)
    due_now()
    later = claim_deliveries()
    settle(slow, answers)
    assert states() == [("pending", 2, None)], "only the last attempt counts"
    assert AlertHook.objects.get().busy_until == later[0].busy_until, "the hook is still the other's"


def test_a_hook_gets_one_post_at_a_time(receiver):
    make_hook(receiver)
    reach_half("acme/two", reach_half())
    assert make_deliveries() == 2
    first = claim_deliveries()
    assert claim_deliveries() == []
    settle(first, attempt(first))
    second = claim_deliveries()
    assert {claim.delivery_id for claim in first}.isdisjoint(claim.delivery_id for claim in second)
    assert len(first) == len(second) == 1


def sleeps(request):
    time.sleep(POST_SECONDS + 1)


def never_ends(request):
    request.send_response_only(200)
    request.end_headers()
    with contextlib.suppress(OSError):  # until it is hung up on
        while True:
            request.wfile.write(b" " * 65536)


def redirects(request):
    request.send_response_only(302)
    request.send_header("Location", "/elsewhere")
    request.send_header("Content-Length", "0")
    request.end_headers()


@pytest.mark.parametrize(
    ("answer", "state", "status", "error"),
    [
        (500, "pending", 500, "it answered 500"),
        (404, "pending", 404, "it answered 404"),
        (redirects, "pending", 302, "it answered 302"),
        (sleeps, "pending", None, "no complete answer within 5 s"),
        (never_ends, "delivered", 200, ""),
        (lambda request: request.wfile.write(b"SSH-2.0\r\n\r\n"), "pending", None, "the connection failed (ClientResponseError)"),
    ],
    ids=["500", "404", "redirect", "silence", "endless", "no http"],
)  # fmt: skip
def test_an_answer_counts_by_its_status_alone(receiver, answer, state, status, error):
    followed = []
    receiver.api.answers["/elsewhere"] = followed.append
    receiver.answer = answer
    make_hook(receiver)
    reach_half()
    began = time.monotonic()
    deliver()
    assert time.monotonic() - began < POST_SECONDS + 3
    [row] = AlertDelivery.objects.all()
    assert (row.state, row.last_status, row.last_error) == (state, status, error)
    assert followed == []
    assert len(receiver.posts) == 1


def test_failures_are_repeated_then_given_up_and_told(receiver):
    make_hook(receiver, path=SECRET_PATH)
    reach_half()
    receiver.answer = 503
    deliver()
    deliver_alerts()
    assert states() == [("pending", 1, 503)], "the next attempt is not due"
    AlertDelivery.objects.update(tried_since=F("tried_since") - LONG)
    deliver()
    assert states() == [("given_up", 2, 503)]
    deliver()
    assert len(receiver.posts) == 2
    told = AuditEntry.objects.get(action="hook.give_up")
    assert (told.detail["attempts"], told.detail["last_error"]) == (2, "it answered 503")
    row = AlertDelivery.objects.get()
    receiver.answer = 200
    hooks.deliver_again(SYSTEM, row.hook_id, row.uid)
    deliver_alerts()
    assert states() == [("delivered", 3, 200)]
    assert len(set(receiver.ids)) == 1


def test_410_pauses_the_hook_and_what_is_pending_waits(receiver):
    hook, _ = make_hook(receiver)
    reach_half()
    receiver.answer = 410
    deliver()
    deliver()
    assert len(receiver.posts) == 1
    assert AlertHook.objects.get().pause == "gone"
    assert AuditEntry.objects.filter(action="hook.pause").count() == 1
    with pytest.raises(Conflict):
        hooks.send_test(SYSTEM, hook.id)
    receiver.answer = 200
    hooks.resume_hook(SYSTEM, hook.id)
    deliver_alerts()
    assert states() == [("delivered", 2, 200)]


def test_a_slow_hook_delays_the_others_by_its_time_out_at_most(receiver, monkeypatch):
    monkeypatch.setattr(deliveries, "AT_ONCE", 2)
    slow, _ = make_hook(receiver, name="slow")
    quick, _ = make_hook(receiver, name="quick", path=SECRET_PATH)
    receiver.api.answers[PATH] = sleeps
    for hook in [slow] * 3 + [quick] * 5:
        facts = {"tenant": "acme", "hook": hook.name, "at": ""}
        AlertDelivery.objects.create(
            hook=hook, kind="test", subject=f"{hook.deliveries.count()}", tenant_path="acme", facts=facts
        )
    began = time.monotonic()
    while claims := claim_deliveries():
        assert len({claim.hook_id for claim in claims}) == len(claims), "one for each hook"
        settle(claims, attempt(claims))
        if not quick.deliveries.filter(state="pending").exists():
            break
    assert time.monotonic() - began < 3 * (POST_SECONDS + 2)
    assert quick.deliveries.filter(state="delivered").count() == 5


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/x", "https://127.0.0.1/x", "https://169.254.169.254/latest", "https://10.0.0.1", "https://[::1]/",
        "https://user:pw@example.com/", "https://example.com/?token=1", "ftp://example.com", "https://0x7f.1/", "http://127.0.0.1:81/",
    ],
)  # fmt: skip
def test_no_hook_is_made_for_an_address_inside(settings, url):
    settings.EGRESS_ALLOW = ()
    make_tenant("acme")
    with pytest.raises(Invalid) as refused:
        hooks.create_hook(SYSTEM, hooks.WantedHook("acme", "inside", url, ("anomaly",), "json"))
    assert [error.field for error in refused.value.errors] == ["url"]
    assert not AlertHook.objects.exists()


def test_a_name_that_leads_inside_later_is_refused_when_it_is_posted_to(settings, monkeypatch):
    settings.EGRESS_ALLOW = ()
    make_tenant("acme")
    leads_to = ["8.8.8.8"]
    monkeypatch.setattr(resolve, "resolve", lambda host, port: tuple(leads_to) if host == NAME else ("127.0.0.1",))
    hooks.create_hook(SYSTEM, hooks.WantedHook("acme", "x", f"https://{NAME}/a", KINDS, "json"))
    leads_to[:] = ["10.0.0.7"]
    reach_half()
    deliver()
    assert AlertDelivery.objects.get().last_error.startswith(f"{NAME} is refused: the address is not public")


def test_a_loopback_that_is_not_listed_any_more_is_not_posted_to(receiver, settings):
    make_hook(receiver)
    reach_half()
    settings.EGRESS_ALLOW = ()
    deliver()
    assert receiver.posts == []
    assert AlertDelivery.objects.get().last_error.startswith("127.0.0.1 is refused: the address is not public")


def test_a_hook_that_is_deleted_meanwhile_is_no_fault(receiver):
    hook, _ = make_hook(receiver)
    reach_half()
    make_deliveries()
    claims = claim_deliveries()
    hooks.delete_hook(SYSTEM, hook.id)
    settle(claims, attempt(claims))
    deliver_alerts()
    assert not AlertDelivery.objects.exists()


def test_the_secret_and_the_path_are_nowhere_but_sealed(receiver, caplog):
    caplog.set_level(logging.DEBUG)
    receiver.answer = 500
    _, secret = make_hook(receiver, path=SECRET_PATH)
    reach_half()
    deliver()
    rows = [*AlertHook.objects.values(), *AlertDelivery.objects.values(), *AuditEntry.objects.values()]
    texts = repr(rows) + caplog.text
    assert secret not in texts
    assert SECRET_PATH not in texts
    assert secret.encode() not in bytes(AlertHook.objects.get().sealed)


def test_alerts_are_found_however_long_no_worker_was_there(receiver):
    make_hook(receiver)
    AlertHook.objects.update(since=F("since") - 30 * LONG)
    reach_half()
    deliver()
    assert len(receiver.posts) == 1
    hook = AlertHook.objects.get()
    assert hook.since > hook.created_at - deliveries.LOOKS_BACK - deliveries.LOOKS_BACK
    deliver()
    assert len(receiver.posts) == 1

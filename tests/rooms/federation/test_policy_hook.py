"""Policy hooks against real servers on loopback and real entry points on the path."""

import asyncio
import json
import logging
import socket
import threading
import time

import msgspec
import pytest

from clusters.drivers.connections import run
from federation.drivers.policy_hooks import CONCURRENT_QUESTIONS
from federation.engine.intake.policy_hooks import PolicyRefused, PolicyUnavailable
from federation.models import Job, JobEvent
from federation.operations import put_class, submit_job, submit_jobs
from federation.queries.quotes import quote_of, quote_of_draft
from foundation.problem_json import problem_body
from foundation.problems import Invalid, NotFound, PermissionDenied
from tenancy.models import AuditEntry, IdempotencyRecord, User
from tenancy.queries import SYSTEM, actor_for
from tests.apiserver import api_server
from tests.builders import bind, make_cluster, make_flavor, make_node, make_spec, make_tenant, make_user

pytestmark = pytest.mark.django_db
TENANT, PATH, TOKEN = "acme/research", "/review", "canary-policy-token-51f0"
HUGE = 65 * 1024
HOUR, PATIENCE_SECONDS = 3600.0, 60.0


def show(job):
    return {"id": str(job.id), "name": job.name}


@pytest.fixture
def actor():
    user = make_user("ada@example.com")
    bind(user, "acme", "submitter")
    make_tenant(TENANT)
    return actor_for(user)


class Service:
    """What the hook was asked, and what it says."""

    def __init__(self, api):
        self.api, self.asked, self.headers = api, [], []
        self.answer = {"allow": True}
        api.answers[PATH] = self.take

    def take(self, request):
        self.asked.append(msgspec.json.decode(request.sent))
        self.headers.append(dict(request.headers))
        if callable(self.answer):
            self.answer(request)
        else:
            request.say(200, self.answer)


@pytest.fixture
def service(settings):
    with api_server(tls=False) as api:
        settings.POLICY_URL, settings.POLICY_TOKEN = f"http://127.0.0.1:{api.port}{PATH}", TOKEN
        settings.POLICY_SECONDS = 5
        yield Service(api)


def submit(actor, *, key="", **changes):
    body = {"tenant": TENANT, **make_spec(**changes)}
    return submit_job(actor, body, show=show, key=key, raw=json.dumps(body).encode())


def submit_many(actor, items, **more):
    body = {"tenant": TENANT, "jobs": items}
    return submit_jobs(actor, body, show=show, tell=problem_body, raw=json.dumps(body).encode(), **more).body["items"]


def test_a_job_passes_and_the_hook_saw_the_whole_spec_and_who_asks(actor, service):
    submit(actor)
    [job], [asked], [headers] = Job.objects.all(), service.asked, service.headers
    assert asked.pop("request_id") == ""
    assert asked == {"version": 1, "tenant": TENANT, "user": "ada@example.com", "dry_run": False, "spec": job.spec}
    assert (headers["Authorization"], headers["Host"]) == (f"Bearer {TOKEN}", f"127.0.0.1:{service.api.port}")
    assert JobEvent.objects.get().message == "Submitted by ada@example.com."
    assert AuditEntry.objects.get(action="job.submit").detail == {"name": "train"}


def test_what_it_changes_is_stored_and_told(actor, service):
    service.answer = {"allow": True, "changes": {"priority_class": "low", "labels": {"centre": "4711"}}}
    submit(actor, priority_class="high")
    job = Job.objects.get()
    assert (job.spec["priority_class"], job.priority, job.labels) == ("low", -100, {"centre": "4711"})
    assert JobEvent.objects.get().message.endswith(" The policy hook changed labels, priority_class.")
    assert AuditEntry.objects.get(action="job.submit").detail["policy_changed"] == ["labels", "priority_class"]


def test_the_same_values_and_null_for_a_default_are_no_change(actor, service):
    service.answer = {"allow": True, "message": None, "changes": {"name": "train", "completions": None}}
    submit(actor)
    assert "policy" not in JobEvent.objects.get().message


def test_a_refusal_comes_in_its_words_cleaned_and_cut(actor, service):
    service.answer = {"allow": False, "message": "No\x1b[31m\n\u202eimages\t" + "x" * 1000}
    with pytest.raises(PolicyRefused) as refused:
        submit(actor, key="k")
    assert refused.value.detail == ("No [31m images " + "x" * 1000)[:300]
    assert (refused.value.status, refused.value.code) == (422, "policy_refused")
    assert not Job.objects.exists()
    assert not IdempotencyRecord.objects.exists()


@pytest.mark.parametrize("message", [None, 5, "", {"a": 1}, "\x00\x07"])
def test_a_no_is_a_no_whatever_comes_with_it(actor, service, settings, message):
    settings.POLICY_FAILS = "open"
    service.answer = json.dumps({"allow": False, "message": message, "more": 1}).encode().replace(b"\\u0000", b"")
    with pytest.raises(PolicyRefused, match=r"^The policy of this installation does not allow the job\.$"):
        submit(actor)


DRIPS = 600
"""Of a tenth of a second: an answer without a limit to its time would come a minute later."""


def drip(request):
    request.send_response_only(200)
    request.send_header("Content-Type", "application/json")
    request.end_headers()
    for _ in range(DRIPS):
        request.wfile.write(b" ")
        request.wfile.flush()
        time.sleep(0.1)


def drip_headers(request):
    request.wfile.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(DRIPS):
        request.wfile.write(b"X-%d: a\r\n" % number)
        request.wfile.flush()
        time.sleep(0.1)


def say(status, body, **headers):
    return lambda request: request.say(status, body, {name.replace("_", "-"): text for name, text in headers.items()})


def html(request):
    content = b"<html>allow</html>"
    request.send_response_only(200)
    request.send_header("Content-Type", "text/html")
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    request.wfile.write(content)


HOSTILE = {
    "500": (say(500, {"allow": True}), "answered 500"),
    "204": (say(204, b""), "answered 204"),
    "redirect": (say(307, {"allow": True}, Location="/elsewhere"), "answered 307"),
    "html": (html, "not plain application/json"),
    "gzip": (say(200, b"\x1f\x8b", Content_Encoding="gzip"), "not plain application/json"),
    "huge": (say(200, b'{"allow": true, "message": "' + b"x" * HUGE + b'"}'), "larger than 65536 bytes"),
    "hangs up": (lambda request: request.connection.shutdown(socket.SHUT_RDWR), "the connection failed"),
    "no json": (say(200, b"{allow: true}"), "not JSON"),
    "twice": (say(200, b'{"allow": false, "allow": true}'), "not JSON"),
    "deep": (say(200, b"[" * 5000 + b"]" * 5000), "not JSON"),
    "a list": ([], "not an object"),
    "a word": ({"allow": "yes"}, "no `allow`"),
    "a number": ({"allow": 1}, "no `allow`"),
    "nothing": ({}, "no `allow`"),
    "more": ({"allow": True, "patch": []}, "fields besides"),
    "changes of a list": ({"allow": True, "changes": [1]}, "`changes` is not an object"),
    "another tenant": ({"allow": True, "changes": {"tenant": "acme/other"}}, "no longer valid: tenant unknown_field"),
    "no pods": ({"allow": True, "changes": {"pod_sets": []}}, "no longer valid: pod_sets required"),
    "no name": ({"allow": True, "changes": {"name": None}}, "no longer valid: name required"),
    "wrong types": ({"allow": True, "changes": {"labels": [], "deadline_seconds": True}}, "labels wrong_type"),
    "NaN": (say(200, b'{"allow": true, "changes": {"deadline_seconds": NaN}}'), "not JSON"),
    "reserved": ({"allow": True, "changes": {"labels": {"switchyard.dev/x": "1"}}}, "reserved_prefix"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_no_usable_answer_refuses_when_closed_and_passes_when_open(actor, service, settings, caplog, case):
    service.answer, why = HOSTILE[case]
    with caplog.at_level(logging.WARNING), pytest.raises(PolicyUnavailable) as refused:
        submit(actor, labels={"secret": "canary-in-spec"})
    assert (refused.value.status, refused.value.code, refused.value.retry_after_seconds) == (
        503,
        "policy_unavailable",
        5,
    )
    assert not Job.objects.exists()
    assert why in caplog.text
    settings.POLICY_FAILS = "open"
    submit(actor)
    assert JobEvent.objects.get().message.endswith(" A policy hook failed and was skipped.")
    assert AuditEntry.objects.get(action="job.submit").detail["policy_passed_over"] is True
    assert len(service.asked) == 2
    assert "/elsewhere" not in service.api.paths
    assert TOKEN not in caplog.text
    assert "canary-in-spec" not in caplog.text


@pytest.mark.parametrize("slow", [drip, drip_headers, lambda _: time.sleep(3)])
def test_its_time_is_limited_in_total(actor, service, settings, caplog, slow):
    settings.POLICY_SECONDS, service.answer = 1, slow
    began = time.monotonic()
    with pytest.raises(PolicyUnavailable):
        submit(actor)
    assert 0.9 < time.monotonic() - began < DRIPS / 10 / 2
    assert "no complete answer within 1 s" in caplog.text


def test_nobody_listening_is_a_failure(actor, service, settings):
    with api_server(tls=False) as gone:
        settings.POLICY_URL = f"http://127.0.0.1:{gone.port}/"
    with pytest.raises(PolicyUnavailable):
        submit(actor)


def test_tls_is_verified_against_the_given_authority(actor, settings, caplog):
    with api_server("localhost") as api:
        service = Service(api)
        settings.POLICY_URL, settings.POLICY_CA = f"https://localhost:{api.port}{PATH}", api.ca_pem
        submit(actor)
        assert service.headers[0]["Host"] == f"localhost:{api.port}"
        for url, authorities in ((settings.POLICY_URL, ""), (f"https://127.0.0.1:{api.port}{PATH}", api.ca_pem)):
            settings.POLICY_URL, settings.POLICY_CA = url, authorities
            with pytest.raises(PolicyUnavailable):
                submit(actor)
        assert len(service.asked) == 1
    assert "Certificate" in caplog.text


@pytest.mark.parametrize(
    "case",
    [
        ("http://127.0.0.1:{port}/review", [], "is refused"),
        ("https://127.0.0.1:{port}/review", [], "is refused"),
        ("https://169.254.169.254/latest", ["169.254.0.0/16"], "metadata"),
        ("http://192.0.2.7:{port}/review", ["192.0.2.0/24"], "only a hook on this host"),
    ],
)
def test_it_goes_through_the_egress_guard(actor, service, settings, caplog, case):
    url, allowed, why = case
    settings.POLICY_URL, settings.EGRESS_ALLOW = url.format(port=service.api.port), allowed
    with pytest.raises(PolicyUnavailable):
        submit(actor)
    assert service.asked == []
    assert why in caplog.text


def test_the_gateways_own_database_is_never_asked(actor, settings, caplog):
    own = settings.REDIS_URL.rpartition("@")[2].removeprefix("redis://").partition("/")[0]
    settings.POLICY_URL = f"http://{own}/"
    with pytest.raises(PolicyUnavailable):
        submit(actor)
    assert "own servers" in caplog.text


def test_a_key_that_has_its_answer_asks_nobody(actor, service):
    first, again = submit(actor, key="k"), submit(actor, key="k")
    assert (again.body, again.replayed, len(service.asked)) == (first.body, True, 1)
    with pytest.raises(Invalid, match="another body"):
        submit(actor, key="k", name="other")
    with pytest.raises(Invalid):
        submit(actor, key="é")
    assert len(service.asked) == 1
    assert Job.objects.count() == 1


def test_nobody_is_asked_about_what_would_be_refused_anyway(service, actor):
    viewer = make_user()
    bind(viewer, "acme", "viewer")
    with pytest.raises(PermissionDenied):
        submit(actor_for(viewer))
    with pytest.raises(Invalid):
        submit(actor, name="NOT A NAME")
    assert service.asked == []


def test_the_changed_job_is_judged_not_the_one_that_was_sent(actor, service):
    make_node(make_flavor(make_cluster("acme", "east"), "h100").cluster)
    service.answer = {"allow": True, "changes": {"constraints": {"clusters": ["nowhere"]}}}
    with pytest.raises(NotFound, match="name a cluster"):
        submit(actor)


def test_in_bulk_each_is_asked_about_and_answered_by_itself(actor, service):
    def by_name(request):
        spec = msgspec.json.decode(request.sent)["spec"]
        said = {
            "no": {"allow": False, "message": "Not that one."},
            "low": {"allow": True, "changes": {"priority_class": "low"}},
            "odd": [],
        }
        request.say(200, said.get(spec["name"], {"allow": True}))

    service.answer = by_name
    items = submit_many(actor, [make_spec(name=name) for name in ("yes", "no", "low", "odd", "BAD")])
    assert [item["status"] for item in items] == [201, 422, 201, 503, 422]
    assert items[1]["problem"]["detail"] == "Not that one."
    assert len(service.asked) == 4
    low = Job.objects.get(name="low")
    assert low.priority == -100
    told = dict(JobEvent.objects.values_list("job__name", "message"))
    assert told["low"].endswith("The policy hook changed priority_class.")
    assert told["yes"].endswith("ada@example.com.")
    detail = AuditEntry.objects.get(action="job.submit_many").detail
    assert detail["reviews"] == {str(low.id): {"policy_changed": ["priority_class"]}}


def test_in_bulk_answered_keys_ask_nobody(actor, service):
    one = {**make_spec(name="one"), "idempotency_key": "k"}
    [first] = submit_many(actor, [one])
    again, other, new = submit_many(actor, [one, {**one, "name": "other"}, make_spec(name="new")], key="whole")
    assert (again["job"], again["replayed"]) == (first["job"], True)
    assert other["problem"]["code"] == "idempotency_key_reused"
    assert new["status"] == 201
    assert len(service.asked) == 2
    submit_many(actor, [one, {**one, "name": "other"}, make_spec(name="new")], key="whole")
    assert (len(service.asked), Job.objects.count()) == (2, 2)


def test_a_long_list_is_no_way_around_a_slow_hook(actor, service, settings, monkeypatch):
    """Once all questions that may be asked together are asked, all of the time passes, on any host."""
    settings.POLICY_FAILS, settings.POLICY_SECONDS = "open", 20

    async def loop_of_this_process():
        return asyncio.get_running_loop()

    loop, is_over = run(loop_of_this_process(), PATIENCE_SECONDS), threading.Event()

    def keep_silent(_):
        if len(service.asked) >= CONCURRENT_QUESTIONS:
            loop.call_soon_threadsafe(monkeypatch.setattr, loop, "time", lambda: time.monotonic() + HOUR)
        is_over.wait(PATIENCE_SECONDS)

    service.answer = keep_silent
    try:
        items = submit_many(actor, [make_spec(name=f"job-{number}") for number in range(20)])
    finally:
        is_over.set()
    statuses = [item["status"] for item in items]
    assert statuses == [201] * CONCURRENT_QUESTIONS + [503] * 12
    assert len(service.asked) == CONCURRENT_QUESTIONS


def test_a_quote_asks_in_a_dry_run_and_a_draft_does_not(actor, service):
    body = {"tenant": TENANT, **make_spec()}
    quote_of_draft(actor, body)
    assert service.asked == []
    quote_of(actor, body)
    assert [asked["dry_run"] for asked in service.asked] == [True]
    service.answer = {"allow": False, "message": "No."}
    with pytest.raises(PolicyRefused, match=r"^No\.$"):
        quote_of(actor, body)


def test_over_http_a_refusal_is_a_problem_with_its_status(service, client, actor):
    client.force_login(User.objects.get(id=actor.user_id))
    service.answer = say(500, b"{}")
    answer = client.post("/api/v1/jobs", {"tenant": TENANT, **make_spec()}, content_type="application/json")
    assert (answer.status_code, answer.json()["code"], answer["Retry-After"]) == (503, "policy_unavailable", "5")


def test_without_a_hook_nothing_is_looked_up(actor, django_assert_max_num_queries):
    submit(actor)
    with django_assert_max_num_queries(7):
        submit(actor)


def test_a_hook_chooses_only_classes_that_the_submitter_may_use(actor, service):
    put_class(SYSTEM, {"name": "urgent", "value": 500, "grants": [{"role": "manager"}]})
    for name in ("urgent", "no-such"):
        service.answer = {"allow": True, "changes": {"priority_class": name}}
        with pytest.raises(PolicyUnavailable):
            submit(actor)
        [item] = submit_many(actor, [make_spec()])
        assert item["problem"]["code"] == "policy_unavailable"
    assert not Job.objects.exists()
    bind(User.objects.get(id=actor.user_id), "acme", "manager")
    service.answer = {"allow": True, "changes": {"priority_class": "urgent"}}
    submit(actor)
    submit_many(actor, [make_spec()])
    assert list(Job.objects.values_list("priority", flat=True)) == [500, 500]

"""Sessions as values: their origins, what a program gets of a request, what a browser gets of an answer, and the spec's field."""

from uuid import UUID

import pytest

from federation.engine.intake.normal_form import spec_json
from federation.engine.intake.reading import Refused
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.sessions import (
    Session,
    comes_from_itself,
    is_encoded,
    is_method,
    passed_on,
    read_origin,
    returned,
)
from tests.builders import make_spec

ID = UUID("0198c0de-0000-7000-8000-00000000abcd")
SESSION = {"port": 8888, "idle_seconds": 1800}
RULES = Rules(has_sessions=True)
OWN = "https://a.sessions.example"


@pytest.mark.parametrize(
    "text",
    ["https://*.sessions.example.org", "https://*.s.example:8443", "http://*.localhost:8000", "http://*.x.localhost"],
)
def test_an_origin_has_a_star_for_each_run(text):
    origin = read_origin(text)
    assert origin.of(ID) == text.replace("*", ID.hex)
    host = origin.of(ID).partition("//")[2]
    for spelled in (
        host,
        host.upper(),
        f" {host} ",
        host.replace(ID.hex, f"{ID.hex}"),
        origin.of(ID).partition("//")[2],
    ):
        assert origin.attempt_at(spelled) == ID
        assert origin.covers(spelled)
    assert origin.is_secure is text.startswith("https")


@pytest.mark.parametrize(
    "text",
    [
        "https://sessions.example.org", "http://*.sessions.example.org", "https://*.example.org/", "https://*.example.org/path",
        "https://*.*.example.org", "https://user@*.example.org", "https://*.user@example.org", "https://*.example.org:0",
        "https://*.example.org:70000", "https://*.example.org:", "https://*.Example.org", "ftp://*.example.org", "https://*.",
        "https://*.a..b", "https://*.-a", "https://*.[::1]", "https://*.example.org?x", "https://*.example.org#x", "*.example.org",
        "https://*.exa mple.org", "http://*.localhost.example.org", "http://*.notlocalhost",
    ],
)  # fmt: skip
def test_any_other_origin_is_refused(text):
    with pytest.raises(ValueError, match="must be") as refused:
        read_origin(text)
    assert "user@" not in str(refused.value)


@pytest.mark.parametrize(
    ("host", "is_covered"),
    [
        ("sessions.example.org", True), ("x.sessions.example.org", True), ("x.y.sessions.example.org.", True),
        ("evilsessions.example.org", False), ("example.org", False), ("sessions.example.org.evil", False), ("", False),
        (f"{ID.hex}.x.sessions.example.org", True), (f"{ID}.sessions.example.org", True), (f"{ID.hex}0.sessions.example.org", True),
    ],
)  # fmt: skip
def test_no_page_of_the_gateway_is_served_below_the_base_whether_a_run_is_there_or_not(host, is_covered):
    origin = read_origin("https://*.sessions.example.org")
    assert origin.covers(host) is is_covered
    assert origin.attempt_at(host) is None


@pytest.mark.parametrize(
    ("method", "headers", "is_own"),
    [
        ("GET", {}, True), ("POST", {}, False), ("DELETE", {}, False), ("HEAD", {}, True),
        ("POST", {"origin": OWN}, True), ("POST", {"origin": "https://b.sessions.example"}, False), ("GET", {"origin": "null"}, False),
        ("GET", {"origin": f"{OWN}.evil"}, False),
        ("POST", {"sec-fetch-site": "same-origin"}, True), ("GET", {"sec-fetch-site": "none"}, True),
        ("POST", {"sec-fetch-site": "same-site"}, False), ("GET", {"sec-fetch-site": "same-site"}, False),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}, False),
        ("GET", {"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}, False),
        ("GET", {"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, False),
        ("POST", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, False),
        ("POST", {"sec-fetch-site": "same-origin", "origin": "https://b.sessions.example"}, False),
    ],
)  # fmt: skip
def test_only_a_sessions_own_pages_act_in_it(method, headers, is_own):
    assert comes_from_itself(method, headers, OWN) is is_own


def test_a_program_gets_no_credential_and_nothing_of_the_connection():
    sent = {
        "cookie": "a=b", "authorization": "Bearer swy_x", "proxy-authorization": "x", "host": "evil", "connection": "keep-alive, X-Named",
        "x-named": "y", "keep-alive": "5", "te": "trailers", "trailer": "x", "transfer-encoding": "chunked", "upgrade": "websocket",
        "content-length": "9", "expect": "100-continue", "forwarded": "for=1", "x-forwarded-for": "1", "x-forwarded-host": "h",
        "x-real-ip": "1", "referer": "r", "accept-encoding": "gzip", "sec-websocket-key": "k", "http2-settings": "s", "via": "v",
        "x-request-id": "1", "accept": "text/html", "x-xsrftoken": "t", "range": "bytes=0-1", "bad": "a\r\nb",
        "origin": OWN,
    }  # fmt: skip
    assert passed_on(sent, "h.example", "text/plain") == [
        ("host", "h.example"), ("accept-encoding", "identity"), ("accept", "text/html"), ("origin", OWN), ("range", "bytes=0-1"),
        ("x-xsrftoken", "t"), ("content-type", "text/plain"),
    ]  # fmt: skip
    assert passed_on({}, "h", "a\x00b") == [("host", "h"), ("accept-encoding", "identity")]


def test_a_browser_gets_no_cookie_policy_or_permission_of_a_program():
    answered = [
        ("set-cookie", "__Host-sessionid=x"), ("content-security-policy", "x"), ("content-security-policy-report-only", "x"),
        ("access-control-allow-origin", "*"), ("access-control-allow-credentials", "true"), ("strict-transport-security", "max-age=0"),
        ("clear-site-data", "*"), ("service-worker-allowed", "/"), ("refresh", "0;url=x"), ("alt-svc", "h2"), ("server", "x"),
        ("connection", "close"), ("transfer-encoding", "chunked"), ("content-length", "4"), ("cache-control", "public"), ("vary", "*"),
        ("x-frame-options", "ALLOWALL"), ("link", "x"), ("report-to", "x"), ("nel", "x"), ("www-authenticate", "Basic"),
        ("Content-Type", "text/html"), ("content-type", "second"), ("LOCATION", "/next"), ("etag", '"1"'), ("allow", "bad\x01"),
    ]  # fmt: skip
    assert returned(answered) == {"Content-Type": "text/html", "Location": "/next", "ETag": '"1"'}


def test_encodings_that_were_not_asked_for_are_seen():
    assert [
        is_encoded([("Content-Encoding", text)]) for text in ("gzip", "identity", " Identity ", "br, identity")
    ] == [True, False, False, True]
    assert not is_encoded([])


def test_methods_that_pass():
    assert [is_method(one) for one in ("GET", "PATCH", "OPTIONS", "CONNECT", "TRACE", "get", "PROPFIND", "")] == [
        True
    ] * 3 + [False] * 5


def faults(**changes):
    rules = changes.pop("rules", RULES)
    with pytest.raises(Refused) as refused:
        read_spec(make_spec(**{"session": SESSION, "deadline_seconds": 3600} | changes), rules)
    return sorted((fault.field, fault.code) for fault in refused.value.faults)


def test_a_session_is_read_and_written():
    spec = read_spec(make_spec(session=SESSION, deadline_seconds=3600), RULES)
    assert spec.session == Session(8888, 1800)
    assert spec_json(spec)["session"] == SESSION
    assert read_spec(spec_json(spec), RULES) == spec
    assert "session" not in spec_json(read_spec(make_spec(session=None), Rules()))


def test_a_session_is_one_pod_with_a_port_a_deadline_and_an_end_of_idleness():
    assert faults(session={}) == [("session.idle_seconds", "required"), ("session.port", "required")]
    assert faults(session={**SESSION, "host": "x"}) == [("session.host", "unknown_field")]
    assert faults(session=[]) == [("session", "wrong_type")]
    for field, value, code in (
        ("port", 1023, "out_of_range"), ("port", 65536, "out_of_range"), ("port", "8888", "wrong_type"), ("port", True, "wrong_type"),
        ("idle_seconds", 299, "out_of_range"), ("idle_seconds", 86_401, "out_of_range"), ("idle_seconds", 600.0, "wrong_type"),
    ):  # fmt: skip
        assert faults(session={**SESSION, field: value}) == [(f"session.{field}", code)]
    assert faults(deadline_seconds=None) == [("deadline_seconds", "required")]
    assert faults(deadline_seconds=7 * 86_400 + 1) == [("deadline_seconds", "out_of_range")]
    assert faults(pod={"count": 2}) == [("pod_sets[0].count", "not_allowed")]
    assert faults(completions=1) == [("completions", "not_allowed")]
    assert faults(pod_sets=[make_spec()["pod_sets"][0] | {"name": name} for name in "ab"]) == [
        ("pod_sets", "not_allowed")
    ]
    assert faults(rules=Rules()) == [("session", "not_allowed")]
    for port, idle in ((1024, 300), (65_535, 86_400)):
        spec = read_spec(make_spec(session={"port": port, "idle_seconds": idle}, deadline_seconds=7 * 86_400), RULES)
        assert spec.session == Session(port, idle)

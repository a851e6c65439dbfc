"""Who calls, as the application is told; and how often they may."""

import hashlib
from typing import Any

import pytest

from tests.builders import make_token, make_user

from .conftest import STRANGER, running

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]
PROXY = "127.0.0.9"
"""`one_edge` trusts this one."""
SAID = {"X_Forwarded_For": "203.0.113.9", "X_Forwarded_Proto": "https", "Forwarded": "for=203.0.113.8;proto=https"}


def told(edge, source, **headers):
    seen = edge.ask("/test/echo", source=source, **headers).json()
    return seen["REMOTE_ADDR"], seen["wsgi.url_scheme"]


def test_only_a_trusted_proxy_is_believed_about_who_calls(edge):
    assert told(edge, STRANGER, **SAID) == (STRANGER, "http")
    assert told(edge, "127.0.0.1", **SAID) == ("127.0.0.1", "http"), "loopback is nobody special"
    assert told(edge, PROXY, **SAID) == ("203.0.113.9", "https")
    assert told(edge, PROXY, X_Forwarded_For="192.0.2.1, 203.0.113.9") == ("203.0.113.9", "http")
    assert told(edge, PROXY, X_Forwarded_For="192.0.2.1, nonsense") == (PROXY, "http")


def test_strangers_are_slowed_down_and_whoever_has_a_good_token_is_not(django_db_setup, tmp_path):
    user = make_user()
    secret = make_token(user)
    good: dict[str, Any] = {"Authorization": f"Bearer {secret}"}
    with running(tmp_path, SWITCHYARD_STRANGER_REQUESTS="2", SWITCHYARD_TRUSTED_PROXIES=PROXY) as edge:
        assert edge.ask("/api/v1/me", **good).status == 200
        answers = [
            edge.ask("/api/v1/me", Authorization=f"Bearer swy_{hashlib.sha256(b'%d' % n).hexdigest()}")
            for n in range(40)
        ]
        refused = [answer for answer in answers if answer.status == 429]
        assert len(refused) > 20
        assert {answer.status for answer in answers} == {401, 429}
        assert refused[0].json()["code"] == "rate_limited"
        assert 1 <= int(refused[0].headers["retry-after"]) <= 5
        assert [edge.ask("/api/v1/me", **good).status for _ in range(20)] == [200] * 20
        assert 429 in [edge.ask("/login/").status for _ in range(30)]
        assert edge.ask("/login/", source=STRANGER).status == 200
        for client in ("203.0.113.1", "203.0.113.2"):
            passed = [edge.ask("/login/", source=PROXY, X_Forwarded_For=client).status for _ in range(12)]
            assert passed.count(200) >= 10, "each client of a trusted proxy has limits of its own"
        assert edge.ask("/healthz", port=edge.health_port).status == 200


def test_a_token_has_a_limit_and_so_has_a_source(django_db_setup, tmp_path):
    first, second = (make_token(make_user(f"p{n}@example.org")) for n in range(2))
    with running(tmp_path, SWITCHYARD_CREDENTIAL_REQUESTS="2", SWITCHYARD_SOURCE_REQUESTS="8") as edge:
        statuses = [edge.ask("/api/v1/me", Authorization=f"Bearer {first}").status for _ in range(25)]
        assert statuses[:10] == [200] * 10
        assert 429 in statuses
        assert edge.ask("/api/v1/me", Authorization=f"Bearer {second}").status == 200
        by_source = [edge.ask("/test/echo").status for _ in range(60)]
        assert 429 in by_source
        assert edge.ask("/test/echo", source=STRANGER).status == 200

"""Hooks' URLs and tokens, read from the environment, and their answers."""

from dataclasses import replace

import pytest
from django.core.exceptions import ImproperlyConfigured

from clusters.engine.hook_servers import read_hook_url
from config import environment
from federation.engine.intake.normal_form import spec_json
from federation.engine.intake.policy_hooks import (
    HookFailed,
    PolicyRefused,
    PolicyUnavailable,
    Question,
    changed_fields,
    check_token,
    read_answer,
    refusal,
)
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from tests.apiserver import make_certificate
from tests.builders import make_spec


@pytest.mark.parametrize(
    ("text", "url", "is_plain"),
    [
        ("https://policy.example.com", "https://policy.example.com", False),
        ("https://policy.example.com:8443/a/b/", "https://policy.example.com:8443/a/b", False),
        ("http://127.0.0.1:8181/review", "https://127.0.0.1:8181/review", True),
        ("http://[::1]:80", "https://[::1]:80", True),
    ],
)
def test_a_url_is_read(text, url, is_plain):
    hook = read_hook_url(text)
    assert (hook.server.url, hook.is_plain) == (url, is_plain)


@pytest.mark.parametrize(
    "text",
    [
        "http://policy.example.com/review",
        "http://[::1]",
        "http://user:secret@127.0.0.1:80/",
        "https://user:canary@policy.example.com/",
        "https://policy.example.com/?token=canary",
        "https://policy.example.com/a/../b",
        "https://0x7f.1/",
        "https://127.1/",
        "ftp://policy.example.com",
        "file:///etc/passwd",
        "unix:/run/hook.sock",
        "policy.example.com",
        "https://",
        "https://pölicy.example.com/",
    ],
)
def test_any_other_url_stops_the_boot_and_is_not_repeated(monkeypatch, text):
    monkeypatch.setenv("SWITCHYARD_POLICY_URL", text)
    with pytest.raises(ImproperlyConfigured, match=r"^SWITCHYARD_POLICY_URL: ") as stopped:
        environment.checked("SWITCHYARD_POLICY_URL", "", read_hook_url)
    assert "canary" not in str(stopped.value)


@pytest.mark.parametrize("text", ["two words", "a\nX-Other: 1", "é", "x" * 4097])
def test_a_token_that_fits_no_header_stops_the_boot_and_is_not_repeated(monkeypatch, text):
    monkeypatch.setenv("SWITCHYARD_POLICY_TOKEN", text)
    with pytest.raises(ImproperlyConfigured, match=r"^SWITCHYARD_POLICY_TOKEN: must be at most 4096 printable"):
        environment.checked("SWITCHYARD_POLICY_TOKEN", "", check_token)


def test_a_token_comes_from_its_file_without_the_newline_at_its_end(monkeypatch, tmp_path):
    (tmp_path / "token").write_text("abc\n")
    monkeypatch.setenv("SWITCHYARD_POLICY_TOKEN_FILE", str(tmp_path / "token"))
    assert environment.checked("SWITCHYARD_POLICY_TOKEN", "", check_token) == "abc"


@pytest.mark.parametrize(
    "text", ["nonsense", "é", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", make_certificate("a")[1]]
)
def test_authorities_that_are_none_stop_the_boot(monkeypatch, text):
    monkeypatch.setenv("SWITCHYARD_POLICY_CA", text)
    with pytest.raises(ImproperlyConfigured, match=r"^SWITCHYARD_POLICY_CA: must contain certificates in PEM form$"):
        environment.checked("SWITCHYARD_POLICY_CA", "", environment.check_authorities)


def test_authorities_are_taken_as_they_are(monkeypatch):
    pem, _ = make_certificate("a")
    monkeypatch.setenv("SWITCHYARD_POLICY_CA", pem)
    assert environment.checked("SWITCHYARD_POLICY_CA", "", environment.check_authorities) == pem.strip()


@pytest.mark.parametrize(
    ("answer", "changes"),
    [
        ({"allow": True}, {}),
        ({"allow": True, "message": "fine", "changes": None}, {}),
        ({"allow": True, "changes": {"name": "other"}}, {"name": "other"}),
    ],
)
def test_an_answer_allows_and_may_change(answer, changes):
    assert read_answer(answer) == changes


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ([], "not an object"),
        ({}, "no `allow`"),
        ({"allow": 1}, "no `allow`"),
        ({"allow": "true"}, "no `allow`"),
        ({"allow": True, "more": 1}, "fields besides"),
        ({"allow": True, "changes": []}, "`changes` is not an object"),
    ],
)
def test_what_is_no_answer_fails(answer, told):
    with pytest.raises(HookFailed, match=told):
        read_answer(answer)


def test_a_refusal_counts_whatever_else_the_answer_holds():
    with pytest.raises(PolicyRefused) as caught:
        read_answer({"allow": False, "message": "too\nlarge ", "more": 1})
    assert (caught.value.status, caught.value.code, caught.value.detail) == (422, "policy_refused", "too large")


def test_a_hook_is_asked_with_the_job_and_who_submits_it():
    spec = read_spec(make_spec(name="train"), Rules())
    asked = Question("acme/ml", "ada@example.org", "r-1", spec)
    assert asked.body() == {
        "version": 1, "tenant": "acme/ml", "user": "ada@example.org", "request_id": "r-1", "dry_run": False,
        "spec": spec_json(spec),
    }  # fmt: skip
    assert replace(asked, is_dry_run=True).asker["dry_run"] is True


def test_the_fields_that_a_hook_changed_are_named():
    before = read_spec(make_spec(name="train", labels={"a": "1"}), Rules())
    assert changed_fields(before, before) == ()
    after = read_spec(make_spec(name="other", labels={"a": "2"}, strategy="pack"), Rules())
    assert changed_fields(before, after) == ("labels", "name", "strategy")


def test_a_refusal_says_at_most_300_characters():
    assert refusal("\t".join("x" * 400)).detail == "x " * 150
    assert refusal(7).detail == refusal("").detail
    assert (PolicyUnavailable().status, PolicyUnavailable().code) == (503, "policy_unavailable")

"""Reading kubeconfigs: what is accepted, and that nothing but a refusal or a connection ever comes out."""

import base64
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.engine.kubeconfig import read_kubeconfig
from foundation.problems import Invalid
from tests.apiserver import make_certificate

CERTIFICATE, KEY = make_certificate("client")
AUTHORITY, _ = make_certificate("authority")


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def config(user, **clusters):
    listed = clusters or {"c": "https://k8s.example:6443"}
    lines = ["apiVersion: v1", "kind: Config", "preferences: {}", "clusters:"]
    for name, server in listed.items():
        lines += [
            f"- name: {name}",
            "  cluster:",
            f"    server: {server}",
            f"    certificate-authority-data: {encoded(AUTHORITY)}",
        ]
    lines += ["users:", "- name: u", f"  user: {user}", "contexts:"]
    for name in listed:
        lines += [f"- name: at-{name}", f"  context: {{cluster: {name}, user: u, namespace: default}}"]
    return "\n".join([*lines, f"current-context: at-{next(iter(listed))}"])


def test_a_token_is_read():
    connection = read_kubeconfig(config("{token: abc.def}"))
    assert connection.server.url == "https://k8s.example:6443"
    assert connection.ca_pem == AUTHORITY
    assert (connection.secret.kind, connection.secret.value) == ("token", b"abc.def")


def test_a_token_of_digits_stays_text():
    assert read_kubeconfig(config("{token: 0123}")).secret.value == b"0123"


def test_a_client_certificate_is_read_with_its_key():
    user = f"{{client-certificate-data: {encoded(CERTIFICATE)}, client-key-data: {encoded(KEY)}}}"
    secret = read_kubeconfig(config(user)).secret
    assert secret.kind == "certificate"
    assert secret.value.decode() == CERTIFICATE + KEY


def test_the_current_context_chooses():
    text = config("{token: t}", east="https://east.example", west="https://west.example")
    assert read_kubeconfig(text).server.host == "east.example"
    assert (
        read_kubeconfig(text.replace("current-context: at-east", "current-context: at-west")).server.host
        == "west.example"
    )


def test_a_secret_is_not_shown_by_repr():
    assert "abc.def" not in repr(read_kubeconfig(config("{token: abc.def}")))


def test_refusals_name_the_path_and_never_the_value():
    with pytest.raises(Invalid) as caught:
        read_kubeconfig(config("{token: [canary]}"))
    assert caught.value.errors[0].field == "kubeconfig.users[0].user.token"
    assert "canary" not in str(caught.value)


@given(st.text(max_size=300))
def test_any_text_is_refused_politely(text):
    with pytest.raises(Invalid):
        read_kubeconfig(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=8) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["name", "user", "exec", "token", "x"]), inner, max_size=3)
        ),
        max_leaves=10,
    )
)
def test_any_user_entry_is_read_or_refused_politely(value):
    try:
        read_kubeconfig(config(json.dumps(value)))
    except Invalid as refusal:
        assert refusal.errors[0].field.startswith("kubeconfig")  # noqa: PT017 - either way is fine, but only these two


@pytest.mark.parametrize(
    "text",
    [
        "x: " + "1:" * 120_000 + "1",
        "x: " + "9" * 250_000,
        "[" * 250_000,
        "'" + "a\n" * 120_000 + "'",
        "? " * 100_000,
        "#" * 262_000,
    ],
    ids=["sexagesimal", "digits", "brackets", "folded", "keys", "comment"],
)
def test_hostile_text_costs_little_time(text):
    before = time.process_time()
    with pytest.raises(Invalid):
        read_kubeconfig(text)
    assert time.process_time() - before < 10

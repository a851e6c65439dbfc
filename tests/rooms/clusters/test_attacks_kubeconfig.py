"""Attacks 1 to 5 and 10 of the catalogue, which a kubeconfig can carry.

Every refusal is a 4xx with a stable code and the field's name, leaves no row, echoes no secret, and is audited.
"""

import base64
import subprocess

import pytest

from .refused import assert_refused, kubeconfig

pytestmark = pytest.mark.django_db


@pytest.fixture
def nothing_runs_or_is_read(monkeypatch, tmp_path):
    """Programs that would be started and files that would be read are told apart from everything else that goes on."""
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: started.append(a))
    monkeypatch.setattr("os.system", lambda *a: started.append(a))
    trap = tmp_path / "trap"
    trap.write_text("file-content-as-token")
    yield trap
    assert started == []


def test_attack_01_exec_is_refused_and_nothing_is_spawned(register, nothing_runs_or_is_read, tmp_path):
    evidence = tmp_path / "ran"
    text = kubeconfig(
        user=f"exec:\n  apiVersion: client.authentication.k8s.io/v1\n  command: touch\n  args: [{evidence}]"
    )
    assert_refused(register({"name": "east", "kubeconfig": text}), "kubeconfig.users[0].user.exec", "not_allowed")
    assert not evidence.exists()


def test_attack_01_exec_in_a_user_that_is_not_chosen_is_refused_too(register):
    text = kubeconfig(extra="").replace("contexts:", "- name: other\n  user: {exec: {command: id}}\ncontexts:")
    assert_refused(register({"name": "east", "kubeconfig": text}), "kubeconfig.users[1].user.exec")


@pytest.mark.parametrize(
    "provider",
    [
        "auth-provider:\n  name: gcp\n  config: {cmd-path: /bin/touch, cmd-args: /tmp/ran}",
        "auth-provider:\n  name: oidc\n  config: {idp-issuer-url: https://169.254.169.254/}",
    ],
    ids=["attack_02_gcp_command", "attack_03_oidc_issuer"],
)
def test_attacks_02_and_03_identity_providers_are_refused(register, provider, nothing_runs_or_is_read):
    text = kubeconfig(user=provider)
    assert_refused(
        register({"name": "east", "kubeconfig": text}), "kubeconfig.users[0].user.auth-provider", "not_allowed"
    )


@pytest.mark.parametrize("key", ["tokenFile", "client-certificate", "client-key"])
def test_attack_04_files_are_not_read_for_a_credential(register, key, nothing_runs_or_is_read):
    text = kubeconfig(user=f"{key}: {nothing_runs_or_is_read}")
    answer = register({"name": "east", "kubeconfig": text})
    assert_refused(answer, f"kubeconfig.users[0].user.{key}", "not_allowed")
    assert "file-content-as-token" not in answer.content.decode()


def test_attack_04_files_are_not_read_for_an_authority(register, nothing_runs_or_is_read):
    text = kubeconfig(cluster=f"certificate-authority: {nothing_runs_or_is_read}")
    assert_refused(
        register({"name": "east", "kubeconfig": text}), "kubeconfig.clusters[0].cluster.certificate-authority"
    )


@pytest.mark.parametrize(
    "line",
    [
        "insecure-skip-tls-verify: true",
        "insecure-skip-tls-verify: false",
        "tls-server-name: good.example",
        "proxy-url: http://203.0.113.66:3128",
        "disable-compression: true",
        "extensions: []",
    ],
)
def test_attack_05_ways_around_tls_are_refused(register, line):
    key = line.partition(":")[0]
    answer = register({"name": "east", "kubeconfig": kubeconfig(cluster=line)})
    assert_refused(answer, f"kubeconfig.clusters[0].cluster.{key}")


@pytest.mark.parametrize(
    ("user", "key"),
    [
        ("username: root\npassword: canary-token-9f4c1b7e", "username"),
        ("token: t\nas: system:admin", "as"),
        ("token: t\nas-groups: [system:masters]", "as-groups"),
    ],
)
def test_attack_05_basic_authentication_and_impersonation_are_refused(register, user, key):
    answer = register({"name": "east", "kubeconfig": kubeconfig(user=user)})
    assert_refused(answer, f"kubeconfig.users[0].user.{key}", "not_allowed")


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(8)
)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (BOMB, "yaml_alias"),
        ("a: &a {b: *a}", "yaml_alias"),
        ("- &x 1", "yaml_alias"),
        ("a: !!python/object/apply:os.system [id]", "yaml_tag"),
        ("a: !!python/name:os.system", "yaml_tag"),
        ("a: !custom 1", "yaml_tag"),
        ("a: !!binary aGk=", "yaml_tag"),
        (kubeconfig(user="token: a\ntoken: b"), "bad_yaml"),
        (kubeconfig(extra="clusters: []\n"), "bad_yaml"),
        ("a: b\n---\nc: d\n", "too_deep_or_large"),
        ("[" * 5_000, "too_deep_or_large"),
        ("- " * 5_000, "too_deep_or_large"),
        ("x" * 5_000_000, "too_long"),
        ("{", "bad_yaml"),
        ("\x07", "bad_yaml"),
        ("just text", "wrong_type"),
        ("? [a, b]\n: c", "bad_yaml"),
    ],
    ids=range(17),
)
def test_attack_10_yaml_tricks_are_refused(register, text, code):
    assert_refused(register({"name": "east", "kubeconfig": text}), "kubeconfig", code)


def test_attack_10_unknown_keys_and_wrong_types_are_named_by_path(register):
    cases = [
        (kubeconfig(extra="plugins: {}\n"), "kubeconfig.plugins"),
        (kubeconfig(extra="preferences: {colors: true}\n"), "kubeconfig.preferences"),
        (kubeconfig(extra="<<: {a: b}\n"), "kubeconfig.(key)"),
        (kubeconfig(user="token: [a]"), "kubeconfig.users[0].user.token"),
        (
            kubeconfig(user="client-key-data: '%%%'\nclient-certificate-data: ''"),
            "kubeconfig.users[0].user.client-key-data",
        ),
        (kubeconfig(user="{}"), "kubeconfig.users[0].user.token"),
        (kubeconfig().replace("current-context: x", "current-context: y"), "kubeconfig.current-context"),
        (kubeconfig().replace("user: u}", "user: nobody}"), "kubeconfig.contexts"),
        (kubeconfig().replace("kind: Config", "kind: Secret"), "kubeconfig"),
    ]
    for text, field in cases:
        assert_refused(register({"name": "east", "kubeconfig": text}), field)


def test_a_plain_kubeconfig_registers(register, api):
    authority = base64.b64encode(api.ca_pem.encode()).decode()
    text = kubeconfig(server=api.server, cluster=f"certificate-authority-data: {authority}", user=f"token: {api.token}")
    answer = register({"name": "east", "kubeconfig": text, "region": "eu-1"})
    assert answer.status_code == 201, answer.content

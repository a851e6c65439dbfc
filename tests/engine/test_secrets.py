"""Secrets as jobs name them, as they are sealed, and as their pods get them."""

import base64
import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from clusters.engine.sealing import CannotUnseal, KeyRing, Sealed, seal, seal_bound, unseal, unseal_bound
from clusters.engine.secrets import (
    MOST_BYTES,
    BadValue,
    KnownSecret,
    binding_of,
    is_registry,
    keyring_of,
    meant_secret,
    pull_config,
    value_of,
)
from federation.engine.intake.normal_form import request_of, shape_of, spec_json
from federation.engine.intake.reading import Refused
from federation.engine.intake.spec import MAX_SECRETS, Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.objects.job_secrets import (
    lay_report,
    lay_secrets,
    secret_manifests,
    secret_name,
    versions_of,
)
from federation.engine.objects.rendering import Devices, render_job
from tests.builders import make_spec
from tests.engine.test_rendering import identity
from tests.pod_security import violations

RING = KeyRing("k", {"k": b"k" * 32, "old": b"o" * 32})
TENANT, TOKEN, PULL = uuid4(), uuid4(), uuid4()
USES = [{"secret": "token", "env": "TOKEN"}, {"secret": "token", "file": "/run/secrets/token"}]


def stored(**pod):
    return spec_json(read_spec(make_spec(pod=pod), Rules()))


@pytest.mark.parametrize(
    ("pod", "field", "code"),
    [
        ({"secrets": [{"secret": "a"}]}, "secrets[0].env", "required"),
        ({"secrets": [{"secret": "a", "env": "A", "file": "/a"}]}, "secrets[0].env", "conflict"),
        ({"secrets": [{"env": "A"}]}, "secrets[0].secret", "required"),
        ({"secrets": [{"secret": "A b", "env": "A"}]}, "secrets[0].secret", "bad_format"),
        ({"secrets": [{"secret": "../a", "env": "A"}]}, "secrets[0].secret", "bad_format"),
        ({"secrets": [{"secret": "a", "env": "1A"}]}, "secrets[0].env", "bad_format"),
        ({"secrets": [{"secret": "a", "env": "LD_PRELOAD"}]}, "secrets[0].env", "not_allowed"),
        ({"secrets": [{"secret": "a", "env": "SWITCHYARD_TENANT"}]}, "secrets[0].env", "not_allowed"),
        ({"secrets": [{"secret": "a", "env": "A"}], "env": {"A": "1"}}, "secrets[0].env", "duplicate"),
        ({"secrets": [{"secret": "a", "env": "A"}, {"secret": "b", "env": "A"}]}, "secrets[1].env", "duplicate"),
        ({"secrets": [{"secret": "a", "file": "a"}]}, "secrets[0].file", "bad_format"),
        ({"secrets": [{"secret": "a", "file": "/a/../b"}]}, "secrets[0].file", "bad_format"),
        ({"secrets": [{"secret": "a", "file": "/a\x00"}]}, "secrets[0].file", "bad_characters"),
        ({"secrets": [{"secret": "a", "file": "/etc/passwd"}]}, "secrets[0].file", "not_allowed"),
        ({"secrets": [{"secret": "a", "file": "/run/secrets"}]}, "secrets[0].file", "not_allowed"),
        ({"secrets": [{"secret": "a", "file": "/run/other"}]}, "secrets[0].file", "not_allowed"),
        ({"secrets": [{"secret": "a", "file": "/x"}, {"secret": "b", "file": "/x/y"}]}, "secrets[1].file", "duplicate"),
        (
            {"secrets": [{"secret": "a", "file": "/data/x"}], "mounts": [{"storage": "s", "path": "/data"}]},
            "secrets[0].file", "duplicate",
        ),
        ({"secrets": [{"secret": "a", "env": f"A{n}"} for n in range(MAX_SECRETS + 1)]}, "secrets", "too_many"),
        ({"secrets": [{"secret": "a", "env": "A", "value": "x"}]}, "secrets[0].value", "unknown_field"),
        ({"pull_secret": "A"}, "pull_secret", "bad_format"),
        ({"pull_secret": 7}, "pull_secret", "wrong_type"),
    ],
)  # fmt: skip
def test_a_bad_use_is_refused_by_its_field(pod, field, code):
    with pytest.raises(Refused) as refused:
        read_spec(make_spec(pod=pod), Rules())
    assert [(fault.field, fault.code) for fault in refused.value.faults] == [(f"pod_sets[0].{field}", code)]


def test_a_stored_spec_names_secrets_and_is_read_again_as_it_was():
    spec = read_spec(make_spec(pod={"secrets": USES, "pull_secret": "registry"}), Rules())
    [pod] = spec_json(spec)["pod_sets"]
    assert (pod["secrets"], pod["pull_secret"]) == (USES, "registry")
    assert read_spec(spec_json(spec), Rules()) == spec
    assert not {"secrets", "pull_secret"} & set(stored()["pod_sets"][0])


def test_placement_sees_the_names_and_kinds_alone():
    spec = stored(secrets=USES, pull_secret="registry")
    request = request_of(spec, job_id=TENANT, tenant_path="acme", shape="")
    assert request.constraints.secrets == (("registry", "registry"), ("token", "value"))
    shapes = {shape_of(one) for one in (spec, stored(), stored(secrets=USES), stored(pull_secret="registry"))}
    assert len(shapes) == 4
    assert shape_of(stored(secrets=USES[:1])) == shape_of(stored(secrets=USES[1:]))


def test_a_job_means_its_own_tenants_secret_and_else_the_nearest_above():
    known = keyring_of(
        KnownSecret(uuid4(), path, "s", kind, version)
        for version, (path, kind) in enumerate(
            [("a", "value"), ("a/b", "value"), ("a/b/c", "registry"), ("x", "value")]
        )
    )
    means = {
        path: meant_secret(known, path, "s", "value") for path in ("a", "a/b", "a/bb", "a/b/d/e", "a/b/c/d", "x/y", "z")
    }
    assert {path: found.version if found else None for path, found in means.items()} == {
        "a": 0, "a/b": 1, "a/bb": 0, "a/b/d/e": 1, "a/b/c/d": None, "x/y": 3, "z": None,
    }  # fmt: skip
    assert meant_secret(known, "a", "other", "value") is None


def test_a_seal_opens_only_for_its_row_its_version_and_its_purpose():
    binding = binding_of(TOKEN, TENANT, "token", 1)
    sealed = seal_bound(RING, binding, b"canary")
    assert unseal_bound(RING, binding, sealed) == b"canary"
    assert b"canary" not in sealed.box
    others = [
        binding_of(PULL, TENANT, "token", 1), binding_of(TOKEN, uuid4(), "token", 1), binding_of(TOKEN, TENANT, "tokens", 1),
        binding_of(TOKEN, TENANT, "token", 2), f"cluster credential|{TOKEN}",
    ]  # fmt: skip
    for other in others:
        with pytest.raises(CannotUnseal):
            unseal_bound(RING, other, sealed)
    for changed in (
        Sealed("old", sealed.box),
        Sealed("gone", sealed.box),
        Sealed("k", sealed.box[:-1]),
        Sealed("k", b""),
    ):
        with pytest.raises(CannotUnseal):
            unseal_bound(RING, binding, changed)
    with pytest.raises(CannotUnseal):
        unseal(RING, TOKEN, sealed)
    with pytest.raises(CannotUnseal):
        unseal_bound(RING, binding, seal(RING, TOKEN, b"credential"))


@pytest.mark.parametrize(("text", "is_good"), [("ghcr.io", True), ("registry.example:5000", True), ("r", True), ("", False), ("a/b", False), ("https://a", False), ("a:b", False), ("a\n", False), ("-a", False)])  # fmt: skip
def test_a_registry_is_given_by_its_name(text, is_good):
    assert is_registry(text) is is_good


def test_access_to_a_registry_is_written_as_kubelets_read_it():
    [(server, access)] = json.loads(pull_config("ghcr.io", "ada", "pä:ss"))["auths"].items()
    assert (server, access["username"], access["password"]) == ("ghcr.io", "ada", "pä:ss")
    assert base64.b64decode(access["auth"]).decode() == "ada:pä:ss"


PROMISED: dict[str, Any] = {
    "object": "swy-s-one",
    "uses": [
        {"secret": "token", "env": "TOKEN", "key": "s0", "id": str(TOKEN), "version": 3},
        {"secret": "token", "file": "/run/secrets/token", "key": "s0", "id": str(TOKEN), "version": 3},
    ],
    "pull": {"secret": "registry", "id": str(PULL), "version": 1, "object": "swy-s-two"},
}
VALUES = {(TOKEN, 3): b"canary", (PULL, 1): b"{}"}


def test_pods_refer_to_their_secrets_and_have_no_value():
    pod = render_job(stored(secrets=USES), 0, identity(), Devices())["spec"]["template"]["spec"]
    before = list(pod["containers"][0]["env"])
    lay_secrets(pod, PROMISED)
    [container] = pod["containers"]
    reference = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "swy-s-one", "key": "s0"}}}
    assert container["env"] == [*before, reference]
    assert container["volumeMounts"] == [
        {"name": "secrets", "mountPath": "/run/secrets/token", "subPath": "s0", "readOnly": True}
    ]
    assert pod["volumes"] == [{"name": "secrets", "secret": {"secretName": "swy-s-one", "defaultMode": 0o440}}]
    assert pod["imagePullSecrets"] == [{"name": "swy-s-two"}]
    assert violations(pod) == []


def test_a_pod_without_secrets_is_left_as_it_was():
    plain = render_job(stored(), 0, identity(), Devices())["spec"]["template"]["spec"]
    pod = json.loads(json.dumps(plain))
    lay_secrets(pod, {})
    assert pod == plain


def test_secrets_are_immutable_carry_our_labels_and_are_owned_by_their_job():
    whose = identity()
    one, two = secret_manifests(PROMISED, "swy-x", whose, ("swy-job", "uid-1"), VALUES)
    assert (one["type"], one["data"]) == ("Opaque", {"s0": base64.b64encode(b"canary").decode()})
    assert (two["type"], list(two["data"])) == ("kubernetes.io/dockerconfigjson", [".dockerconfigjson"])
    for manifest in (one, two):
        assert manifest["immutable"] is True
        assert manifest["metadata"]["labels"] == whose.labels
        assert manifest["metadata"]["namespace"] == "swy-x"
        assert manifest["metadata"]["ownerReferences"] == [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "swy-job", "uid": "uid-1"}
        ]
    assert secret_manifests({}, "swy-x", whose, ("swy-job", "uid-1"), {}) == []


def test_another_version_of_a_secret_is_never_sent_in_its_place():
    assert versions_of(PROMISED) == {(TOKEN, 3), (PULL, 1)}
    assert versions_of({}) == set()
    with pytest.raises(KeyError):
        secret_manifests(PROMISED, "swy-x", identity(), ("j", "u"), {(TOKEN, 4): b"newer", (PULL, 1): b"{}"})


def test_names_of_secrets_cannot_be_guessed_from_each_other():
    names = {secret_name(UUID(int=n)) for n in range(100)}
    assert len(names) == 100
    assert all(name.startswith("swy-s-") and len(name) <= 63 for name in names)


def test_all_secrets_of_a_pod_set_fit_into_one_of_kubernetes():
    assert MAX_SECRETS * MOST_BYTES <= 2**20


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "required"),
        ("\x00", "bad_characters"),
        ("a\x00b", "bad_characters"),
        ("a\ud800", "bad_characters"),
        ("a" * (MOST_BYTES + 1), "too_long"),
        ("é" * (MOST_BYTES // 2 + 1), "too_long"),
    ],
)
def test_a_text_that_cannot_be_a_secret_is_refused_with_its_code(text, code):
    with pytest.raises(BadValue) as refused:
        value_of(text)
    assert refused.value.code == code


def test_a_secret_is_its_text_in_utf_8_up_to_the_limit():
    assert value_of("é" * (MOST_BYTES // 2)) == "é".encode() * (MOST_BYTES // 2)
    assert value_of("a") == b"a"


def test_a_pod_that_may_report_gets_the_address_and_its_token():
    promised = {"report": {"object": "swy-r"}}
    pod: dict[str, Any] = {"containers": [{"env": [{"name": "A", "value": "1"}]}, {"env": []}]}
    lay_report(pod, promised, "https://here/report")
    mine: list[dict[str, Any]] = [
        {"name": "SWITCHYARD_REPORT_URL", "value": "https://here/report"},
        {
            "name": "SWITCHYARD_REPORT_TOKEN",
            "valueFrom": {"secretKeyRef": {"name": "swy-r", "key": "token"}},
        },
    ]
    assert [one["env"] for one in pod["containers"]] == [[{"name": "A", "value": "1"}, *mine], mine]
    for given, url in ((promised, ""), ({}, "https://here/report"), ({}, "")):
        pod = {"containers": [{"env": []}]}
        lay_report(pod, given, url)
        assert pod == {"containers": [{"env": []}]}


def test_the_token_for_reports_is_in_a_secret_only_if_there_is_one():
    [manifest] = secret_manifests({"report": {"object": "swy-r"}}, "swy-x", identity(), ("j", "u"), {}, b"t")
    assert manifest["metadata"]["name"] == "swy-r"
    assert (manifest["type"], manifest["data"]) == ("Opaque", {"token": base64.b64encode(b"t").decode()})
    assert secret_manifests({"report": {"object": "swy-r"}}, "swy-x", identity(), ("j", "u"), {}) == []


def test_a_secret_of_another_kind_nearer_by_hides_the_one_above():
    def known(path, kind="value", number=1):
        return KnownSecret(UUID(int=number), path, "token", kind, 1)

    own, above, root = known("acme/ml/vision", number=1), known("acme/ml", "registry", 2), known("acme", number=3)
    keyring = keyring_of([own, above, root])
    assert [meant_secret(keyring, path, "token", "value") for path in ("acme/ml/vision", "acme/ml/vision/x")] == [
        own,
        own,
    ]
    assert meant_secret(keyring, "acme/ml/other", "token", "value") is None
    assert meant_secret(keyring, "acme/ml/other", "token", "registry") == above
    assert [meant_secret(keyring, path, "token", "value") for path in ("acme", "acme/web")] == [root, root]
    assert meant_secret(keyring, "globex", "token", "value") is None
    assert meant_secret(keyring, "acme", "other", "value") is None

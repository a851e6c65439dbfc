"""A gang on a real control plane: its pods have names in one Service, which goes with its Jobs and is all that a thief gets."""

import asyncio
import time
from copy import deepcopy
from uuid import uuid4

import pytest

from clusters.drivers import AlreadyExists, NotThere
from clusters.drivers.kubernetes.driver import KubernetesDriver
from devtools.localfleet.admin import client
from federation.engine.intake.normal_form import spec_json
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.objects.meeting import gang_service
from federation.engine.objects.rendering import Devices, Identity, namespace_labels, render_job
from foundation.ids import new_id
from tests.contract.worlds import address_of, until

from .attacks import REMOVED, changed
from .conftest import gateway_token

pytestmark = pytest.mark.kube
POD = {"image": "registry.example/train:1", "cpu": "1", "memory": "1Gi"}
GANG = {
    "name": "train",
    "pod_sets": [{**POD, "name": "head", "shm": "128Mi"}, {**POD, "name": "worker", "count": 2}],
    "labels": {"sim.switchyard.dev/run-seconds": "600"},
}


@pytest.fixture(scope="module")
def plane(clusters):
    return clusters[0]


@pytest.fixture(scope="module")
def token(plane):
    return gateway_token(plane)


class Gang:
    """The Jobs and the Service of one attempt, made as the gateway makes them."""

    def __init__(self, driver, spec=GANG):
        self.driver = driver
        self.whose = Identity("test", uuid4(), f"acme/{uuid4().hex[:6]}", new_id(), new_id(), 1, "0" * 32)
        stored = spec_json(read_spec(spec, Rules(allow_simulation=True)))
        self.jobs = [render_job(stored, n, self.whose, Devices(), simulated=True) for n in range(2)]
        self.namespace, self.name = self.whose.namespace, self.jobs[0]["metadata"]["name"]
        self.uids = {}

    async def make(self):
        await self.driver.ensure_namespace(self.namespace, namespace_labels("test", str(self.whose.tenant_id)))
        self.uids = {job["metadata"]["name"]: await self.driver.create_job(job) for job in self.jobs}
        await self.driver.create_service(self.service())
        for name, uid in self.uids.items():
            await self.driver.release_job(self.namespace, name, uid, {})

    def service(self):
        return gang_service(self.namespace, self.whose.attempt_id, self.whose.labels, self.uids)


def used(plane, token, work, spec=GANG):
    """What `work(gang)` returns, with a gang that runs."""

    async def body():
        driver = KubernetesDriver(address_of(plane, token), "test")
        gang = Gang(driver, spec)
        try:
            await gang.make()
            return await work(gang)
        finally:
            await driver.close()

    return asyncio.run(body())


def selected(plane, gang):
    """The pods that the Service selects, and so gives a name as soon as they have an address."""
    with client(plane) as admin:
        spec = admin.get(f"/api/v1/namespaces/{gang.namespace}/services/{gang.name}").json()["spec"]
        assert spec["publishNotReadyAddresses"]
        selector = ",".join(f"{key}={value}" for key, value in spec["selector"].items())
        path = f"/api/v1/namespaces/{gang.namespace}/pods"
        found = admin.get(path, params={"labelSelector": selector}).json()["items"]
    return [pod for pod in found if pod["status"].get("podIP")]


def test_every_pod_of_a_gang_has_its_name_and_the_service_goes_with_its_jobs(plane, token):
    async def work(gang):
        async def all_have_addresses():
            found = await asyncio.to_thread(selected, plane, gang)
            return found if len(found) == 3 else None

        found = await until(all_have_addresses)
        seen = await gang.driver.get_service(gang.namespace, gang.name)
        with pytest.raises(AlreadyExists):
            await gang.driver.create_service(gang.service())
        first, second = gang.uids.items()
        await gang.driver.delete_job(gang.namespace, *first)
        await gang.driver.get_service(gang.namespace, gang.name)
        await gang.driver.delete_job(gang.namespace, *second)

        async def gone():
            try:
                await gang.driver.get_service(gang.namespace, gang.name)
            except NotThere:
                return True
            return False

        await until(gone)
        return gang, seen, found

    gang, seen, found = used(plane, token, work)
    assert seen.is_headless
    assert set(seen.owners) == set(gang.uids.values())
    names = [f"{name}-{index}" for name, count in zip(gang.uids, (1, 2), strict=True) for index in range(count)]
    assert sorted(pod["spec"]["hostname"] for pod in found) == sorted(names)
    for pod in found:
        spec, (container,) = pod["spec"], pod["spec"]["containers"]
        assert spec["subdomain"] == gang.name
        told = {each["name"]: each.get("value") for each in container["env"]}
        assert told["MASTER_ADDR"].startswith(f"{gang.name}-0.{gang.name}.{gang.namespace}.svc")
        lines = pod["metadata"]["annotations"]["switchyard.dev/hosts"].splitlines()
        rank = int(told["SWITCHYARD_FIRST_RANK"]) + int(
            pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
        )
        assert lines[rank] == f"{spec['hostname']}.{gang.name}.{gang.namespace}.svc"
        assert told.get("NODE_RANK", str(rank)) == str(rank)


ATTACKS = {
    "an address": ("spec", {"ports": [{"port": 80}], "selector": {"switchyard.dev/attempt": "a"}}),
    "a way in from outside": ("spec", {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {}}),
    "ports of the nodes": ("spec", {"type": "NodePort", "ports": [{"port": 80}], "selector": {}}),
    "a name outside": ("spec", {"type": "ExternalName", "externalName": "evil.example"}),
    "addresses of others": ("spec/externalIPs", ["192.0.2.1"]),
    "ports": ("spec/ports", [{"port": 443}]),
    "pods of others": ("spec/selector", {"app": "vault"}),
    "pods of another attempt": ("spec/selector", {"switchyard.dev/attempt": "another"}),
    "pods of the whole installation": ("spec/selector", {"switchyard.dev/install": "test"}),
    "endpoints of its own": ("spec/selector", REMOVED),
    "no owner": ("metadata/ownerReferences", REMOVED),
    "another owner": (
        "metadata/ownerReferences", [{"apiVersion": "v1", "kind": "Namespace", "name": "kube-system", "uid": "u"}],
    ),
    "annotations": ("metadata/annotations", {"external-dns.alpha.kubernetes.io/hostname": "evil.example"}),
    "labels of others": ("metadata/labels/app", "vault"),
    "a label too few": ("metadata/labels", {"switchyard.dev/attempt": "probe"}),
    "finalizers": ("metadata/finalizers", ["example.com/never"]),
    "another name": ("metadata/name", "kubernetes"),
}  # fmt: skip


def test_a_thief_makes_no_other_service_and_changes_and_deletes_none(plane, token):
    async def work(gang):
        return gang

    gang = used(plane, token, work)
    folder = f"/api/v1/namespaces/{gang.namespace}/services"
    fair = gang.service() | {"metadata": gang.service()["metadata"] | {"name": "swy-thief"}}
    with client(plane) as admin, client(plane, token) as thief:
        for what, attack in ATTACKS.items():
            made = changed(deepcopy(fair), *attack)
            assert admin.post(folder, params={"dryRun": "All"}, json=made).is_success, what
            answer = thief.post(folder, json=made)
            assert answer.status_code == 403, what
            assert "switchyard-makes-only-services-that-name-its-own-pods" in answer.json()["message"], what
        for where in ("default", "kube-system"):
            elsewhere = changed(fair, "metadata/namespace", where)
            assert thief.post(f"/api/v1/namespaces/{where}/services", json=elsewhere).status_code == 403
        for method, path in (
            ("DELETE", gang.name), ("PUT", gang.name), ("GET", ""), ("GET", f"{gang.name}/proxy"), ("GET", f"{gang.name}:80/proxy/"),
        ):  # fmt: skip
            body = gang.service() if method == "PUT" else None
            assert thief.request(method, f"{folder}/{path}", json=body).status_code == 403, (method, path)
        patch = thief.patch(
            f"{folder}/{gang.name}", json={"spec": {"externalIPs": ["192.0.2.1"]}},
            headers={"Content-Type": "application/merge-patch+json"},
        )  # fmt: skip
        assert patch.status_code == 403
        assert thief.post(folder, json=fair).status_code == 201, "what the gateway makes is let in"
        for name in gang.uids:
            path = f"/apis/batch/v1/namespaces/{gang.namespace}/jobs/{name}"
            admin.delete(path, params={"propagationPolicy": "Background"})
        deadline = time.monotonic() + 30
        while admin.get(f"{folder}/swy-thief").status_code != 404:
            assert time.monotonic() < deadline
            time.sleep(0.1)

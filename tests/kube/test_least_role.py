"""The published role is the least that works: take any one right away, and something that the gateway does fails."""

import asyncio
import contextlib

import pytest

from clusters.drivers import DriverError, PortRequest
from clusters.drivers.kubernetes.driver import KubernetesDriver
from clusters.engine.permissions import ROLE
from devtools.localfleet.admin import apply, client, mint_token
from tests.contract.manifests import GATE, gated, secret, wall
from tests.contract.test_devices import templates
from tests.contract.test_services import service
from tests.contract.worlds import INSTALL, WHOSE, address_of, fresh_name, slice_object

from .conftest import gateway_token
from .test_registration import eventually

pytestmark = pytest.mark.kube
NEEDED_FOR = {
    "create namespaces": "make a namespace",
    "get namespaces": "identity",
    "list nodes": "watch nodes",
    "watch nodes": "watch nodes",
    "list pods": "list pods",
    "watch pods": "watch pods",
    "patch pods": "open a gate",
    "get pods/log": "read a log",
    "get pods/portforward": "ask a pod",
    "create pods/portforward": "ask a pod",
    "create services": "make a service",
    "get services": "look at a service",
    "create secrets": "create a secret",
    "create jobs.batch": "create a job",
    "get jobs.batch": "look at a job",
    "list jobs.batch": "list jobs",
    "watch jobs.batch": "watch jobs",
    "patch jobs.batch": "release a job",
    "delete jobs.batch": "delete a job",
    "create networkpolicies.networking.k8s.io": "make a namespace",
    "patch networkpolicies.networking.k8s.io": "make a namespace",
    "list deviceclasses.resource.k8s.io": "see the device classes",
    "list resourceclaims.resource.k8s.io": "watch claims",
    "watch resourceclaims.resource.k8s.io": "watch claims",
    "list resourceslices.resource.k8s.io": "watch slices",
    "watch resourceslices.resource.k8s.io": "watch slices",
    "create resourceclaimtemplates.resource.k8s.io": "write a claim template",
    "patch resourceclaimtemplates.resource.k8s.io": "write a claim template",
}
MOST_THAT_FAIL = 2
WATCHED_SECONDS = 1.5
"""A list comes first; that the watch behind it is not allowed shows a moment later."""


def account_without(missing, name):
    """An account that has all of the published role but one right."""
    kept = sorted(ROLE - {missing})
    rules = [{"apiGroups": [r.group], "resources": [r.resource], "verbs": [r.verb]} for r in kept]
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    rbac = "rbac.authorization.k8s.io/v1"
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}
    yield {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    yield {
        "apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": name}, "roleRef": role, "subjects": [subject],
    }  # fmt: skip


class Run:
    """All that the gateway does on a cluster, one step after the other; notes which are forbidden, and goes on."""

    def __init__(self, driver):
        self.driver, self.forbidden, self.space = driver, set(), fresh_name("swy-least")

    async def step(self, name, awaitable):
        try:
            return await awaitable
        except DriverError as error:
            if error.status == 403:
                self.forbidden.add(name)
            return None

    async def watch(self, kind):
        stream = getattr(self.driver, f"watch_{kind}")()

        async def follow():
            async for _ in stream:
                pass

        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.step(f"watch {kind}", follow()), WATCHED_SECONDS)
        await stream.aclose()

    async def everything(self, again):
        driver, space, step = self.driver, self.space, self.step
        await step("identity", driver.identity())
        await step("make a namespace", driver.ensure_namespace(space, WHOSE, [wall(space)]))
        await step("know a namespace again", again.ensure_namespace(space, WHOSE))
        for template in templates(space, "least", 1):
            await step("write a claim template", driver.ensure_claim_template(template))
        uid = await step("create a job", driver.create_job(gated(space, GATE)))
        await step("create a secret", driver.create_secret(secret(space, "swy-s-least", ("train", uid or "none"))))
        await step("look at a job", driver.get_job(space, "train"))
        await step("make a service", driver.create_service(service(space, owners=[("train", uid or "none")])))
        await step("look at a service", driver.get_service(space, "swy-gang"))
        await step("release a job", driver.release_job(space, "train", uid or "", {}))
        for pod in await self.pods():
            await step("open a gate", driver.open_gate(space, pod.name, pod.uid, GATE))
            await step("read a log", driver.read_log(space, pod.name, tail_lines=1, limit_bytes=10))
            await step("ask a pod", driver.ask_pod(space, pod.name, 8888, PortRequest("GET", "/", [("Host", "x")])))
        await step("list jobs", driver.list_jobs())
        await step("see the device classes", driver.device_classes())
        await step("delete a job", driver.delete_job(space, "train", uid or ""))
        await asyncio.gather(*(self.watch(kind) for kind in ("nodes", "pods", "jobs", "slices", "claims")))

    async def pods(self):
        """One of the Job's pods, once there is any."""
        for _ in range(50):
            found = await self.step("list pods", self.driver.list_pods(self.space, "train")) or []
            if found or self.forbidden:
                return found[:1]
            await asyncio.sleep(0.1)
        return []


def failures_of(plane, token):
    async def body():
        one, other = (KubernetesDriver(address_of(plane, token), INSTALL) for _ in range(2))
        run = Run(one)
        try:
            await run.everything(other)
        finally:
            await one.close()
            await other.close()
        return run.forbidden

    return asyncio.run(body())


async def may_do_the_rest(plane, token, missing):
    """Whether the API server has taken notice of the account's role."""
    driver = KubernetesDriver(address_of(plane, token), INSTALL)
    try:
        return all([await driver.may(right) for right in sorted(ROLE - {missing})])
    finally:
        await driver.close()


@pytest.fixture(scope="module")
def plane(bare_clusters):
    apply(bare_clusters[0], [slice_object(fresh_name("least"))])
    return bare_clusters[0]


def test_the_whole_role_lets_the_gateway_do_all_that_it_does(plane):
    assert failures_of(plane, gateway_token(plane)) == set()


@pytest.mark.parametrize("missing", sorted(ROLE), ids=str)
def test_without_any_one_right_something_fails(plane, missing):
    name = fresh_name("least")
    apply(plane, account_without(missing, name))
    token = mint_token(plane, "default", name)
    try:
        eventually(lambda: asyncio.run(may_do_the_rest(plane, token, missing)))
        found = failures_of(plane, token)
        assert NEEDED_FOR[str(missing)] in found
        assert len(found) <= MOST_THAT_FAIL
    finally:
        with client(plane) as admin:
            admin.delete(f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}")

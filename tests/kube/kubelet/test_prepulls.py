"""Pulls of images on a real control plane with nodes that run pods, by the account with the published role."""

import asyncio
from datetime import timedelta
from uuid import uuid4

import pytest

from clusters.drivers import Refused
from clusters.drivers.kubernetes.driver import KubernetesDriver
from clusters.engine.secrets import pull_config
from devtools.localfleet.admin import client
from federation.engine.objects.isolation import namespace_policies
from federation.engine.objects.job_secrets import secret_name, versions_of
from federation.engine.objects.prepull_jobs import pull_hash, render_pull
from federation.engine.objects.rendering import Identity
from federation.engine.prepulls import Outcome
from federation.operations import preparation_calls, pull_calls
from federation.operations.preparation_calls import Gone, Made
from federation.operations.pull_calls import Pull
from foundation.ids import new_id
from tests.contract.worlds import INSTALL, address_of, until
from tests.kube.conftest import gateway_token

pytestmark = pytest.mark.kube
CANARY = "canary-7b21"
NODE = "cpu-1"


def promised():
    return {"pull": {"secret": "r", "id": str(uuid4()), "version": 1, "object": secret_name(new_id())}}


async def pull_of(driver, image, node=NODE, secrets=None):
    secrets = secrets or {}
    identity = Identity(INSTALL, uuid4(), "acme", new_id(), new_id(), 1, pull_hash(image))
    return Pull(
        image=image,
        node=node,
        identity=identity,
        cluster_identity=await driver.identity(),
        uid="",
        tolerations=(),
        promised=secrets,
        policies=namespace_policies(identity.namespace, INSTALL, ()),
        lasted=timedelta(minutes=2),
        values={version: pull_config("r.example", "ada", CANARY) for version in versions_of(secrets)},
    )


def with_uid(pull, uid):
    return Pull(**{name: getattr(pull, name) for name in Pull.__dataclass_fields__} | {"uid": uid})


def shown(plane, space):
    """Jobs, pods and Secrets of the namespace, as an administrator sees them."""
    with client(plane) as http:
        paths = [
            f"/apis/batch/v1/namespaces/{space}/jobs",
            *(f"/api/v1/namespaces/{space}/{kind}" for kind in ("pods", "secrets")),
        ]
        return [http.get(path).raise_for_status().json()["items"] for path in paths]


def at(plane, work):
    async def go():
        driver = KubernetesDriver(address_of(plane, gateway_token(plane)), INSTALL)
        try:
            return await work(driver)
        finally:
            await driver.close()

    return asyncio.run(go())


async def ended(driver, pull):
    async def over():
        found = (await pull_calls.read(driver, pull)).verdict
        return found if found.outcome else None

    return await until(over)


async def removed(driver, pull):
    async def over():
        return isinstance(await preparation_calls.remove(driver, pull), Gone)

    await until(over)


def test_an_image_is_pulled_on_its_node_nothing_of_it_runs_and_nothing_is_left(plane):
    async def work(driver):
        pull = await pull_of(driver, "python:3", secrets=promised())
        made = await preparation_calls.create(driver, pull)
        assert isinstance(made, Made), made
        again = await preparation_calls.create(driver, pull)
        assert again == made, "a repeated creation finds the same object"
        space = pull.namespace
        jobs, pods, secrets = await asyncio.to_thread(shown, plane, space)
        assert [(job["metadata"]["uid"], job["spec"]["suspend"]) for job in jobs] == [(made.uid, True)]
        assert (pods, secrets) == ([], [])
        pull = with_uid(pull, made.uid)
        assert isinstance(await preparation_calls.release(driver, pull), Made)
        assert isinstance(await preparation_calls.release(driver, pull), Made), "a repeated release changes nothing"
        found = await ended(driver, pull)
        assert found.outcome == Outcome.PULLED, found
        jobs, pods, secrets = await asyncio.to_thread(shown, plane, space)
        (pod,), (secret,) = pods, secrets
        assert pod["spec"]["nodeName"] == NODE
        state = pod["status"]["containerStatuses"][0]["state"]
        assert state["terminated"]["reason"] == "StartError", "the program of the image did not run"
        assert pod["spec"]["imagePullSecrets"] == [{"name": secret["metadata"]["name"]}]
        assert secret["metadata"]["ownerReferences"][0]["uid"] == made.uid
        await removed(driver, pull)

        async def all_gone():
            return await asyncio.to_thread(shown, plane, space) == [[], [], []]

        await until(all_gone)

    at(plane, work)


def test_an_image_that_cannot_be_pulled_fails_in_the_kubelets_words(plane):
    async def work(driver):
        pull = await pull_of(driver, "registry.example/missing:1")
        made = await preparation_calls.create(driver, pull)
        assert isinstance(made, Made), made
        pull = with_uid(pull, made.uid)
        await preparation_calls.release(driver, pull)
        found = await ended(driver, pull)
        assert found.outcome == Outcome.FAILED
        assert found.message.startswith(("ErrImagePull", "ImagePullBackOff"))
        await removed(driver, pull)

    at(plane, work)


def test_a_removal_without_the_uid_finds_what_a_lost_reply_left_and_spares_others(plane):
    async def work(driver):
        pull = await pull_of(driver, "python:3")
        await preparation_calls.create(driver, pull)
        labels = Identity(INSTALL, pull.identity.tenant_id, "acme", new_id(), pull.identity.attempt_id, 1, "0" * 32)
        stranger = Pull(**{name: getattr(pull, name) for name in Pull.__dataclass_fields__} | {"identity": labels})
        assert isinstance(await preparation_calls.remove(driver, stranger), Gone)
        assert len((await asyncio.to_thread(shown, plane, pull.namespace))[0]) == 1, "other labels: not its own"
        await removed(driver, pull)
        assert (await asyncio.to_thread(shown, plane, pull.namespace))[0] == []

    at(plane, work)


def test_attack_a_stolen_token_makes_no_pull_that_runs_or_runs_elsewhere(plane):
    async def work(driver):
        pull = await pull_of(driver, "python:3")
        await driver.ensure_namespace(pull.namespace, {"switchyard.dev/install": INSTALL, "switchyard.dev/tenant": "t"})
        for path, value in ((("nodeName",), NODE), (("hostPID",), True), (("serviceAccountName",), "default")):
            manifest = render_pull(pull.image, pull.node, pull.identity, (), {})
            manifest["spec"]["template"]["spec"][path[0]] = value
            with pytest.raises(Refused):
                await driver.create_job(manifest)
        manifest = render_pull(pull.image, pull.node, pull.identity, (), {})
        manifest["spec"]["suspend"] = False
        with pytest.raises(Refused):
            await driver.create_job(manifest)

    at(plane, work)

"""The Services of gangs: what every driver promises of them."""

import asyncio

import pytest

from clusters.drivers import AlreadyExists, NotThere, Refused

from .manifests import job
from .worlds import INSTALL, World, fresh_name, in_namespace, until

LABELS = {f"switchyard.dev/{what}": "contract" for what in ("tenant", "job", "spec-hash")}
NOBODY = ("gone", "00000000-0000-4000-8000-000000000000")


def service(namespace, name="swy-gang", owners=(NOBODY,), **spec):
    """A Service as the gateway makes it."""
    owned = [{"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": uid} for owner, uid in owners]
    labels = {**LABELS, "switchyard.dev/install": INSTALL, "switchyard.dev/attempt": name}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": owned},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"switchyard.dev/attempt": name},
            **spec,
        },
    }


async def gone(driver, namespace, name="swy-gang"):
    async def look():
        try:
            await driver.get_service(namespace, name)
        except NotThere:
            return True
        return False

    return await until(look)


def test_a_service_is_shown_as_it_was_made(world: World):
    async def use(driver, namespace):
        owner = ("train", await driver.create_job(job(namespace, "train")))
        await driver.create_service(service(namespace, owners=[owner]))
        return owner, namespace, await driver.get_service(namespace, "swy-gang")

    owner, namespace, seen = in_namespace(world, use)
    assert (seen.namespace, seen.name, seen.owners) == (namespace, "swy-gang", (owner[1],))
    assert seen.uid
    assert seen.selector == {"switchyard.dev/attempt": "swy-gang"}
    assert dict(seen.labels) == service(namespace)["metadata"]["labels"]
    assert seen.is_headless
    assert not seen.is_terminating


def test_a_second_service_of_the_same_name_is_refused_and_the_first_untouched(world: World):
    async def use(driver, namespace):
        owners = [(name, await driver.create_job(job(namespace, name))) for name in ("one", "two")]
        await driver.create_service(service(namespace, owners=owners[:1]))
        with pytest.raises(AlreadyExists):
            await driver.create_service(service(namespace, owners=owners[1:]))
        return owners, await driver.get_service(namespace, "swy-gang")

    owners, seen = in_namespace(world, use)
    assert seen.owners == (owners[0][1],)


def test_a_service_goes_when_the_last_of_the_jobs_that_own_it_goes(world: World):
    async def use(driver, namespace):
        owners = [(name, await driver.create_job(job(namespace, name))) for name in ("one", "two")]
        await driver.create_service(service(namespace, owners=owners))
        await driver.delete_job(namespace, *owners[0])
        between = await driver.get_service(namespace, "swy-gang")
        await driver.delete_job(namespace, *owners[1])
        await gone(driver, namespace)
        with pytest.raises(NotThere):
            await driver.delete_job(namespace, *owners[1])
        return between

    assert in_namespace(world, use).name == "swy-gang"


def test_a_service_that_is_created_after_its_jobs_have_gone_goes_too(world: World):
    async def use(driver, namespace):
        await driver.create_service(service(namespace))
        return await gone(driver, namespace)

    assert in_namespace(world, use)


def test_a_service_that_is_not_there_is_said_to_be_not_there(world: World):
    async def use(driver, namespace):
        with pytest.raises(NotThere):
            await driver.get_service(namespace, "nothing")
        with pytest.raises(NotThere):
            await driver.create_service(service(fresh_name("swy-absent")))
        for name in ("../../pods/x", "a/b", "", "A" * 300):
            with pytest.raises(NotThere):
                await driver.get_service(namespace, name)

    in_namespace(world, use)


def test_a_service_with_an_address_is_not_made(world: World):
    async def use(driver, namespace):
        made = service(namespace)
        del made["spec"]["clusterIP"]
        with pytest.raises(Refused) as refusal:
            await driver.create_service(made)
        assert not isinstance(refusal.value, (NotThere, AlreadyExists))

    in_namespace(world, use)


def test_many_creates_at_once_of_one_name_make_one_service(world: World):
    async def use(driver, namespace):
        owner = ("train", await driver.create_job(job(namespace, "train")))
        made = service(namespace, owners=[owner])
        return await asyncio.gather(*(driver.create_service(made) for _ in range(8)), return_exceptions=True)

    answers = in_namespace(world, use)
    assert answers.count(None) == 1
    assert sum(isinstance(answer, AlreadyExists) for answer in answers) == 7

"""What surrounds Jobs, as every driver promises: namespaces, network policies, and secrets."""

import asyncio
from contextlib import suppress

import pytest

from clusters.drivers import AlreadyExists, NotThere, Refused

from .manifests import WRONG_UID, job, mates, secret, wall
from .worlds import WHOSE, World, fresh_name, in_namespace, until


def test_a_namespace_may_be_asked_for_again_but_not_if_it_is_a_strangers(world: World):
    strange = fresh_name("swy-strange")
    world.make_foreign_namespace(strange)

    async def use(driver, namespace):
        await driver.ensure_namespace(namespace, WHOSE)
        with pytest.raises(Refused):
            await driver.ensure_namespace(strange, {})

    in_namespace(world, use)


def test_a_namespace_gets_its_policies_and_keeps_them_as_they_were_last_asked_for(world: World):
    name = fresh_name("swy-walled")

    async def use(driver, namespace):
        for block in ("1.0.0.0/8", "1.0.0.0/8", "8.0.0.0/8"):
            await driver.ensure_namespace(name, WHOSE, [wall(name, block), mates(name, "swy-two")])
        # one that was there before its policies were asked for
        await driver.ensure_namespace(namespace, WHOSE, [wall(namespace)])
        return namespace

    namespace = in_namespace(world, use)
    found = world.network_policies(name)
    assert set(found) == {"switchyard", "swy-two"}
    assert found["switchyard"]["spec"] == wall(name, "8.0.0.0/8")["spec"]
    assert set(world.network_policies(namespace)) == {"switchyard"}


def test_a_policy_goes_when_the_last_of_the_jobs_that_own_it_goes(world: World):
    async def use(driver, namespace):
        uids = [(name, await driver.create_job(job(namespace, name))) for name in ("one", "two")]
        await driver.put_network_policy(mates(namespace, "swy-gang", tuple(uids)))
        await driver.put_network_policy(mates(namespace, "swy-gang", tuple(uids)))
        await driver.put_network_policy(mates(namespace, "swy-free"))
        await driver.delete_job(namespace, *uids[0])
        between = await asyncio.to_thread(world.network_policies, namespace)
        await driver.delete_job(namespace, *uids[1])

        async def gone():
            left = await asyncio.to_thread(world.network_policies, namespace)
            return left if "swy-gang" not in left else None

        return between, await until(gone)

    between, after = in_namespace(world, use)
    assert set(between) == {"swy-gang", "swy-free"}
    assert set(after) == {"swy-free"}


def test_a_secret_is_created_once_and_goes_with_the_job_that_owns_it(world: World):
    async def use(driver, namespace):
        owner = "one", await driver.create_job(job(namespace, "one"))
        await driver.create_secret(secret(namespace, "swy-s-one", owner))
        with pytest.raises(AlreadyExists) as refused:
            await driver.create_secret(secret(namespace, "swy-s-one", owner))
        kept = await asyncio.to_thread(world.secrets, namespace)
        await driver.delete_job(namespace, *owner)
        await _gone(world, namespace)
        return kept, str(refused.value)

    kept, told = in_namespace(world, use)
    assert set(kept) == {"swy-s-one"}
    assert kept["swy-s-one"]["immutable"] is True
    assert "Y2FuYXJ5" not in told
    assert told.endswith("(status 409)")


def test_a_secret_that_arrives_after_its_job_is_gone_does_not_stay(world: World):
    async def use(driver, namespace):
        owner = "late", await driver.create_job(job(namespace, "late"))
        await driver.delete_job(namespace, *owner)
        with suppress(Refused):
            await driver.create_secret(secret(namespace, "swy-s-late", owner))
        await _gone(world, namespace)

    in_namespace(world, use)


def test_a_secret_in_a_namespace_that_does_not_exist_is_not_there(world: World):
    async def use(driver, namespace):
        with pytest.raises(NotThere):
            await driver.create_secret(secret(fresh_name("swy-absent"), "swy-s-one", ("one", WRONG_UID)))

    in_namespace(world, use)


async def _gone(world, namespace):
    async def none_left():
        return not await asyncio.to_thread(world.secrets, namespace)

    await until(none_left)


def test_a_policy_in_a_namespace_that_does_not_exist_is_not_there(world: World):
    async def use(driver, namespace):
        with pytest.raises(NotThere):
            await driver.put_network_policy(wall(fresh_name("swy-absent")))

    in_namespace(world, use)

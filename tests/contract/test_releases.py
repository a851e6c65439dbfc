"""A Job is released once: what was released before, and what others have suspended since, stays as it is."""

import asyncio

import pytest

from clusters.drivers import Stale

from .manifests import job
from .worlds import World, finished, in_namespace, until


def test_a_second_release_changes_nothing_and_says_so(world: World):
    async def use(driver, namespace):
        uid = await driver.create_job(job(namespace, "train", seconds="never"))
        terms = {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-1"]}]}]
        }
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        patch = {"spec": {"affinity": {"nodeAffinity": required}}}
        await driver.release_job(namespace, "train", uid, patch)
        for again in (patch, {}):
            with pytest.raises(Stale):
                await driver.release_job(namespace, "train", uid, again)

        async def running():
            return [pod for pod in await driver.list_pods(namespace, "train") if pod.phase == "Running"]

        pods = await until(running)
        await driver.delete_job(namespace, "train", uid)
        return pods

    pods = in_namespace(world, use)
    assert [pod.node for pod in pods] == ["gpu-1"]


def test_what_others_suspend_after_its_release_no_release_starts_again(world: World):
    async def use(driver, namespace):
        uid = await driver.create_job(job(namespace, "train", seconds="never"))
        created = await driver.get_job(namespace, "train")
        await driver.release_job(namespace, "train", uid, {})
        running = await driver.get_job(namespace, "train")
        await asyncio.to_thread(world.suspend, namespace, "train")
        # as a reply that was lost has it repeated, and as a request arrives that was under way for long
        for _ in range(2):
            with pytest.raises(Stale):
                await driver.release_job(namespace, "train", uid, {})
        suspended = await driver.get_job(namespace, "train")

        async def gone():
            return not await driver.list_pods(namespace, "train")

        await until(gone)
        await driver.delete_job(namespace, "train", uid)
        return [(found.suspended, found.is_as_created) for found in (created, running, suspended)]

    assert in_namespace(world, use) == [(True, True), (False, False), (True, False)]


def test_a_job_that_others_suspend_before_its_release_is_as_it_was_created(world: World):
    async def use(driver, namespace):
        uid = await driver.create_job(job(namespace, "train"))
        before = await driver.get_job(namespace, "train")
        await asyncio.to_thread(world.suspend, namespace, "train")
        unchanged = await driver.get_job(namespace, "train")
        assert unchanged.is_as_created, "it was suspended already"
        await driver.release_job(namespace, "train", uid, {})
        return before, await finished(driver, namespace, "train")

    before, after = in_namespace(world, use)
    assert (before.generation, after.generation) == (1, 2)

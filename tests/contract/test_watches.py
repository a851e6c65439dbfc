"""What every driver's watches promise, held against each of them."""

import asyncio

from .manifests import job
from .worlds import INSTALL, World, fresh_name, in_namespace, until, watching


def test_a_watch_lists_first_and_follows_a_job_to_its_end(world: World):
    name = fresh_name("train")  # a watch is of all namespaces, and other tests' Jobs may still end there

    async def use(driver, namespace):
        uid = await driver.create_job(job(namespace, name))
        async with watching(driver.watch_jobs()) as watcher:
            await watcher.find("listed", name)
            await driver.release_job(namespace, name, uid, {})
            ended = await watcher.find("changed", name, lambda found: found.outcome == "succeeded")
            await driver.delete_job(namespace, name, uid)
            gone = await watcher.find("deleted", name)
        return uid, watcher.events[0].kind, ended, gone

    uid, first, ended, gone = in_namespace(world, use)
    assert first == "listed"
    assert ended.uid == gone.uid == uid


def test_a_watch_of_pods_sees_ours_and_strangers(world: World):
    async def use(driver, namespace):
        async with watching(driver.watch_pods()) as watcher:
            await watcher.find("listed")
            for name, install, seconds in (("ours", INSTALL, "never"), ("theirs", None, "1")):
                made = job(namespace, name, install=install, seconds=seconds, suspend=False)
                await asyncio.to_thread(world.make_foreign_job, made)
                uid = (await driver.get_job(namespace, name)).uid

                async def pod(name=name):
                    return await driver.list_pods(namespace, name)

                (made,) = await until(pod)
                seen = await watcher.find("changed", made.name, lambda found: found.phase == "Running")
                assert seen.node
                assert seen.requests["memory"] == "64Mi"
                assert ("switchyard.dev/install" in seen.labels) == (install is not None)
                if install is None:
                    await watcher.find("changed", made.name, lambda found: found.phase == "Succeeded")
                else:
                    await driver.delete_job(namespace, name, uid)
                    await watcher.find("deleted", made.name)

    in_namespace(world, use)


def test_a_watch_of_nodes_sees_them_come_change_and_go(world: World):
    name = fresh_name("node")

    async def use(driver, namespace):
        async with watching(driver.watch_nodes()) as watcher:
            listed = await watcher.find("listed", "gpu-1")
            assert listed.allocatable["nvidia.com/gpu"] == "8"
            assert listed.is_ready
            assert listed.is_schedulable
            await asyncio.to_thread(world.add_node, name)
            await watcher.find("changed", name)
            await asyncio.to_thread(world.change_node, name)
            await watcher.find("changed", name, lambda node: node.labels.get("changed") == "yes")
            await asyncio.to_thread(world.drop_node, name)
            await watcher.find("deleted", name)

    in_namespace(world, use)


def test_two_watches_at_once_see_the_same(world: World):
    async def use(driver, namespace):
        async with watching(driver.watch_jobs()) as one, watching(driver.watch_jobs()) as two:
            await one.find("listed")
            await two.find("listed")
            await driver.create_job(job(namespace, "train"))
            assert (await one.find("changed", "train")).uid == (await two.find("changed", "train")).uid

    in_namespace(world, use)

"""What every driver promises of devices that are claimed, held against each of them."""

import asyncio

from clusters.engine.resource_slices import read_pool

from .test_driver import in_namespace
from .worlds import World, fresh_name, slice_object, watching


def test_a_watch_of_slices_sees_them_come_change_and_go(world: World):
    name = fresh_name("slice")

    async def use(driver, namespace):
        async with watching(driver.watch_slices()) as watcher:
            await watcher.find("listed")
            await asyncio.to_thread(world.publish, slice_object(name))
            seen = await watcher.find("changed", name)
            await asyncio.to_thread(world.publish, slice_object(name, devices=3, generation=2))
            grown = await watcher.find("changed", name, lambda found: found.generation == 2)
            await asyncio.to_thread(world.withdraw, name)
            await watcher.find("deleted", name)
            return seen, grown

    seen, grown = in_namespace(world, use)
    assert (seen.driver, seen.pool, seen.node, seen.slice_count) == ("gpu.nvidia.com", name, "gpu-1", 1)
    first = seen.devices[0]
    assert (first.name, first.memory, first.is_tainted, first.is_shared) == ("gpu-0", "81559Mi", False, False)
    assert first.attributes["productName"] == "NVIDIA H100 80GB HBM3"
    assert first.attributes["minor"] == "0"
    assert "pcieRoot" not in str(first.attributes)
    [units] = read_pool([grown]).offers["gpu-1"].values()
    assert units == 3


def test_a_list_of_slices_has_those_that_stand_already(world: World):
    name = fresh_name("slice")

    async def use(driver, namespace):
        await asyncio.to_thread(world.publish, slice_object(name))
        async with watching(driver.watch_slices()) as watcher:
            await watcher.find("listed", name)
        await asyncio.to_thread(world.withdraw, name)

    in_namespace(world, use)


def test_a_watch_of_claims_sees_what_strangers_were_allocated(world: World):
    name = fresh_name("claim")
    held = ("gpu.nvidia.com", "pool-of-nobody", "gpu-7")

    async def use(driver, namespace):
        async with watching(driver.watch_claims()) as watcher:
            await watcher.find("listed")
            await asyncio.to_thread(world.allocate_to_stranger, name, held)
            return await watcher.find("changed", name, lambda found: found.devices)

    seen = in_namespace(world, use)
    assert seen.devices == (held,)
    assert seen.namespace == "default"
    assert dict(seen.labels) == {}

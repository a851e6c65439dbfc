"""What every driver promises of devices that are claimed, held against each of them."""

import asyncio

import pytest

from clusters.drivers import NotThere, Refused
from clusters.engine.claimable import DeviceSeen, device_of
from clusters.engine.resource_slices import read_pool
from federation.engine.objects.resource_claims import Claimable, resource_claim_templates

from .manifests import job
from .worlds import INSTALL, World, fresh_name, in_namespace, slice_object, until, watching


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
    assert first.attributes == {
        "type": "gpu",
        "productName": "NVIDIA H100 80GB HBM3",
        "cudaComputeCapability": "9.0.0",
    }, "what classifies a device, and what jobs may require of it"
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


def templates(namespace: str, product: str, units: int) -> list[dict]:
    """What the gateway writes for pods that take so many GPUs of this product."""
    device = device_of("gpu.nvidia.com", DeviceSeen("any", {"type": "gpu", "productName": product}))
    return resource_claim_templates(namespace, INSTALL, Claimable(device.device_class, device.cel), units)


def test_a_pod_runs_on_the_devices_that_it_claims_and_gives_them_back(world: World):
    name = fresh_name("slice")
    product = f'NVIDIA "{name}"'

    async def use(driver, namespace):
        async def start(units):
            [template] = templates(namespace, product, units)
            await driver.ensure_claim_template(template)
            made = job(namespace, f"takes-{units}", seconds="never", template=template["metadata"]["name"])
            uid = await driver.create_job(made)
            await driver.release_job(namespace, f"takes-{units}", uid, {})
            return uid

        async def running(units):
            pods = await driver.list_pods(namespace, f"takes-{units}")
            return [pod for pod in pods if pod.phase == "Running"]

        await asyncio.to_thread(world.publish, slice_object(name, product=product, devices=2))
        async with watching(driver.watch_claims()) as watcher:
            await watcher.find("listed")
            first = await start(2)
            [pod] = await until(lambda: running(2))
            claim = await until(lambda: _claim_in(watcher, namespace))
            second = await start(1)
            waiting = await driver.list_pods(namespace, "takes-1")
            await driver.delete_job(namespace, "takes-2", first)
            [late] = await until(lambda: running(1))
            await watcher.find("deleted", claim.name)
        await driver.delete_job(namespace, "takes-1", second)
        await asyncio.to_thread(world.withdraw, name)
        return pod, claim, waiting, late

    pod, claim, waiting, late = in_namespace(world, use)
    assert pod.node == late.node == "gpu-1"
    assert claim.pod == pod.uid
    assert {device for _, _, device in claim.devices} == {"gpu-0", "gpu-1"}
    assert {(driver, pool) for driver, pool, _ in claim.devices} == {("gpu.nvidia.com", name)}
    assert claim.labels["switchyard.dev/install"] == INSTALL
    assert all(pod.phase == "Pending" for pod in waiting)


def test_the_classes_of_devices_are_told_by_name(world: World):
    name = fresh_name("slice")

    async def use(driver, namespace):
        await asyncio.to_thread(world.publish, slice_object(name))
        await asyncio.to_thread(world.withdraw, name)
        return await driver.device_classes()

    assert {"gpu.nvidia.com", "mig.nvidia.com"} <= in_namespace(world, use)


async def _claim_in(watcher, namespace):
    seen = [claim for event in watcher.events if event.kind == "changed" for claim in event.objects]
    return next((claim for claim in seen if claim.namespace == namespace and claim.devices), None)


def test_a_template_stands_as_it_was_first_written(world: World):
    async def use(driver, namespace):
        [template] = templates(namespace, "NVIDIA L4", 1)
        [other] = templates(namespace, "NVIDIA L4", 2)
        again = world.driver()
        for each in (driver, driver, again):
            await each.ensure_claim_template(template)
        await again.close()
        with pytest.raises(Refused):
            await driver.ensure_claim_template({**other, "metadata": template["metadata"]})
        [elsewhere] = templates(fresh_name("swy-absent"), "NVIDIA L4", 1)
        with pytest.raises(NotThere):
            await driver.ensure_claim_template(elsewhere)

    in_namespace(world, use)

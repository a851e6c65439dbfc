"""Where pods go, as every driver promises: gates, wishes, required nodes, and room."""

import asyncio

import pytest

from clusters.drivers import NotThere, Refused, Stale

from .manifests import GATE, OTHERS, WRONG_UID, gated, job, wish
from .worlds import World, in_namespace, until


def _released(made):
    made["spec"]["suspend"] = False
    return made


async def _pods(driver, namespace, fits):
    """The Job's two pods by index, once both exist and `fits` holds for each."""

    async def look():
        pods = await driver.list_pods(namespace, "train")
        return pods if len(pods) == 2 and all(map(fits, pods)) else None

    return sorted(await until(look), key=lambda pod: pod.labels["batch.kubernetes.io/job-completion-index"])


def test_gated_pods_wait_until_each_is_let_through_with_its_own_wishes(world: World):
    async def use(driver, namespace):
        uid = await driver.create_job(gated(namespace, GATE))
        await driver.release_job(namespace, "train", uid, {})
        pods = await _pods(driver, namespace, lambda pod: pod.gates)
        for pod, node in zip(pods, ("gpu-1", "cpu-1"), strict=True):
            await driver.open_gate(namespace, pod.name, pod.uid, GATE, [wish(node)])
        landed = await _pods(driver, namespace, lambda pod: pod.node)
        await driver.open_gate(namespace, pods[0].name, pods[0].uid, GATE)
        with pytest.raises(Refused):
            await driver.open_gate(namespace, pods[0].name, pods[0].uid, GATE, [wish("cpu-1", 50)])
        await driver.delete_job(namespace, "train", uid)
        return pods, landed

    pods, landed = in_namespace(world, use)
    assert [(pod.node, tuple(pod.gates)) for pod in pods] == [("", (GATE,))] * 2
    assert [(pod.node, tuple(pod.gates)) for pod in landed] == [("gpu-1", ()), ("cpu-1", ())]


def test_others_gates_stay_shut_and_only_the_pod_of_that_uid_is_touched(world: World):
    async def use(driver, namespace):
        await asyncio.to_thread(world.make_foreign_job, _released(gated(namespace, OTHERS, GATE)))
        uid = (await driver.get_job(namespace, "train")).uid
        one, two = await _pods(driver, namespace, lambda pod: pod.gates)
        await driver.open_gate(namespace, one.name, one.uid, GATE, [wish("gpu-1")])
        with pytest.raises(Stale):
            await driver.open_gate(namespace, two.name, WRONG_UID, GATE)
        with pytest.raises(NotThere):
            await driver.open_gate(namespace, "train-9-nobody", WRONG_UID, GATE)
        after = await _pods(driver, namespace, lambda pod: pod.gates)
        await driver.delete_job(namespace, "train", uid)
        return after

    assert [(pod.node, tuple(pod.gates)) for pod in in_namespace(world, use)] == [("", (OTHERS,)), ("", (OTHERS, GATE))]


def test_placement_hints_ride_in_the_release(world: World):
    async def use(driver, namespace):
        uid = await driver.create_job(job(namespace, "train", seconds="never"))
        expression = {"key": "nvidia.com/gpu.product", "operator": "DoesNotExist"}
        required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        await driver.release_job(namespace, "train", uid, {"spec": {"affinity": affinity}})

        async def running():
            return [pod for pod in await driver.list_pods(namespace, "train") if pod.phase == "Running"]

        pods = await until(running)
        await driver.delete_job(namespace, "train", uid)
        return pods

    assert [pod.node for pod in in_namespace(world, use)] == ["cpu-1"]


def test_a_node_may_be_required_by_its_name_and_wishes_are_added_up(world: World):
    def affinity(required, *wishes):
        preferred = [{"weight": weight, "preference": {"matchExpressions": [wish]}} for weight, wish in wishes]
        terms = {"nodeSelectorTerms": [{"matchFields": [required]}]}
        return {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": terms,
                "preferredDuringSchedulingIgnoredDuringExecution": preferred,
            }
        }

    has_gpu = {"key": "nvidia.com/gpu.product", "operator": "Exists"}
    is_cpu = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["cpu-1"]}
    anywhere = {"key": "metadata.name", "operator": "NotIn", "values": ["absent"]}
    wanted = {
        "named": (affinity({"key": "metadata.name", "operator": "In", "values": ["cpu-1"]}, (100, has_gpu)), "cpu-1"),
        "wished": (affinity(anywhere, (10, is_cpu), (50, has_gpu)), "gpu-1"),
    }

    async def use(driver, namespace):
        found = {}
        for name, (where, _) in wanted.items():
            uid = await driver.create_job(job(namespace, name, seconds="never"))
            await driver.release_job(namespace, name, uid, {"spec": {"affinity": where}})

            async def running(name=name):
                return [pod for pod in await driver.list_pods(namespace, name) if pod.phase == "Running"]

            found[name] = [pod.node for pod in await until(running)]
            await driver.delete_job(namespace, name, uid)
        return found

    assert in_namespace(world, use) == {name: [node] for name, (_, node) in wanted.items()}


def test_pods_that_do_not_fit_wait(world: World):
    async def use(driver, namespace):
        uid = await driver.create_job(job(namespace, "big", count=3, gpus=4, seconds="never"))
        await driver.release_job(namespace, "big", uid, {})

        async def two_run():
            pods = await driver.list_pods(namespace, "big")
            return pods if sorted(pod.phase for pod in pods) == ["Pending", "Running", "Running"] else None

        pods = await until(two_run)
        await driver.delete_job(namespace, "big", uid)
        return pods

    pods = in_namespace(world, use)
    assert {pod.node for pod in pods if pod.phase == "Running"} == {"gpu-1"}

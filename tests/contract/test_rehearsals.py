"""What every driver promises of writes that a cluster is only asked about, held against each of them."""

import asyncio

from clusters.engine.escapes import PROBE_NAMESPACE, duties, escapes, judged

from .manifests import job
from .worlds import World, in_namespace, until


def test_the_published_manifest_lets_the_gateway_work_and_a_thief_do_nothing(world: World):
    groups = {"resource.k8s.io"}

    async def use(driver, namespace):
        await driver.create_job(job(namespace, "train"))
        foreign = [("default", name) for name in [await driver.any_pod("default")] if name]
        working = [await driver.rehearse(rehearsal) for rehearsal in duties(groups, "contract")]
        return [await driver.rehearse(rehearsal) for rehearsal in escapes(groups, "contract", foreign)], working

    escaping, working = in_namespace(world, use)
    assert {answer.rehearsal.what: answer.would for answer in escaping if answer.would is not False} == {}
    assert [answer.reason for answer in working if answer.would is not True] == []
    assert all(answer.reason for answer in escaping)
    assert judged(escaping, working).holds


def test_what_is_rehearsed_does_not_happen(world: World):
    async def use(driver, namespace):
        for rehearsal in duties({"resource.k8s.io"}, "nothing"):
            await driver.rehearse(rehearsal)
        return await driver.list_jobs(), await asyncio.to_thread(world.network_policies, PROBE_NAMESPACE)

    jobs, policies = in_namespace(world, use)
    assert not [found for found in jobs if found.namespace == PROBE_NAMESPACE]
    assert policies == {}


def test_any_pod_of_a_namespace_is_named_where_there_is_one(world: World):
    async def use(driver, namespace):
        before = await driver.any_pod(namespace)
        uid = await driver.create_job(job(namespace, "train", seconds="never"))
        await driver.release_job(namespace, "train", uid, {})
        [pod] = await until(lambda: driver.list_pods(namespace, "train"))
        found = await driver.any_pod(namespace)
        await driver.delete_job(namespace, "train", uid)
        return before, found, pod

    before, found, pod = in_namespace(world, use)
    assert (before, found) == ("", pod.name)

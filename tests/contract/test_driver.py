"""What every driver promises of Jobs and pods, held against each of them."""

import asyncio
import re

import pytest

from clusters.drivers import AlreadyExists, NotThere, PortRequest, Refused, Stale
from clusters.engine.permissions import ROLE, TELLTALES, Right

from .manifests import WRONG_UID, job
from .worlds import INSTALL, World, finished, fresh_name, in_namespace, until, watching


def test_a_cluster_says_its_version_and_who_it_is(world: World):
    async def body():
        driver, again = world.driver(), world.driver()
        version, identity, same, skew_ms = (
            await driver.version(),
            await driver.identity(),
            await again.identity(),
            await driver.clock_skew_ms(),
        )
        await driver.close()
        await again.close()
        return version, identity, same, skew_ms

    version, identity, same, skew_ms = asyncio.run(body())
    assert re.match(r"v1\.\d+\.", version)
    assert len(identity) == 36
    assert identity == same
    assert skew_ms == 0


def test_a_cluster_names_the_api_groups_it_serves(world: World):
    async def use(driver, namespace):
        return await driver.api_groups()

    groups = in_namespace(world, use)
    assert {"batch", "networking.k8s.io"} <= groups
    assert "kueue.x-k8s.io" not in groups


def test_its_rules_hold_the_published_role(world: World):
    async def use(driver, namespace):
        return await driver.rules(namespace)

    seen = in_namespace(world, use)
    assert seen.is_complete
    assert any("jobs" in rule["resources"] and "patch" in rule["verbs"] for rule in seen.rules)


def test_each_right_of_the_published_role_is_confirmed_and_no_telltale_is(world: World):
    async def use(driver, namespace):
        return [(right, await driver.may(right)) for right in sorted(ROLE | TELLTALES)], await driver.may(
            Right("", "secrets", "get"), namespace
        )

    answers, may_read_secrets = in_namespace(world, use)
    assert {right for right, is_allowed in answers if is_allowed} == ROLE
    assert not may_read_secrets


def test_a_job_created_suspended_does_nothing_until_it_is_released(world: World):
    async def use(driver, namespace):
        uid = await driver.create_job(job(namespace, "train"))
        before = await driver.get_job(namespace, "train")
        pods = await driver.list_pods(namespace, "train")
        await driver.release_job(namespace, "train", uid, {})
        return uid, before, pods, await finished(driver, namespace, "train")

    uid, before, pods, after = in_namespace(world, use)
    assert before.uid == uid == after.uid
    assert before.suspended
    assert before.outcome == ""
    assert before.labels["switchyard.dev/install"] == INSTALL
    assert pods == []
    assert not after.suspended
    assert after.outcome == "succeeded"
    assert after.started_at is not None
    assert after.finished_at is not None
    assert after.started_at <= after.finished_at
    assert (before.ended_pods, after.ended_pods) == (0, 1)


def test_a_job_that_mounts_an_image_runs(world: World):
    async def use(driver, namespace):
        manifest = job(namespace, "train")
        pod = manifest["spec"]["template"]["spec"]
        reference = f"registry.example/weights@sha256:{'a' * 64}"
        pod["volumes"] = [{"name": "storage-0", "image": {"reference": reference, "pullPolicy": "Always"}}]
        pod["containers"][0]["volumeMounts"] = [
            {"name": "storage-0", "mountPath": "/weights", "subPath": "8b", "readOnly": True}
        ]
        uid = await driver.create_job(manifest)
        await driver.release_job(namespace, "train", uid, {})
        return await finished(driver, namespace, "train")

    assert in_namespace(world, use).outcome == "succeeded"


def test_pods_report_their_node_times_and_exit_codes(world: World):
    async def use(driver, namespace):
        uid = await driver.create_job(job(namespace, "train", count=3, seconds="1"))
        await driver.release_job(namespace, "train", uid, {})
        await finished(driver, namespace, "train")
        return await driver.list_pods(namespace, "train")

    pods = in_namespace(world, use)
    assert len(pods) == 3
    for pod in pods:
        assert pod.phase == "Succeeded"
        assert pod.exit_code == 0
        assert pod.node in {"cpu-1", "gpu-1"}
        assert pod.requests["cpu"] == "500m"
        assert pod.labels["switchyard.dev/install"] == INSTALL
        assert pod.started_at is not None
        assert pod.finished_at is not None
        assert 0 <= (pod.finished_at - pod.started_at).total_seconds() <= 5


def test_a_failing_pod_fails_its_job_and_says_its_code(world: World):
    async def use(driver, namespace):
        uid = await driver.create_job(job(namespace, "train", exit_code=3))
        await driver.release_job(namespace, "train", uid, {})
        ended = await finished(driver, namespace, "train")
        return ended, await driver.list_pods(namespace, "train")

    ended, pods = in_namespace(world, use)
    assert ended.outcome == "failed"
    assert ended.reason == "BackoffLimitExceeded"
    assert ended.finished_at is not None
    assert ended.ended_pods == 1
    assert [(pod.exit_code, pod.ending, pod.signal, pod.message) for pod in pods] == [(3, "Error", None, "")]


def test_a_pod_says_why_its_container_ended_and_nothing_while_it_runs(world: World):
    async def use(driver, namespace):
        killed = await driver.create_job(job(namespace, "killed", exit_code=137, ending="OOMKilled"))
        running = await driver.create_job(job(namespace, "running", exit_code=137, ending="OOMKilled", seconds="600"))
        await driver.release_job(namespace, "running", running, {})
        await driver.release_job(namespace, "killed", killed, {})
        await finished(driver, namespace, "killed")
        return await driver.list_pods(namespace, "killed"), await driver.list_pods(namespace, "running")

    killed, running = in_namespace(world, use)
    assert [(pod.exit_code, pod.ending) for pod in killed] == [(137, "OOMKilled")]
    assert [(pod.exit_code, pod.ending) for pod in running] == [(None, "")]


def test_a_job_past_its_deadline_is_failed(world: World):
    async def use(driver, namespace):
        uid = await driver.create_job(job(namespace, "train", seconds="600", deadline_seconds=1))
        await driver.release_job(namespace, "train", uid, {})
        return await finished(driver, namespace, "train")

    ended = in_namespace(world, use)
    assert ended.outcome == "failed"
    assert ended.reason == "DeadlineExceeded"


def test_a_second_job_of_the_same_name_is_refused_and_the_first_untouched(world: World):
    async def use(driver, namespace):
        uid = await driver.create_job(job(namespace, "train"))
        with pytest.raises(AlreadyExists):
            await driver.create_job(job(namespace, "train", install="other"))
        return uid, await driver.get_job(namespace, "train")

    uid, found = in_namespace(world, use)
    assert found.uid == uid
    assert found.labels["switchyard.dev/install"] == INSTALL


def test_a_job_in_a_namespace_that_does_not_exist_is_not_there(world: World):
    async def use(driver, namespace):
        with pytest.raises(NotThere):
            await driver.create_job(job(fresh_name("swy-nowhere"), "train"))

    in_namespace(world, use)


@pytest.mark.parametrize("broken", ["no-containers", "bad-quantity", "bad-name"])
def test_a_job_that_cannot_be_is_refused(world: World, broken):
    async def use(driver, namespace):
        manifest = job(namespace, "UPPER_case" if broken == "bad-name" else "train")
        pod = manifest["spec"]["template"]["spec"]
        if broken == "no-containers":
            pod["containers"] = []
        if broken == "bad-quantity":
            pod["containers"][0]["resources"] = {"requests": {"cpu": "much"}}
        with pytest.raises(Refused) as refusal:
            await driver.create_job(manifest)
        assert not isinstance(refusal.value, (NotThere, Stale, AlreadyExists))
        assert refusal.value.reason

    in_namespace(world, use)


def test_release_and_delete_ask_for_the_uid(world: World):
    async def use(driver, namespace):
        uid = await driver.create_job(job(namespace, "train"))
        with pytest.raises(Stale):
            await driver.release_job(namespace, "train", WRONG_UID, {})
        with pytest.raises(Stale):
            await driver.delete_job(namespace, "train", WRONG_UID)
        found = await driver.get_job(namespace, "train")
        assert found.uid == uid
        assert found.suspended

    in_namespace(world, use)


def test_what_is_not_there_is_said_to_be_not_there(world: World):
    async def use(driver, namespace):
        with pytest.raises(NotThere):
            await driver.get_job(namespace, "nothing")
        with pytest.raises(NotThere):
            await driver.release_job(namespace, "nothing", WRONG_UID, {})
        with pytest.raises(NotThere):
            await driver.delete_job(namespace, "nothing", WRONG_UID)
        with pytest.raises(NotThere):
            await driver.read_log(namespace, "nothing", tail_lines=10, limit_bytes=1000)
        with pytest.raises(NotThere):
            await driver.ask_pod(namespace, "nothing", 8888, PortRequest("GET", "/", [("Host", "x")]))
        assert list(await driver.list_pods(namespace, "nothing")) == []

    in_namespace(world, use)


def test_names_cannot_leave_their_path(world: World):
    async def use(driver, namespace):
        for name in ("../../pods/x", "a/b", "a?x=1", "a%2fb", "", "A" * 300):
            with pytest.raises(Refused):
                await driver.get_job(namespace, name)
            with pytest.raises(Refused):
                await driver.ask_pod(namespace, name, 8888, PortRequest("GET", "/", [("Host", "x")]))

    in_namespace(world, use)


def test_deleting_a_job_takes_its_pods_along_and_can_be_said_only_once(world: World):
    async def use(driver, namespace):
        uid = await driver.create_job(job(namespace, "train", seconds="never", count=2))
        await driver.release_job(namespace, "train", uid, {})

        async def pods():
            return await driver.list_pods(namespace, "train")

        await until(pods)
        await driver.delete_job(namespace, "train", uid)

        async def gone():
            try:
                await driver.get_job(namespace, "train")
            except NotThere:
                return True
            return False

        await until(gone)
        assert list(await driver.list_pods(namespace, "train")) == []
        with pytest.raises(NotThere):
            await driver.delete_job(namespace, "train", uid)

    in_namespace(world, use)


def test_jobs_without_our_label_or_with_anothers_are_not_seen(world: World):
    async def use(driver, namespace):
        await driver.create_job(job(namespace, "ours"))
        for name, install in (("unlabelled", None), ("theirs", "another")):
            await asyncio.to_thread(world.make_foreign_job, job(namespace, name, install=install))
        listed = [found.name for found in await driver.list_jobs() if found.namespace == namespace]
        async with watching(driver.watch_jobs()) as watcher:
            await watcher.find("listed", "ours")
            uid = await driver.create_job(job(namespace, "ours-too"))
            await watcher.find("changed", "ours-too")
            await asyncio.to_thread(world.make_foreign_job, job(namespace, "theirs-too", install="another"))
            await driver.delete_job(namespace, "ours-too", uid)
            await watcher.find("deleted", "ours-too")
            seen = set(watcher.names("listed", "changed", "deleted"))
        return listed, seen

    listed, seen = in_namespace(world, use)
    assert listed == ["ours"]
    assert not {"unlabelled", "theirs", "theirs-too"} & seen


def test_many_creates_at_once_of_one_name_make_one_job(world: World):
    async def use(driver, namespace):
        answers = await asyncio.gather(
            *(driver.create_job(job(namespace, "train")) for _ in range(10)), return_exceptions=True
        )
        return answers, await driver.get_job(namespace, "train")

    answers, found = in_namespace(world, use)
    assert [answer for answer in answers if isinstance(answer, str)] == [found.uid]
    assert sum(isinstance(answer, AlreadyExists) for answer in answers) == 9

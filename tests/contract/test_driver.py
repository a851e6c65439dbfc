"""What every driver promises, held against each of them."""

import asyncio
import re
from contextlib import suppress

import pytest

from clusters.drivers import AlreadyExists, NotThere, PortRequest, Refused, Stale
from clusters.engine.permissions import ROLE, TELLTALES, Right

from .worlds import INSTALL, WHOSE, World, fresh_name, in_namespace, job, secret, until, watching

WRONG_UID = "00000000-0000-4000-8000-000000000000"


async def _finish(driver, namespace, name):
    async def ended():
        found = await driver.get_job(namespace, name)
        return found if found.outcome else None

    return await until(ended)


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
        return uid, before, pods, await _finish(driver, namespace, "train")

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


def test_pods_report_their_node_times_and_exit_codes(world: World):
    async def use(driver, namespace):
        uid = await driver.create_job(job(namespace, "train", count=3, seconds="1"))
        await driver.release_job(namespace, "train", uid, {})
        await _finish(driver, namespace, "train")
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


GATE, OTHERS = "switchyard.dev/topology", "example.com/other"


def gated(namespace, *gates):
    """A Job of two pods that wait behind gates; the gateway itself renders none but its own."""
    made = job(namespace, "train", count=2, seconds="3600")
    made["spec"]["template"]["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
    return made


def _released(made):
    made["spec"]["suspend"] = False
    return made


def wish(node, weight=100):
    return {"weight": weight, "preference": {"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}}  # fmt: skip


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


def test_a_failing_pod_fails_its_job_and_says_its_code(world: World):
    async def use(driver, namespace):
        uid = await driver.create_job(job(namespace, "train", exit_code=3))
        await driver.release_job(namespace, "train", uid, {})
        ended = await _finish(driver, namespace, "train")
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
        await _finish(driver, namespace, "killed")
        return await driver.list_pods(namespace, "killed"), await driver.list_pods(namespace, "running")

    killed, running = in_namespace(world, use)
    assert [(pod.exit_code, pod.ending) for pod in killed] == [(137, "OOMKilled")]
    assert [(pod.exit_code, pod.ending) for pod in running] == [(None, "")]


def test_a_job_past_its_deadline_is_failed(world: World):
    async def use(driver, namespace):
        uid = await driver.create_job(job(namespace, "train", seconds="600", deadline_seconds=1))
        await driver.release_job(namespace, "train", uid, {})
        return await _finish(driver, namespace, "train")

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


def test_releasing_twice_is_the_same_as_once(world: World):
    async def use(driver, namespace):
        uid = await driver.create_job(job(namespace, "train", seconds="never"))
        terms = {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-1"]}]}]
        }
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        patch = {"spec": {"affinity": {"nodeAffinity": required}}}
        await driver.release_job(namespace, "train", uid, patch)
        await driver.release_job(namespace, "train", uid, patch)

        async def running():
            return [pod for pod in await driver.list_pods(namespace, "train") if pod.phase == "Running"]

        pods = await until(running)
        await driver.delete_job(namespace, "train", uid)
        return pods

    pods = in_namespace(world, use)
    assert [pod.node for pod in pods] == ["gpu-1"]


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


def test_a_namespace_may_be_asked_for_again_but_not_if_it_is_a_strangers(world: World):
    strange = fresh_name("swy-strange")
    world.make_foreign_namespace(strange)

    async def use(driver, namespace):
        await driver.ensure_namespace(namespace, WHOSE)
        with pytest.raises(Refused):
            await driver.ensure_namespace(strange, {})

    in_namespace(world, use)


def wall(namespace: str, block: str = "1.0.0.0/8") -> dict:
    """The NetworkPolicy around a namespace, which lets every pod send to one block."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "switchyard", "namespace": namespace, "labels": {"switchyard.dev/install": INSTALL}},
        "spec": {
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            "egress": [{"to": [{"ipBlock": {"cidr": block}}]}],
        },
    }


def mates(namespace: str, name: str, owners: tuple[tuple[str, str], ...] = ()) -> dict:
    """The NetworkPolicy that lets the pods of one attempt talk to each other."""
    owned = [{"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": uid} for owner, uid in owners]
    found = wall(namespace)
    found["metadata"] |= {"name": name, **({"ownerReferences": owned} if owned else {})}
    ours = {"podSelector": {"matchLabels": {"switchyard.dev/attempt": name}}}
    found["spec"] |= {**ours, "ingress": [{"from": [ours]}], "egress": [{"to": [ours]}]}
    return found


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

"""What only the simulated cluster promises: one cluster for all processes, time that passes alike for everyone, no half writes."""

import asyncio
import multiprocessing
import os
import signal
import sqlite3
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clusters.drivers import Unreachable
from clusters.drivers.simulated import (
    SimulatedDriver,
    add_foreign_pod,
    begin_trouble,
    end_trouble,
    found_cluster,
    node_from_manifest,
    path_of,
)

from .manifests import job
from .worlds import BASE_NODES, INSTALL, node_object

START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.at = START

    def __call__(self) -> datetime:
        return self.at

    def advance(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "cluster.sqlite3"
    found_cluster(path, [node_from_manifest(node) for node in BASE_NODES])
    return path


async def start(driver, name: str, **facts) -> str:
    await driver.ensure_namespace("swy-a", {})
    uid = await driver.create_job(job("swy-a", name, **facts))
    await driver.release_job("swy-a", name, uid, {})
    return uid


def seconds(instant: datetime | None) -> float | None:
    return None if instant is None else (instant - START).total_seconds()


def test_founding_twice_leaves_the_first(path):
    assert found_cluster(path) == found_cluster(path, [], identity="another")


def test_what_was_never_founded_is_unreachable(tmp_path):
    async def body():
        with pytest.raises(Unreachable):
            await SimulatedDriver(tmp_path / "nothing.sqlite3", INSTALL).version()

    asyncio.run(body())
    for server in ("simulated://../etc", "simulated://", "https://east", "simulated://a/../b"):
        if server == "simulated://a/../b":
            assert path_of(tmp_path, server).parent == tmp_path / "simulated"
            continue
        with pytest.raises(Unreachable):
            path_of(tmp_path, server)


def test_a_cluster_in_trouble_answers_nothing_until_it_ends(path):
    clock = Clock()
    begin_trouble(path, "unreachable", START + timedelta(seconds=60))

    async def body():
        driver = SimulatedDriver(path, INSTALL, now=clock)
        identity = await driver.identity()
        clock.advance(60)
        with pytest.raises(Unreachable):
            await driver.identity()
        end_trouble(path)
        assert await driver.identity() == identity

    asyncio.run(body())


def test_an_unwatched_cluster_answers_and_its_watches_bring_nothing(path):
    begin_trouble(path, "unwatched", START)

    async def body():
        driver = SimulatedDriver(path, INSTALL, now=Clock())
        assert await driver.list_jobs() == []
        with pytest.raises(Unreachable):
            await anext(driver.watch_nodes())

    asyncio.run(body())


@pytest.mark.parametrize("looks", [[3600], [1] * 40, [0.5, 7, 0.1, 30], [10, 10, 10]])
def test_the_outcome_does_not_depend_on_who_looks_or_when(path, looks):
    """Three jobs of 4 GPUs and 10 s on 8 GPUs: two at once, the third after the first to end."""

    async def body():
        clock = Clock()
        driver = SimulatedDriver(path, INSTALL, now=clock)
        for number in range(3):
            await start(driver, f"j{number}", gpus=4, seconds="10")
        for step in looks:
            clock.advance(step)
            await driver.list_jobs()
        clock.at = START + timedelta(hours=2)
        jobs = await driver.list_jobs()
        pods = [pod for found in jobs for pod in await driver.list_pods("swy-a", found.name)]
        await driver.close()
        return sorted((seconds(pod.started_at), seconds(pod.finished_at)) for pod in pods), {
            found.outcome for found in jobs
        }

    times, outcomes = asyncio.run(body())
    assert times == [(0, 10), (0, 10), (10, 20)]
    assert outcomes == {"succeeded"}


def test_a_job_with_more_completions_than_parallelism_goes_on_until_all_are_done(path):
    async def body():
        clock = Clock()
        driver = SimulatedDriver(path, INSTALL, now=clock)
        await driver.ensure_namespace("swy-a", {})
        manifest = job("swy-a", "indexed", count=2, seconds="10", suspend=False)
        manifest["spec"]["completions"] = 5
        await driver.create_job(manifest)
        clock.advance(100)
        found = await driver.get_job("swy-a", "indexed")
        pods = await driver.list_pods("swy-a", "indexed")
        await driver.close()
        return found, pods

    found, pods = asyncio.run(body())
    assert found.outcome == "succeeded"
    assert seconds(found.finished_at) == 30
    assert len(pods) == 5


def test_strangers_pods_take_room(path):
    async def body():
        add_foreign_pod(path, "gpu-1", {"nvidia.com/gpu": "5"})
        driver = SimulatedDriver(path, INSTALL, now=Clock())
        await start(driver, "fits", gpus=3, seconds="never")
        await start(driver, "waits", gpus=1, seconds="never")
        phases = [(await driver.list_pods("swy-a", name))[0].phase for name in ("fits", "waits")]
        await driver.close()
        return phases

    assert asyncio.run(body()) == ["Running", "Pending"]


def test_pods_go_where_they_fit_tightest_unless_told_otherwise(path):
    async def body():
        driver = SimulatedDriver(path, INSTALL, now=Clock())
        await start(driver, "cpu", seconds="never")
        uid = await driver.create_job(job("swy-a", "hinted", seconds="never"))
        hint = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["gpu-1"]}
        preferred = [{"weight": 100, "preference": {"matchExpressions": [hint]}}]
        affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
        await driver.release_job("swy-a", "hinted", uid, {"spec": {"affinity": affinity}})
        nodes = [(await driver.list_pods("swy-a", name))[0].node for name in ("cpu", "hinted")]
        await driver.close()
        return nodes

    assert asyncio.run(body()) == ["cpu-1", "gpu-1"]


def test_taints_keep_pods_off_unless_tolerated(tmp_path):
    path = tmp_path / "tainted.sqlite3"
    node = node_object("gpu-1", nvidia_com__gpu="8")
    node["spec"]["taints"] = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    found_cluster(path, [node_from_manifest(node)])

    async def body():
        driver = SimulatedDriver(path, INSTALL, now=Clock())
        await start(driver, "kept-off", seconds="never")
        uid = await driver.create_job(job("swy-a", "let-in", seconds="never"))
        toleration = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
        await driver.release_job("swy-a", "let-in", uid, {"spec": {"tolerations": [toleration]}})
        phases = [(await driver.list_pods("swy-a", name))[0].phase for name in ("kept-off", "let-in")]
        await driver.close()
        return phases

    assert asyncio.run(body()) == ["Pending", "Running"]


def test_a_watcher_that_fell_behind_the_kept_deletions_lists_anew(path, monkeypatch):
    monkeypatch.setattr("clusters.drivers.simulated.store._TRACES_KEPT", 5)

    async def body():
        driver = SimulatedDriver(path, INSTALL)
        stream: Any = driver.watch_jobs()
        kinds = [(await anext(stream)).kind]
        for number in range(20):
            uid = await start(driver, f"j{number}")
            await driver.delete_job("swy-a", f"j{number}", uid)
        kinds.append((await anext(stream)).kind)
        await stream.aclose()
        await driver.close()
        return kinds

    assert asyncio.run(body()) == ["listed", "listed"]


def _create_forever(path) -> None:
    async def body():
        driver = SimulatedDriver(path, INSTALL)
        await driver.ensure_namespace("swy-a", {})
        number = 0
        while True:
            number += 1
            await start(driver, f"p{os.getpid()}-{number}", seconds="0.01")

    asyncio.run(body())


def test_killed_processes_leave_no_half_written_cluster(path):
    spawn = multiprocessing.get_context("spawn")
    children = [spawn.Process(target=_create_forever, args=(path,)) for _ in range(2)]
    for child in children:
        child.start()

    async def body():
        driver = SimulatedDriver(path, INSTALL)
        async with asyncio.timeout(60):
            while len(await driver.list_jobs()) < 40:  # noqa: ASYNC110 - other processes write them
                await asyncio.sleep(0.01)
        for child in children:
            os.kill(child.pid, signal.SIGKILL)
            child.join()
        jobs = await driver.list_jobs()
        async with asyncio.timeout(30):
            while any(not found.suspended and not found.outcome for found in jobs):
                await asyncio.sleep(0.01)
                jobs = await driver.list_jobs()
        pods = [len(await driver.list_pods("swy-a", found.name)) for found in jobs if found.outcome]
        await driver.close()
        return jobs, pods

    jobs, pods = asyncio.run(body())
    assert len({found.name for found in jobs}) == len(jobs) >= 40
    assert set(pods) == {1}
    file = sqlite3.connect(path)
    assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    file.close()

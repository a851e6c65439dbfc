"""The Kubernetes driver while a real control plane freezes, dies, comes back, and changes its mind about us."""

import asyncio
import time
from dataclasses import replace

import pytest

from clusters.drivers import Ambiguous, AuthFailed, Refused, Unreachable
from clusters.drivers.kubernetes.driver import KubernetesDriver
from clusters.drivers.kubernetes.wire import Limits
from devtools.localfleet.admin import client, mint_token
from tests.contract.manifests import job
from tests.contract.worlds import INSTALL, address_of, fresh_name, until, watching

from .conftest import gateway_token

pytestmark = pytest.mark.kube

QUICK = Limits(connect_seconds=1, read_seconds=1, whole_request_seconds=2, watch_silence_seconds=3)


@pytest.fixture
def plane(bare_clusters):
    return bare_clusters[0]


def driver_of(plane, token: str = "", limits: Limits = QUICK) -> KubernetesDriver:
    return KubernetesDriver(address_of(plane, token or gateway_token(plane)), INSTALL, limits)


async def answers(driver) -> bool:
    try:
        await driver.version()
    except (Ambiguous, Unreachable):
        return False
    return True


def test_a_frozen_server_is_given_up_in_time_and_used_again_when_it_thaws(plane):
    async def body():
        driver = driver_of(plane)
        namespace = fresh_name("swy-frozen")
        await driver.ensure_namespace(namespace, {"switchyard.dev/tenant": "vision"})
        plane.pause("kube-apiserver")
        try:
            before = time.monotonic()
            with pytest.raises((Ambiguous, Unreachable)):
                await driver.create_job(job(namespace, "train"))
            took = time.monotonic() - before
        finally:
            plane.resume("kube-apiserver")
        await until(lambda: answers(driver))
        names = {found.name for found in await driver.list_jobs() if found.namespace == namespace}
        await driver.close()
        return took, names

    took, names = asyncio.run(body())
    assert took < 4
    assert names <= {"train"}


def test_a_watch_outlives_a_killed_server(plane):
    async def body():
        driver = driver_of(plane)
        namespace = fresh_name("swy-killed")
        await driver.ensure_namespace(namespace, {"switchyard.dev/tenant": "vision"})
        async with watching(driver.watch_jobs()) as before:
            await before.find("listed")
            await driver.create_job(job(namespace, "before"))
            await before.find("changed", "before")
            plane.kill("kube-apiserver")

            async def ended():
                return before.error

            assert isinstance(await until(ended), (Ambiguous, Unreachable))
        with pytest.raises(Unreachable):
            await driver.version()
        plane.restart("kube-apiserver")  # from this thread: children die with the thread that spawned them
        await until(lambda: answers(driver))
        async with watching(driver.watch_jobs()) as after:
            await after.find("listed", "before")
            await driver.create_job(job(namespace, "after"))
            await after.find("changed", "after")
        await driver.close()

    asyncio.run(body())


def test_a_watch_takes_up_again_by_itself_after_a_short_freeze(plane):
    async def body():
        driver = driver_of(plane)
        namespace = fresh_name("swy-short")
        await driver.ensure_namespace(namespace, {"switchyard.dev/tenant": "vision"})
        async with watching(driver.watch_jobs()) as watcher:
            await watcher.find("listed")
            plane.pause("kube-apiserver")
            await asyncio.sleep(QUICK.watch_silence_seconds + 0.5)
            plane.resume("kube-apiserver")
            await until(lambda: answers(driver))
            await driver.create_job(job(namespace, "later"))

            async def seen():
                assert watcher.error is None
                return "later" in watcher.names("listed", "changed")

            await until(seen)
        await driver.close()

    asyncio.run(body())


def test_a_wrong_or_withdrawn_credential_is_said_so(plane):
    async def body():
        stranger = driver_of(plane, "no-such-token")
        with pytest.raises(AuthFailed):
            await stranger.version()
        with pytest.raises(AuthFailed):
            await anext(stranger.watch_nodes())
        await stranger.close()

    asyncio.run(body())


def test_an_account_without_the_role_is_refused_with_the_servers_words(plane):
    with client(plane) as http:
        http.post("/api/v1/namespaces/default/serviceaccounts", json={"metadata": {"name": "nobody"}})
    token = mint_token(plane, "default", "nobody")

    async def body():
        driver = driver_of(plane, token)
        with pytest.raises(Refused) as refusal:
            await driver.list_jobs()
        with pytest.raises(Refused):
            await anext(driver.watch_pods())
        await driver.close()
        return refusal.value

    error = asyncio.run(body())
    assert error.status == 403
    assert "jobs.batch is forbidden" in error.reason
    assert token not in error.reason


def test_the_published_role_cannot_write_outside_its_namespaces(plane):
    async def body():
        driver = driver_of(plane)
        with pytest.raises(Refused):
            await driver.create_job(job("default", fresh_name("intruder")))
        with pytest.raises(Refused):
            await driver.ensure_namespace(fresh_name("foreign"), {})
        await driver.close()

    asyncio.run(body())


def test_a_full_relist_comes_by_itself(plane):
    async def body():
        driver = driver_of(plane, limits=replace(QUICK, relist_seconds=1.5))
        async with watching(driver.watch_jobs()) as watcher:

            async def three_lists():
                assert watcher.error is None
                return sum(event.kind == "listed" for event in watcher.events) >= 3

            await until(three_lists)
        await driver.close()

    asyncio.run(body())

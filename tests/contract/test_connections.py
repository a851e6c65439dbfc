"""The drivers of a process: one loop, one driver a cluster, and a bad cluster that hurts only itself."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from clusters.drivers import Ambiguous, NotThere, Refused, Unreachable, guard
from clusters.drivers.address import ClusterAddress, Credential
from clusters.drivers.connections import close_all, driver_for, open_driver, run
from clusters.drivers.guard import CONCURRENT_CALLS, FAILURES_TO_OPEN, guarded
from clusters.drivers.simulated import found_cluster, path_of

PATIENCE_SECONDS = 60.0
"""Within it a call is answered on any host."""


@pytest.fixture(autouse=True)
def fresh_process(settings, tmp_path):
    settings.HOME = tmp_path
    close_all()
    yield
    close_all()


def simulated(name: str = "east", **changes) -> ClusterAddress:
    return replace(ClusterAddress(uuid4(), name, f"simulated://{name}", "", 0, "", Credential("token", b"")), **changes)


class Scripted:
    """A driver whose version() does as it is told."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.calls = 0
        self.at_once = self.most_at_once = 0

    async def version(self):
        self.calls += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0.001)
        self.at_once -= 1
        outcome = self.outcomes.pop(0) if self.outcomes else "v1"
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def test_calls_run_in_one_thread_of_their_own(settings, tmp_path):
    found_cluster(path_of(tmp_path, "simulated://east"))

    async def where():
        return threading.current_thread().name, id(asyncio.get_running_loop())

    address = simulated()
    assert run(where(), 5) == run(where(), 5)
    assert run(where(), 5)[0] == "clusters"
    assert run(driver_for(address).version(), 5).endswith("simulated")


def test_a_cluster_has_one_driver_until_its_address_changes():
    address = simulated()
    first = driver_for(address)
    assert driver_for(address) is first
    assert driver_for(replace(address, server="simulated://west")) is not first
    assert open_driver(address) is not first


def test_a_call_that_takes_too_long_is_open_and_stopped():
    stopped = threading.Event()

    async def slow():
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    with pytest.raises(Ambiguous):
        run(slow(), 0.05)
    assert stopped.wait(5)


def test_the_loop_refuses_to_wait_for_itself():
    async def nested():
        run(asyncio.sleep(0), 1)

    with pytest.raises(RuntimeError):
        run(nested(), 5)


def test_a_forked_child_has_a_loop_of_its_own():
    async def pid():
        return os.getpid()

    assert run(pid(), 5) == os.getpid()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, str(run(pid(), 5)).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    assert os.read(reader, 100) == str(child).encode()
    os.close(reader)
    assert run(pid(), 5) == os.getpid()


def test_at_most_so_many_calls_run_at_once():
    async def body():
        scripted: Any = Scripted()
        driver = guarded(scripted, concurrent_calls=8)
        await asyncio.gather(*(driver.version() for _ in range(50)))
        return scripted

    scripted = asyncio.run(body())
    assert scripted.calls == 50
    assert scripted.most_at_once == 8


def test_a_cluster_that_fails_again_and_again_is_left_alone_for_a_while(monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(guard, "monotonic", lambda: clock[0])

    async def body():
        scripted: Any = Scripted(*[Ambiguous("no answer")] * 100)
        driver = guarded(scripted)
        for _ in range(FAILURES_TO_OPEN):
            with pytest.raises(Ambiguous):
                await driver.version()
        for _ in range(50):
            with pytest.raises(Unreachable, match="no answer"):
                await driver.version()
        assert scripted.calls == FAILURES_TO_OPEN
        clock[0] += 1.1
        outcomes = await asyncio.gather(*(driver.version() for _ in range(20)), return_exceptions=True)
        assert scripted.calls == FAILURES_TO_OPEN + 1
        assert sum(isinstance(outcome, Ambiguous) for outcome in outcomes) == 1
        clock[0] += 120
        scripted.outcomes.clear()
        assert await driver.version() == "v1"
        assert await driver.version() == "v1"

    asyncio.run(body())


def test_a_refusal_is_a_sign_of_life():
    async def body():
        pattern = [Ambiguous("no answer")] * (FAILURES_TO_OPEN - 1) + [NotThere("gone")]
        scripted: Any = Scripted(*pattern * 10)
        driver = guarded(scripted)
        for expected in pattern * 10:
            with pytest.raises(type(expected)):
                await driver.version()
        return scripted.calls

    assert asyncio.run(body()) == 10 * FAILURES_TO_OPEN
    assert issubclass(NotThere, Refused)


class Hanging(Scripted):
    """It answers nothing until it is let go."""

    def __init__(self):
        super().__init__()
        self.let_go = asyncio.Event()
        self.is_full = threading.Event()

    async def version(self):
        self.calls += 1
        if self.calls == CONCURRENT_CALLS:
            self.is_full.set()
        await self.let_go.wait()
        return "v1"


def test_a_cluster_that_hangs_does_not_hold_up_another():
    """All calls of the one are answered while the other holds twenty: however fast the host is."""
    hanging: Any = Hanging()
    answering: Any = Scripted()
    bad, good = guarded(hanging), guarded(answering)

    async def let_go():
        hanging.let_go.set()

    with ThreadPoolExecutor(20) as callers:
        waiting = [callers.submit(lambda: run(bad.version(), PATIENCE_SECONDS)) for _ in range(20)]
        try:
            assert hanging.is_full.wait(PATIENCE_SECONDS)
            for _ in range(50):
                assert run(good.version(), PATIENCE_SECONDS) == "v1"
            assert not any(call.done() for call in waiting)
        finally:
            run(let_go(), PATIENCE_SECONDS)
        assert [call.result() for call in waiting] == ["v1"] * 20
    assert hanging.calls == 20

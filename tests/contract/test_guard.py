"""Every method of the port is guarded, unless the port itself says that it is not."""

import asyncio
import inspect
from typing import Any, Protocol

import pytest

from clusters.drivers import Ambiguous, ClusterDriver, Unreachable
from clusters.drivers.guard import FAILURES_TO_OPEN, guard_class, guarded
from clusters.drivers.port import unguarded
from clusters.drivers.simulated import SimulatedDriver

METHODS = sorted(name for name, _ in inspect.getmembers(ClusterDriver, inspect.isfunction) if not name.startswith("_"))
UNGUARDED = ["ask_pod", "close", "open_port", "watch_claims", "watch_jobs", "watch_nodes", "watch_pods", "watch_slices"]


class Recording:
    """Takes any call, and answers with what it was given. While it is `lost`, no answer comes."""

    def __init__(self):
        self.calls = []
        self.is_lost = False

    def __getattr__(self, name):
        async def answer(*args, **kwargs):
            self.calls.append(name)
            if self.is_lost:
                raise Ambiguous("no answer")
            return args, kwargs

        return answer


def arguments_of(method: str, port=ClusterDriver):
    """A value for each parameter: positional ones by position, the others by name."""
    parameters = list(inspect.signature(getattr(port, method)).parameters.values())[1:]
    by_name = {one.name: f"<{one.name}>" for one in parameters if one.kind is one.KEYWORD_ONLY}
    return tuple(f"<{one.name}>" for one in parameters if one.name not in by_name), by_name


async def with_open_circuit(recording, driver):
    recording.is_lost = True
    for _ in range(FAILURES_TO_OPEN):
        with pytest.raises(Ambiguous):
            await driver.version()
    recording.is_lost = False
    recording.calls.clear()
    return driver


def test_the_port_says_itself_what_is_not_guarded():
    assert [name for name in METHODS if getattr(getattr(ClusterDriver, name), "__unguarded__", False)] == UNGUARDED
    assert len(METHODS) > len(UNGUARDED)


@pytest.mark.parametrize("method", METHODS)
def test_a_call_reaches_the_driver_as_it_was_made(method):
    recording = Recording()
    args, kwargs = arguments_of(method)

    async def body():
        return await getattr(guarded(recording), method)(*args, **kwargs)

    assert asyncio.run(body()) == (args, kwargs)
    assert recording.calls == [method]
    assert inspect.signature(getattr(type(guarded(recording)), method)) == inspect.signature(
        getattr(ClusterDriver, method)
    )


@pytest.mark.parametrize("method", [name for name in METHODS if name not in UNGUARDED])
def test_while_the_circuit_is_open_no_guarded_call_reaches_the_driver(method):
    recording = Recording()
    args, kwargs = arguments_of(method)

    async def body():
        driver = await with_open_circuit(recording, guarded(recording))
        with pytest.raises(Unreachable, match="calls are paused"):
            await getattr(driver, method)(*args, **kwargs)

    asyncio.run(body())
    assert recording.calls == []


@pytest.mark.parametrize("method", UNGUARDED)
def test_watches_and_the_end_do_not_wait_for_the_circuit(method):
    recording = Recording()

    async def body():
        driver = await with_open_circuit(recording, guarded(recording))
        await getattr(driver, method)()

    asyncio.run(body())
    assert recording.calls == [method]


def test_a_method_added_to_the_port_is_guarded_without_another_edit():
    class Wider(ClusterDriver, Protocol):
        async def list_nodes(self, selector: str, *, limit: int) -> list[str]: ...

        @unguarded
        def watch_events(self): ...

    recording = Recording()

    async def body():
        driver: Any = guard_class(Wider)(recording)
        assert await driver.list_nodes("gpu", limit=3) == (("gpu",), {"limit": 3})
        await with_open_circuit(recording, driver)
        with pytest.raises(Unreachable, match="calls are paused"):
            await driver.list_nodes("gpu", limit=3)
        await driver.watch_events()

    asyncio.run(body())
    assert recording.calls == ["watch_events"]


def test_a_plain_method_of_the_port_must_say_that_it_is_not_guarded():
    class Unclear(ClusterDriver, Protocol):
        def watch_events(self): ...

    with pytest.raises(TypeError, match="watch_events must be `async` to be guarded, or be marked `unguarded`"):
        guard_class(Unclear)


def test_a_guarded_driver_offers_nothing_else_than_the_port(tmp_path):
    driver = guarded(SimulatedDriver(tmp_path, "test"))
    assert sorted(name for name in dir(driver) if not name.startswith("_")) == METHODS

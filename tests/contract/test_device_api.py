"""Dynamic resource allocation as API servers of every age and temper serve it: versions, absence, refusal and junk."""

import asyncio
from typing import Any

import pytest

from clusters.drivers import Ambiguous, Refused
from clusters.engine.resource_slices import read_pool
from tests.scripted_server import LIMITS, Connection, listed, serving, status

from .worlds import allocated_claim, slice_object, watching

GROUP = "/apis/resource.k8s.io"


def stored(thing: dict[str, Any], version: str = "100") -> dict[str, Any]:
    return {**thing, "metadata": {**thing["metadata"], "uid": "u", "resourceVersion": version}}


def behaving(versions, answers):
    """A server that serves these versions of the group; `answers` are by path without the query."""

    async def behave(request: Connection) -> None:
        path = request.target.partition("?")[0]
        if path == GROUP:
            body = {"versions": [{"groupVersion": f"{GROUP}/{each}", "version": each} for each in versions]}
            await (request.answer(200, body) if versions else request.answer(404, status(404, "NotFound")))
        elif "watch=1" in request.target:
            await request.begin()
            await asyncio.sleep(30)
        else:
            code, body = answers.get(path, (404, status(404, "NotFound")))
            await request.answer(code, body)

    return behave


def first_event(versions, answers, *, claims: bool = False):
    """What a watch says first, and the paths that were asked for."""

    async def body():
        async with serving(behaving(versions, answers)) as (driver, server):
            stream = driver.watch_claims() if claims else driver.watch_slices()
            async with watching(stream) as watcher:
                event = await watcher.find("listed")
            return event, [target.partition("?")[0] for target in server.targets()]

    return asyncio.run(body())


@pytest.mark.parametrize(
    ("served", "read"),
    [
        (["v1alpha3", "v1beta1", "v1"], "v1"),
        (["v1beta1", "v1beta2"], "v1beta2"),
        (["v1beta1"], "v1beta1"),
    ],
)
def test_the_best_version_that_is_served_is_read(served, read):
    event, paths = first_event(served, {f"{GROUP}/{read}/resourceslices": (200, listed(stored(slice_object("s1"))))})
    [found] = event.objects
    assert found.name == "s1"
    assert paths[:2] == [GROUP, f"{GROUP}/{read}/resourceslices"]


def test_the_oldest_version_has_a_devices_members_one_step_deeper():
    old = slice_object("s1")
    old["spec"]["devices"] = [
        {
            "name": device.pop("name"),
            "basic": device | {"taints": [{"key": "k", "effect": "NoExecute"}]} if n else device,
        }
        | ({"basic": device} if not n else {})
        for n, device in enumerate(old["spec"]["devices"])
    ]
    event, _ = first_event(["v1beta1"], {f"{GROUP}/v1beta1/resourceslices": (200, listed(stored(old)))})
    [found] = event.objects
    assert [device.is_tainted for device in found.devices] == [False, True]
    [units] = read_pool([found]).offers["gpu-1"].values()
    assert units == 1


@pytest.mark.parametrize("versions", [[], ["v1alpha3"], ["v9"]])
@pytest.mark.parametrize("claims", [False, True])
def test_a_cluster_that_does_not_serve_it_has_none(versions, claims):
    event, paths = first_event(versions, {}, claims=claims)
    assert event.objects == ()
    assert paths == [GROUP]


def test_a_version_that_lacks_the_resource_is_asked_for_once_more_and_then_none_it_is():
    event, paths = first_event(["v1"], {})
    assert event.objects == ()
    assert paths == [GROUP, f"{GROUP}/v1/resourceslices", GROUP]


def test_what_we_may_not_see_is_a_refusal_and_no_outage():
    forbidden = status(403, "Forbidden", "resourceslices.resource.k8s.io is forbidden")

    async def body():
        answers = {f"{GROUP}/v1/resourceslices": (403, forbidden), f"{GROUP}/v1/deviceclasses": (403, forbidden)}
        async with serving(behaving(["v1"], answers)) as (driver, _):
            with pytest.raises(Refused) as raised:
                await anext(driver.watch_slices())
            with pytest.raises(Refused):
                await driver.device_classes()
            return raised.value

    error = asyncio.run(body())
    assert error.status == 403
    assert "resourceslices" in error.reason


def test_the_names_of_the_device_classes_are_read():
    classes = listed({"metadata": {"name": "gpu.nvidia.com"}}, {"metadata": {"name": "mine"}, "spec": {"selectors": 3}})

    async def body():
        async with serving(behaving(["v1"], {f"{GROUP}/v1/deviceclasses": (200, classes)})) as (driver, _):
            some = await driver.device_classes()
        async with serving(behaving([], {})) as (driver, _):
            return some, await driver.device_classes()

    assert asyncio.run(body()) == ({"gpu.nvidia.com", "mine"}, frozenset())


def test_an_allocation_is_read_but_an_administrators_look_and_other_drivers_devices_are_not():
    held = allocated_claim("c1", ("gpu.nvidia.com", "p", "gpu-0"))
    results = held["status"]["allocation"]["devices"]["results"]
    results += [results[0] | {"device": "gpu-1", "adminAccess": True}, results[0] | {"driver": "dra.example.com"}]
    bare = {"metadata": {"name": "c2", "uid": "c2"}, "spec": {}, "status": {}}
    empty = {"metadata": {"name": "c3", "uid": "c3"}, "status": {"allocation": {}}}
    none = {"metadata": {"name": "c4", "uid": "c4"}, "status": {"allocation": {"devices": {"results": None}}}}
    page = listed(stored(held), bare, empty, none)
    event, _ = first_event(["v1"], {f"{GROUP}/v1/resourceclaims": (200, page)}, claims=True)
    assert [found.devices for found in event.objects] == [(("gpu.nvidia.com", "p", "gpu-0"),), (), (), ()]


def test_our_claim_names_the_pod_that_controls_it_and_a_foreign_one_does_not():
    pod = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod-1", "controller": True}
    owners = [[pod], [pod | {"controller": False}], [pod | {"kind": "Other"}], [], None]
    labels = {"switchyard.dev/install": "us"}
    claims = []
    for number, references in enumerate([*owners, [pod]]):
        claim = stored(allocated_claim(f"c{number}", ("gpu.nvidia.com", "p", "gpu-0")))
        claim["metadata"] |= {"ownerReferences": references, "labels": labels if number < len(owners) else {}}
        claims.append(claim)
    event, _ = first_event(["v1"], {f"{GROUP}/v1/resourceclaims": (200, listed(*claims))}, claims=True)
    assert [found.pod for found in event.objects] == ["pod-1", "", "", "", "", ""]


STRANGE: dict[str, dict[str, Any]] = {
    "no spec": {},
    "no pool": {"spec": {"driver": "gpu.nvidia.com", "nodeName": "n1"}},
    "no devices": {"spec": {"driver": "gpu.nvidia.com", "pool": {"name": "p"}, "devices": None}},
    "nobody's driver": {"spec": {"driver": "x" * 9999, "pool": {"name": "ü\u0000"}, "devices": [{"name": "a"}]}},
    "empty device": {"spec": {"driver": "gpu.nvidia.com", "nodeName": "n1", "devices": [{}, {"basic": None}]}},
    "unicode": {
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "\u202eüñ",
            "devices": [
                {"name": "💥", "attributes": {"type": {"string": "gpu"}, "productName": {"string": "\u0000ü"}}}
            ],
        }
    },
    "attributes of every type": {
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "n1",
            "devices": [
                {
                    "name": "a",
                    "attributes": {"type": {"int": -1}, "x/y/z": {"bool": True}, "/": {}, "p": {"strings": ["a"]}},
                    "capacity": {"memory": {"value": "9" * 500}},
                    "taints": [{}],
                    "consumesCounters": [{}],
                }
            ],
        }
    },
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_slice_neither_breaks_the_list_nor_counts_as_anything(name):
    strange = {"metadata": {"name": "strange", "uid": "s", "resourceVersion": "1"}, **STRANGE[name]}
    page = listed(strange, stored(slice_object("good")))
    event, _ = first_event(["v1"], {f"{GROUP}/v1/resourceslices": (200, page)})
    readings = {found.name: read_pool([found]) for found in event.objects}
    assert sum(sum(units.values()) for units in readings["strange"].offers.values()) == 0
    assert sum(sum(units.values()) for units in readings["good"].offers.values()) == 2


@pytest.mark.parametrize(
    "spec",
    [
        {"pool": {"generation": 1.5}},
        {"pool": {"generation": "1"}},
        {"pool": []},
        {"devices": {"a": 1}},
        {"devices": [{"attributes": {"type": "gpu"}}]},
        {"driver": 5},
    ],
)
def test_what_no_api_server_would_write_is_told_as_such(spec):
    async def body():
        page = listed({"metadata": {"name": "s"}, "spec": spec})
        async with serving(behaving(["v1"], {f"{GROUP}/v1/resourceslices": (200, page)})) as (driver, _):
            await anext(driver.watch_slices())

    with pytest.raises(Ambiguous):
        asyncio.run(body())


def test_a_slice_beyond_all_measure_is_refused_by_its_size():
    huge = slice_object("s", devices=LIMITS.body_bytes // 100)

    async def body():
        answers = {f"{GROUP}/v1/resourceslices": (200, listed(stored(huge)))}
        async with serving(behaving(["v1"], answers)) as (driver, _):
            await anext(driver.watch_slices())

    with pytest.raises(Ambiguous):
        asyncio.run(body())


@pytest.mark.parametrize("group", [b"{", {"versions": 3}, {"versions": [{"version": 3}]}, b"\xff"])
def test_a_group_that_cannot_be_read_is_told_as_such(group):
    async def behave(request: Connection) -> None:
        await request.answer(200, group)

    async def body():
        async with serving(behave) as (driver, _):
            await anext(driver.watch_slices())

    with pytest.raises(Ambiguous):
        asyncio.run(body())


def test_a_cluster_without_it_is_asked_again_after_a_while_and_lives_meanwhile():
    turns = [[], ["v1"]]
    answers = {f"{GROUP}/v1/resourceslices": (200, listed(stored(slice_object("s1"))))}

    async def behave(request: Connection) -> None:
        versions = turns.pop(0) if request.target == GROUP and len(turns) > 1 else turns[0]
        await behaving(versions, answers)(request)

    async def body():
        async with serving(behave) as (driver, _):
            limits = type(LIMITS)(**{**{f: getattr(LIMITS, f) for f in LIMITS.__slots__}, "relist_seconds": 0.2})
            driver._wire.limits = limits
            async with watching(driver.watch_slices()) as watcher:
                await watcher.find("listed", "s1")
            return [event.kind for event in watcher.events]

    kinds = asyncio.run(body())
    assert kinds[0] == "listed"
    assert "alive" in kinds[: kinds.index("listed", 1)]

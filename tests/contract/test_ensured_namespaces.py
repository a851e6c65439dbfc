"""What seeing to a namespace costs: its requests once, then none, until what was asked changes or it turns out to be gone."""

import asyncio

import pytest

from clusters.drivers import Ambiguous, NotThere

from .hostile import Connection, serving, status
from .worlds import job

POLICY = {"metadata": {"namespace": "swy-a", "name": "wall"}, "spec": {}}


def requests_of(use, behave=None):
    """(method, path) of every request that `use(driver)` caused."""

    async def agree(request: Connection) -> None:
        await request.answer(201, {"metadata": {"uid": "u"}})

    async def body():
        async with serving(behave or agree) as (driver, server):
            await use(driver)
            return [(request.method, request.target.partition("?")[0]) for request in server.requests]

    return asyncio.run(body())


MAKE = [
    ("POST", "/api/v1/namespaces"),
    ("PATCH", "/apis/networking.k8s.io/v1/namespaces/swy-a/networkpolicies/wall"),
]
CREATE = ("POST", "/apis/batch/v1/namespaces/swy-a/jobs")


def test_it_is_seen_to_once_however_many_ask_at_the_same_time():
    async def use(driver):
        await asyncio.gather(*(driver.ensure_namespace("swy-a", {"a": "b"}, [POLICY]) for _ in range(20)))
        await driver.ensure_namespace("swy-a", {"a": "b"}, [POLICY])

    assert requests_of(use) == MAKE


def test_other_policies_are_written_although_the_namespace_stands():
    async def use(driver):
        await driver.ensure_namespace("swy-a", {}, [])
        await driver.ensure_namespace("swy-a", {}, [POLICY])

    assert requests_of(use) == [MAKE[0], *MAKE]


def test_a_namespace_that_turns_out_to_be_gone_is_made_again():
    async def use(driver):
        await driver.ensure_namespace("swy-a", {}, [POLICY])
        with pytest.raises(NotThere):
            await driver.create_job(job("swy-a", "train"))
        await driver.ensure_namespace("swy-a", {}, [POLICY])

    async def behave(request: Connection) -> None:
        if request.target.startswith("/apis/batch"):
            await request.answer(404, status(404, "NotFound", 'namespaces "swy-a" not found'))
        else:
            await request.answer(201, {"metadata": {"uid": "u"}})

    assert requests_of(use, behave) == [*MAKE, CREATE, *MAKE]


def test_what_failed_half_way_is_not_remembered():
    failures = iter([True, False])

    async def use(driver):
        with pytest.raises(Ambiguous):
            await driver.ensure_namespace("swy-a", {}, [POLICY])
        await driver.ensure_namespace("swy-a", {}, [POLICY])

    async def behave(request: Connection) -> None:
        is_policy = request.method == "PATCH"
        if is_policy and next(failures):
            await request.answer(500, status(500, "InternalError", "etcd is away"))
        else:
            await request.answer(201, {"metadata": {"uid": "u"}})

    assert requests_of(use, behave) == [*MAKE, *MAKE]

"""What seeing to a namespace costs: its requests once, then none, until what was asked changes or it turns out to be gone."""

import asyncio

import pytest

from clusters.drivers import Ambiguous, NotThere, Refused
from tests.scripted_server import Connection, serving, status

from .manifests import job

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


TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"namespace": "swy-a", "name": "two"},
    "spec": {"metadata": {}, "spec": {"devices": {"requests": [{"name": "d", "exactly": {"count": 2}}]}}},
}


def serving_devices(version: str, *, gone_once: bool = False):
    """A server of this version of the API; with `gone_once` the namespace is gone when the first Job is created."""
    left = [gone_once]

    async def behave(request: Connection) -> None:
        if request.target == "/apis/resource.k8s.io":
            await request.answer(200, {"versions": [{"version": version}]} if version else {})
        elif request.target.startswith("/apis/batch") and left[0]:
            left[0] = False
            await request.answer(404, status(404, "NotFound"))
        else:
            await request.answer(201, {"metadata": {"uid": "u"}})

    return behave


PUT = [
    ("GET", "/apis/resource.k8s.io"),
    ("PATCH", "/apis/resource.k8s.io/v1/namespaces/swy-a/resourceclaimtemplates/two"),
]


def test_a_template_is_seen_to_once_however_many_ask():
    async def use(driver):
        await asyncio.gather(*(driver.ensure_claim_template(TEMPLATE) for _ in range(20)))
        await driver.ensure_claim_template(TEMPLATE)

    assert requests_of(use, serving_devices("v1")) == PUT


def test_a_template_is_made_again_once_its_namespace_turned_out_to_be_gone():
    async def use(driver):
        await driver.ensure_claim_template(TEMPLATE)
        with pytest.raises(NotThere):
            await driver.create_job(job("swy-a", "train"))
        await driver.ensure_claim_template(TEMPLATE)

    assert requests_of(use, serving_devices("v1", gone_once=True)) == [*PUT, CREATE, *PUT]


def test_the_oldest_version_is_told_in_its_own_words():
    async def body():
        async with serving(serving_devices("v1beta1")) as (driver, server):
            await driver.ensure_claim_template(TEMPLATE)
            return server.requests[1]

    sent = asyncio.run(body())
    assert sent.target.startswith("/apis/resource.k8s.io/v1beta1/namespaces/swy-a/resourceclaimtemplates/two?")
    assert b'"apiVersion":"resource.k8s.io/v1beta1"' in sent.body
    assert b'"requests":[{"name":"d","count":2}]' in sent.body


def test_where_no_version_is_served_that_we_know_nothing_is_sent():
    async def use(driver):
        with pytest.raises(Refused):
            await driver.ensure_claim_template(TEMPLATE)

    assert requests_of(use, serving_devices("")) == PUT[:1]

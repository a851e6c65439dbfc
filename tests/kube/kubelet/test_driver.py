"""The driver and rendered Jobs on nodes that run pods."""

import asyncio
from contextlib import suppress
from uuid import uuid4

import pytest

from clusters.drivers import DriverError
from clusters.drivers.kubernetes.driver import KubernetesDriver
from clusters.engine.quantities import parse
from devtools.localfleet.admin import client
from federation.engine.objects.rendering import Devices, Identity, namespace_labels, render_job
from foundation.ids import new_id
from tests.builders import stored_spec
from tests.contract import test_driver as promises
from tests.contract import test_places as places
from tests.contract.worlds import INSTALL, address_of, until
from tests.kube.conftest import gateway_token

pytestmark = pytest.mark.kube


@pytest.fixture(autouse=True, scope="module")
def closed_pretender(plane):
    """What the scheduler places then runs. The node opens again: `create_nodes` waits until all nodes are open."""

    def close(http, *, is_closed):
        merge = {"Content-Type": "application/merge-patch+json"}
        change = {"spec": {"unschedulable": is_closed}}
        http.patch("/api/v1/nodes/pretend", json=change, headers=merge).raise_for_status()

    with client(plane) as http:
        close(http, is_closed=True)
        yield
        close(http, is_closed=False)


def job_of(whose, *, beside):
    stored = stored_spec(pod={"cpu": "100m", "memory": "64Mi", "command": ["sh", "-c", "sleep 1"], **beside})
    return render_job(stored, 0, whose, Devices())


async def run_to_its_end(plane, made):
    """The pod of a Job as the driver sees it at its end, and the logs of its containers."""
    driver = KubernetesDriver(address_of(plane, gateway_token(plane)), INSTALL)
    space, name = made["metadata"]["namespace"], made["metadata"]["name"]
    try:
        await driver.ensure_namespace(space, namespace_labels(INSTALL, "t"))
        uid = await driver.create_job(made)
        await driver.release_job(space, name, uid, {"spec": {"nodeSelector": None}})
        [found] = await until_true(driver, space, name)
        names = [one["name"] for one in made["spec"]["template"]["spec"]["initContainers"]]
        logs = {}
        for one in names:
            with suppress(DriverError):
                logs[one] = await driver.read_log(space, found.name, tail_lines=9, limit_bytes=999, container=one)
        return found, logs
    finally:
        await driver.close()


async def until_true(driver, space, name):
    async def over():
        pods = await driver.list_pods(space, name)
        return pods if pods and pods[0].phase in ("Succeeded", "Failed") else None

    await until(over)
    return await driver.list_pods(space, name)


def step(script):
    return {"image": "python", "command": ["sh", "-c", script]}


def test_a_rendered_init_step_that_fails_is_named_and_its_log_is_read(plane):
    whose = Identity(INSTALL, uuid4(), "acme", new_id(), new_id(), 1, "0" * 32)
    steps = [step("echo ready > /scratch/data"), step("cat /scratch/data; exit 3"), step("echo never")]
    sidecar = {"name": "beside", **step("sleep 3600"), "cpu": "50m", "memory": "32Mi"}
    made = job_of(whose, beside={"init": steps, "scratch": {"size": "1Mi"}, "sidecars": [sidecar]})
    found, logs = asyncio.run(run_to_its_end(plane, made))
    assert (found.phase, found.init_step, found.exit_code) == ("Failed", 2, 3)
    assert found.finished_at is not None
    assert (logs["init-1"], logs["init-2"]) == ("", "ready\n")
    assert "init-3" not in logs
    assert parse(found.requests["cpu"]) == parse("150m")
    assert parse(found.requests["memory"]) == parse("96Mi")


def test_a_rendered_sidecar_ends_with_its_program(plane):
    whose = Identity(INSTALL, uuid4(), "acme", new_id(), new_id(), 1, "0" * 32)
    sidecar = {"name": "beside", **step("trap 'echo over; exit 0' TERM; echo up; while :; do sleep 0.1; done")}
    made = job_of(whose, beside={"sidecars": [{**sidecar, "cpu": "50m", "memory": "32Mi"}]})
    found, logs = asyncio.run(run_to_its_end(plane, made))
    assert (found.phase, found.init_step, found.exit_code) == ("Succeeded", None, 0)
    assert logs["beside"] == "up\nover\n"


@pytest.mark.parametrize(
    "promise",
    [
        promises.test_a_job_created_suspended_does_nothing_until_it_is_released,
        promises.test_pods_report_their_node_times_and_exit_codes,
        places.test_a_node_may_be_required_by_its_name_and_wishes_are_added_up,
        places.test_pods_that_do_not_fit_wait,
        promises.test_deleting_a_job_takes_its_pods_along_and_can_be_said_only_once,
    ],
)
def test_the_driver_sees_on_nodes_that_run_what_it_sees_on_others(promise, world):
    promise(world)

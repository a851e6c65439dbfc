"""A gang on a real control plane whose scheduler finds a node for one of its pods only."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from federation.engine.in_part import PATIENCE, Part, Size, Wait
from federation.operations.part_looks import pods_unless_in_part
from foundation.clock import now

from .test_meeting import GANG, POD, used
from .test_meeting import plane as plane
from .test_meeting import token as token

pytestmark = pytest.mark.kube
TOO_LARGE = {**POD, "name": "worker", "cpu": "1024"}
IN_PART: dict[str, Any] = {**GANG, "pod_sets": [{**POD, "name": "head"}, TOO_LARGE]}


def test_the_clusters_own_answer_decides_whether_only_a_part_runs(plane, token):
    async def look(gang):
        names = [job["metadata"]["name"] for job in gang.jobs]
        pods = await _settled(gang, names)
        at = now()
        waits = [pod for pod in pods if not pod.node]
        old = tuple(Wait(pod.uid, at - PATIENCE) for pod in waits)
        new = tuple(Wait(pod.uid, at - PATIENCE + timedelta(minutes=1)) for pod in waits)
        answers = []
        for known in (old, new):
            overdue = {1: Part(1, Size(1, 1, 1), waits=known).overdue(at)}
            items = [SimpleNamespace(position=n, name=name, uid=gang.uids[name]) for n, name in enumerate(names)]
            attempt: Any = SimpleNamespace(objects=items, namespace=gang.namespace, overdue=overdue)
            answers.append(await pods_unless_in_part(gang.driver, attempt))
        return [pod.reason for pod in waits], answers

    (words,), (confirmed, refuted) = used(plane, token, look, IN_PART)
    assert (confirmed, len(refuted)) == (None, 2)
    assert words.startswith("Unschedulable: 0/")


async def _settled(gang, names):
    """Its pods, when one has a node and the scheduler has said why the other has none."""
    async with asyncio.timeout(30):
        while True:
            pods = [pod for name in names for pod in await gang.driver.list_pods(gang.namespace, name)]
            if any(pod.node for pod in pods) and any(pod.reason.startswith("Unschedulable") for pod in pods):
                return pods
            await asyncio.sleep(0.1)

"""A gateway of which everything can be broken, and the judgement of what it made of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from devtools.localfleet import ControlPlane
from devtools.localfleet.admin import client
from devtools.oracle import JOB_LABEL, Witness, read_witness
from devtools.trial import Gateway, start_gateway
from tests.faults.databases import Databases
from tests.faults.proxy import LyingProxy
from tests.journeys.workload import Run, prepare, wait_for

SETTLED_SECONDS = 180
REMOVED_SECONDS = 180
SKEWED = Path(__file__).parent / "skewed"
"""Its `sitecustomize` gives processes wrong clocks."""


@dataclass(slots=True)
class Stand:
    """The gateway, and all that it depends on."""

    gateway: Gateway
    planes: Sequence[ControlPlane]
    proxies: Mapping[str, LyingProxy]
    databases: Databases
    flags: Path

    def plane(self, name: str) -> ControlPlane:
        """The control plane of this name."""
        return next(plane for plane in self.planes if plane.name == name)

    def state_of(self, name: str) -> str:
        """The cluster's state, as the gateway shows it."""
        return str(self._shown(name)["state"])

    def findings_of(self, name: str) -> list[str]:
        """The codes of what the gateway shows against the cluster."""
        return [reason["code"] for reason in self._shown(name)["reasons"]]

    def _shown(self, name: str) -> dict[str, Any]:
        return next(cluster for cluster in self.gateway.items("/clusters") if cluster["name"] == name)

    def kill_all(self, role: str) -> None:
        """`kill -9` of the role's main process and of all that it started."""
        for process in self.gateway.processes(role):
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue

    def jobs_on(self, plane: ControlPlane) -> list[dict[str, Any]]:
        """The Jobs of ours there, as the API server has them."""
        with client(plane) as http:
            found = http.get("/apis/batch/v1/jobs", params={"labelSelector": JOB_LABEL}).raise_for_status()
            items: list[dict[str, Any]] = found.json()["items"]
            return items


@dataclass
class FaultRun(Run):
    """Jobs on their way, and how each may end: if nothing is said of it, in success."""

    may_end: dict[str, frozenset[str]] = field(default_factory=dict)

    def submit_that_may_end(self, spec: Mapping[str, Any], *ends: str) -> str:
        """The id of the accepted job, which may end so."""
        job_id = self.submit(spec)
        self.may_end[job_id] = frozenset(ends)
        return job_id

    def false_ends(self) -> list[str]:
        """Jobs that ended as they may not."""
        told = {item["id"]: item for item in self.items()}
        return [
            f"{item['name']} {item['state']}: {item['reason']}"
            for job_id, item in told.items()
            if item["state"] not in self.may_end.get(job_id, {"succeeded"})
        ]


def start_behind(
    home: Path,
    planes: Sequence[ControlPlane],
    proxies: Mapping[str, LyingProxy],
    databases: Databases,
    flags: Path,
    skews: Path,
    **settings: str,
) -> Stand:
    """A gateway that reaches its database through relays, and its clusters through proxies; with further settings."""
    gateway = start_gateway(
        home,
        SWITCHYARD_CLUSTER_LOST_SECONDS="8",
        SWITCHYARD_CRASH_FLAGS=str(flags),
        SWITCHYARD_TEST_SKEWS=str(skews),
        PYTHONPATH=str(SKEWED),
        DATABASE_URL=databases.runtime_url,
        SWITCHYARD_OWNER_DATABASE_URL=databases.owner_url,
        **settings,
    )
    try:
        for plane in planes:
            proxy = proxies[plane.name]
            gateway.register(plane, server=proxy.address, ca_pem=proxy.ca_pem)
        prepare(gateway)
    except BaseException:
        gateway.stop(quickly=True)
        raise
    return Stand(gateway, planes, proxies, databases, flags)


def judge_ends(run: FaultRun) -> None:
    """All ended as they may."""
    run.wait_until_all_ended()
    assert run.false_ends() == []


def judge_bills(stand: Stand, runs: Mapping[str, FaultRun]) -> list[str]:
    """What is wrong with runs that have ended, by name: no job was lost or run twice, each is billed for what ran, and nothing is
    left of the cancelled.
    """
    found = []

    def judge(check: Callable[[FaultRun], None]) -> None:
        for name, run in runs.items():
            try:
                check(run)
            except AssertionError as fault:
                found.append(f"{name}: {fault}")

    judge(lambda run: run.wait_until_settled(SETTLED_SECONDS))
    witness = read_witness({plane.name: plane.layout.audit_log for plane in stand.planes})
    judge(lambda run: _judge_bill(stand, run, witness))
    return found


def _judge_bill(stand: Stand, run: FaultRun, witness: Witness) -> None:
    verdict = run.verdict(witness)
    assert verdict.is_clean, verdict
    cancelled = {job_id for job_id, state in run.states().items() if state == "cancelled"}
    if cancelled:
        wait_for(lambda: not left_of(stand, cancelled), "nothing is left of what was cancelled", REMOVED_SECONDS)


def left_of(stand: Stand, job_ids: set[str]) -> list[str]:
    """Names of objects of these jobs that still exist."""
    return [
        item["metadata"]["name"]
        for plane in stand.planes
        for item in stand.jobs_on(plane)
        if item["metadata"]["labels"][JOB_LABEL] in job_ids
    ]

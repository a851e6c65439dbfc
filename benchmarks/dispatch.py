"""Submit → placed, created and released on three real API servers, in the shape of MultiKueue's own benchmark.

Three control planes of etcd and kube-apiserver only; nothing runs, so what is measured is the gateway and the API.
(a) one sequential HTTP client submits jobs; the clock runs from the first submit to the last job released on its
cluster, as the API servers' own watches report it. (b) a backlog of queued jobs is drained. (c) in the same run, a bare
asyncio client sends the same creates and patches, each job's patch after its create as the gateway must: the limit of
this host, with rates counted as in (b). Creates alone and patches alone are measured too.
"""

import argparse
import asyncio
import http.client
import json
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil

from benchmarks import report
from devtools.localfleet import ControlPlane, start_fleet, stop_fleet
from devtools.localfleet.admin import apply, client, trust
from devtools.trial import ORGANISATION, Gateway, start_gateway

FLEET = Path(__file__).parent / "fleets" / "dispatch.yaml"
IN_FLIGHT = 8
BARE_NAMESPACE = "bare"
DONE_SECONDS = 300
MOST_JOBS = 3900
"""Jobs of each phase: no pod ever ends, and the fleet's 72 nodes have room for 110 pods each."""


@dataclass(slots=True)
class Sightings:
    """When each Job was first seen created and first seen released, by the gateway's job id, on
    this process's clock.
    """

    created: dict[str, float] = field(default_factory=dict)
    released: dict[str, float] = field(default_factory=dict)


class Watch(threading.Thread):
    """Follows one API server's Jobs as an administrator, beside the gateway."""

    def __init__(self, plane: ControlPlane, sightings: Sightings) -> None:
        super().__init__(daemon=True)
        self._http = client(plane, timeout_seconds=600)
        self._sightings = sightings
        self._since = self._http.get("/apis/batch/v1/jobs", params={"limit": 1}).json()["metadata"]["resourceVersion"]

    def run(self) -> None:
        query = {"watch": "1", "resourceVersion": self._since}
        try:
            with self._http.stream("GET", "/apis/batch/v1/jobs", params=query) as lines:
                for line in lines.iter_lines():
                    self._take(line)
        except (httpx.TransportError, httpx.StreamError):
            return  # the fleet was stopped

    def _take(self, line: str) -> None:
        # A full decode of every event would cost this process as much CPU as the gateway spends on its own watch.
        job_id = line.partition('"switchyard.dev/job":"')[2][:36]
        if job_id:
            seen = self._sightings.created if '"suspend":true' in line else self._sightings.released
            seen.setdefault(job_id, time.perf_counter())


def spec(number: int) -> dict[str, Any]:
    """A small CPU job; all are equal except for their name."""
    pods = {"name": "main", "count": 1, "image": "registry.example/job:1", "cpu": "100m", "memory": "64Mi"}
    return {"tenant": ORGANISATION, "name": f"bench-{number}", "strategy": "spread", "pod_sets": [pods]}


def cpu_of(planes: Sequence[ControlPlane]) -> float:
    """CPU seconds that the control planes have spent."""
    processes = [psutil.Process(plane.pid(name)).cpu_times() for plane in planes for name in ("etcd", "kube-apiserver")]
    return sum(times.user + times.system for times in processes)


def requests_of(planes: Sequence[ControlPlane]) -> int:
    """API requests served so far, watches aside, by the API servers' own count."""
    total = 0
    for plane in planes:
        with client(plane) as api:
            lines = api.get("/metrics").text.splitlines()
        counted = (line for line in lines if line.startswith("apiserver_request_total{") and 'verb="WATCH"' not in line)
        total += sum(int(float(line.rpartition(" ")[2])) for line in counted)
    return total


def wait_for(seen: dict[str, float], ids: set[str], what: str) -> None:
    """Returns when every job was seen."""
    deadline = time.monotonic() + DONE_SECONDS
    while not ids <= seen.keys():
        if time.monotonic() > deadline:
            raise SystemExit(f"{len(ids - seen.keys())} of {len(ids)} jobs were not {what} within {DONE_SECONDS} s")
        time.sleep(0.005)


@dataclass(slots=True)
class Meterings:
    """CPU and requests before a phase, to be subtracted from those after it."""

    gateway: Gateway
    planes: Sequence[ControlPlane]

    def read(self) -> dict[str, float]:
        own = psutil.Process().cpu_times()
        return {**self.gateway.cpu_seconds(), "clusters": cpu_of(self.planes), "client": own.user + own.system}


def plain_client(gateway: Gateway) -> Callable[[dict[str, Any]], str]:
    """Submits a job over one persistent connection and returns its id. The client's own CPU time should not affect the
    result.
    """
    connection = http.client.HTTPConnection(urlsplit(gateway.url).netloc)
    headers = {"Authorization": f"Bearer {gateway.token}", "Content-Type": "application/json"}

    def submit(body: dict[str, Any]) -> str:
        connection.request("POST", "/api/v1/jobs", json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != http.client.CREATED:
            raise SystemExit(f"{answer.status}: {text.decode()}")
        return str(json.loads(text)["id"])

    return submit


def sequential(gateway: Gateway, planes: Sequence[ControlPlane], seen: Sightings, jobs: int) -> dict[str, float]:
    """Phase (a)."""
    meter = Meterings(gateway, planes)
    requests_before, cpu_before = requests_of(planes), meter.read()
    began = time.perf_counter()
    submitted = {}
    submit = plain_client(gateway)
    for number in range(jobs):
        at = time.perf_counter()
        submitted[submit(spec(number))] = at
    accepted = time.perf_counter()
    wait_for(seen.released, set(submitted), "released")
    ended = max(seen.released[job_id] for job_id in submitted)
    cpu = {name: value - cpu_before[name] for name, value in meter.read().items()}
    latencies = [(seen.released[job_id] - at) * 1000 for job_id, at in submitted.items()]
    return {
        "jobs_per_second": jobs / (ended - began),
        "accepted_per_second": jobs / (accepted - began),
        "requests_per_job": (requests_of(planes) - requests_before) / jobs,
        "p50_ms": report.percentile(latencies, 0.50),
        "p95_ms": report.percentile(latencies, 0.95),
        "p99_ms": report.percentile(latencies, 0.99),
        "cpu_ms_per_job": 1000 * sum(cpu.values()) / jobs,
        "gateway_cpu_ms_per_job": 1000 * sum(v for name, v in cpu.items() if name not in {"clusters", "client"}) / jobs,
        **{f"{name.removesuffix('-server')}_cpu_ms_per_job": 1000 * value / jobs for name, value in cpu.items()},
    }


def backlog(gateway: Gateway, clusters: Sequence[str], seen: Sightings, jobs: int) -> dict[str, float]:
    """Phase (b): clusters closed, jobs queued, clusters opened; rates from the opening."""
    for cluster_id in clusters:
        gateway.create(f"/clusters/{cluster_id}/cordon", {})
    answer = gateway.create("/jobs/bulk", {"jobs": [spec(10_000 + number) for number in range(jobs)]})
    ids = {item["job"]["id"] for item in answer["items"]}
    time.sleep(2)
    began = time.perf_counter()
    for cluster_id in clusters:
        gateway.create(f"/clusters/{cluster_id}/uncordon", {})
    wait_for(seen.released, ids, "released")
    return {
        "backlog_created_per_second": jobs / (max(seen.created[job_id] for job_id in ids) - began),
        "backlog_released_per_second": jobs / (max(seen.released[job_id] for job_id in ids) - began),
    }


async def bare(planes: Sequence[ControlPlane], jobs: int) -> dict[str, float]:
    """Phase (c): a Job such as the gateway made, created and released by nothing but HTTP."""
    template = next(found for plane in planes if (found := _template(plane)))
    for plane in planes:
        apply(plane, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": BARE_NAMESPACE}}])
    queues = [range(index, jobs, len(planes)) for index in range(len(planes))]
    servers = [
        httpx.AsyncClient(
            base_url=plane.server,
            verify=trust(plane),
            headers={"Authorization": f"Bearer {plane.admin_token}"},
            timeout=30,
        )
        for plane in planes
    ]

    async def each(run: str, calls: Sequence[str]) -> dict[str, float]:
        """Jobs a second up to the last of each call."""
        began, last = time.perf_counter(), dict.fromkeys(calls, 0.0)
        await asyncio.gather(
            *(_drive(server, queue, template, run, last) for server, queue in zip(servers, queues, strict=True))
        )
        return {call: jobs / (at - began) for call, at in last.items()}

    both = await each("both", ["create", "release"])
    created = await each("alone", ["create"])
    released = await each("alone", ["release"])
    rates = {
        "bare_created_per_second": both["create"],
        "bare_released_per_second": both["release"],
        "bare_creates_alone_per_second": created["create"],
        "bare_releases_alone_per_second": released["release"],
    }
    for server in servers:
        await server.aclose()
    return rates


def _template(plane: ControlPlane) -> dict[str, Any] | None:
    with client(plane) as api:
        items = api.get("/apis/batch/v1/jobs", params={"labelSelector": "switchyard.dev/job", "limit": 1}).json()[
            "items"
        ]
    if not items:
        return None
    spec_ = items[0]["spec"]
    spec_["suspend"] = True
    for generated in ("selector", "manualSelector"):
        spec_.pop(generated, None)
    labels = {k: v for k, v in spec_["template"]["metadata"]["labels"].items() if k.startswith("switchyard.dev/")}
    spec_["template"]["metadata"] = {"labels": {**labels, "switchyard.dev/install": "bare"}}
    spec_["template"]["spec"].pop("affinity", None)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"namespace": BARE_NAMESPACE, "labels": {**labels, "switchyard.dev/install": "bare"}},
        "spec": spec_,
    }


async def _drive(
    server: httpx.AsyncClient, queue: Sequence[int], template: dict[str, Any], run: str, last: dict[str, float]
) -> None:
    """Sends the calls that `last` names for each job of the queue, and notes there when the last of
    each was answered.
    """
    namespace = template["metadata"]["namespace"]
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    numbers = iter(queue)
    patch = json.dumps({"spec": {"suspend": False}})

    async def send(call: str, name: str) -> None:
        if call == "create":
            body = json.dumps({**template, "metadata": {**template["metadata"], "name": name}})
            answer = await server.post(path, content=body, headers={"Content-Type": "application/json"})
        else:
            headers = {"Content-Type": "application/merge-patch+json"}
            answer = await server.patch(f"{path}/{name}", content=patch, headers=headers)
        answer.raise_for_status()
        last[call] = time.perf_counter()

    async def work() -> None:
        for number in numbers:
            for call in last:
                await send(call, f"bare-{run}-{number}")

    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000, help=f"of each phase, at most {MOST_JOBS}")
    options = parser.parse_args()
    if not 0 < options.jobs <= MOST_JOBS:
        parser.error(f"--jobs is 1 to {MOST_JOBS}: the fleet has no room for more")
    report.conditions(
        kubernetes="1.36.2, etcd + kube-apiserver only", clusters=3, jobs=options.jobs, in_flight=IN_FLIGHT
    )
    with tempfile.TemporaryDirectory(prefix="switchyard-bench-", dir="/var/tmp") as folder:
        root = Path(folder)
        root.chmod(0o755)
        planes = start_fleet(3, root / "fleet", fleet_file=FLEET, api_only=True)
        gateway = start_gateway(root / "home")
        try:
            figures = measure(gateway, planes, options.jobs)
        finally:
            gateway.stop()
            stop_fleet(planes)
    report.table([{"figure": name, "value": value} for name, value in figures.items()])
    report.last_line(figures)


def measure(gateway: Gateway, planes: Sequence[ControlPlane], jobs: int) -> dict[str, float]:
    """All three phases, after a warm-up that makes the namespace and opens the connections."""
    clusters = [gateway.register(plane)["id"] for plane in planes]
    seen = Sightings()
    for plane in planes:
        Watch(plane, seen).start()
    warm = {gateway.create("/jobs", spec(-number))["id"] for number in range(1, 31)}
    wait_for(seen.released, warm, "released")
    return {
        **sequential(gateway, planes, seen, jobs),
        **backlog(gateway, clusters, seen, jobs),
        **asyncio.run(bare(planes, jobs)),
    }


if __name__ == "__main__":
    main()

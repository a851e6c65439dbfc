"""Jobs of every kind for whole-gateway tests, and what each must come to."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from devtools.localfleet import ControlPlane, start_fleet, stop_fleet
from devtools.oracle import SeenPod, Verdict, Witness, judge, judge_usage
from devtools.trial import Gateway
from federation.engine.lifecycle import JobState

TEAM = "acme/research/vision"
PATIENCE_SECONDS = 240
SETTLED_SECONDS = 60
"""An attempt whose pods were not all seen is asked about again with growing pauses."""
ENDED = {"succeeded", "failed", "cancelled"}
OPEN = ",".join(state.value for state in JobState if state.value not in ENDED)


def job(
    name: str,
    *,
    count: int = 1,
    gpu: Mapping[str, Any] | None = None,
    seconds: int = 2,
    exit_code: int = 0,
    **fields: Any,
) -> dict[str, Any]:
    """A job spec of one pod set that runs so long and exits so."""
    pods = {"name": "main", "count": count, "image": "registry.example/job:1", "cpu": "1", "memory": "1Gi"}
    labels = {"sim.switchyard.dev/run-seconds": str(seconds), "sim.switchyard.dev/exit-code": str(exit_code)}
    return {
        "tenant": TEAM,
        "name": name,
        "pod_sets": [pods | ({"gpu": dict(gpu)} if gpu else {})],
        "labels": labels,
        **fields,
    }


def kinds() -> dict[str, dict[str, Any]]:
    """One spec of each kind that the small fleet can run."""
    return {
        "single": job("single", gpu={"count": 1}),
        "model": job("model", gpu={"count": 2, "models": ["A100-40GB", "V100-32GB"]}),
        "node": job("node", gpu={"count": 8, "models": ["H100-80GB"]}, seconds=1),
        "mig": job("mig", gpu={"mig": "1g.10gb", "count": 1}, seconds=3),
        "fraction": job("fraction", gpu={"fraction": "0.5"}),
        "amd": job("amd", gpu={"count": 1, "models": ["MI300X"]}),
        "cpu": job("cpu", seconds=1),
        "parts": job("parts", count=3, completions=5, seconds=1),
        "failing": job("failing", gpu={"count": 1}, exit_code=7),
    }


def prepare(gateway: Gateway) -> None:
    """The team that submits, and prices for whatever the fleet offers."""
    parent = next(item for item in gateway.items("/tenants") if item["path"] == "acme")
    for kind, name in (("department", "research"), ("team", "vision")):
        body = {"name": name, "kind": kind, "parent": parent["path"]}
        parent = gateway.create("/tenants", body, **{"Idempotency-Key": f"tenant-{name}"})
    price(gateway)


def price(gateway: Gateway) -> None:
    """Prices for whatever the clusters offer; what has one keeps it."""
    wait_for(lambda: all(cluster["flavors"] for cluster in gateway.items("/clusters")), "every cluster's inventory")
    for cluster in gateway.items("/clusters"):
        for flavor in cluster["flavors"]:
            amount = "2.500000" if flavor["gpu_model"] else "0.040000"
            body = {"cluster": cluster["name"], "flavor": flavor["name"], "capacity_type": flavor["capacity_type"]}
            body |= {"unit_price": amount, "effective_from": "2026-01-01T00:00:00Z"}
            gateway.create("/prices", body, **{"Idempotency-Key": f"price-{cluster['name']}-{flavor['name']}"})


def wait_for(condition: Any, what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Returns once the condition holds; fails with `what` when it does not in time. A look may cost the gateway a lot: the
    longer one takes, and the longer it did not hold, the longer is the pause until the next one.
    """
    began = time.monotonic()
    deadline = began + seconds
    while True:
        looked_at = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        assert now < deadline, f"not within {seconds} s: {what}"
        time.sleep(min(max(0.2, 4 * (now - looked_at), (now - began) / 8), 1.0))


@dataclass
class Run:
    """Jobs on their way through a gateway."""

    gateway: Gateway
    acked: dict[str, str] = field(default_factory=dict)
    """Job id → what it was submitted as."""
    key: str = field(default_factory=lambda: uuid4().hex)
    """What the idempotency keys of its jobs begin with, and their label."""
    _labelled: set[str] = field(default_factory=set)

    def submit(self, spec: Mapping[str, Any], kind: str = "") -> str:
        """The id of the accepted job; the key makes a repeated send harmless."""
        key = f"{self.key}-{len(self.acked)}"
        labels = {**spec.get("labels", {}), "run": self.key}
        made = self.gateway.create("/jobs", {**spec, "labels": labels}, **{"Idempotency-Key": key})
        self.acked[made["id"]] = kind or spec["name"]
        self._labelled.add(made["id"])
        return str(made["id"])

    def items(self, **query: str) -> list[dict[str, Any]]:
        """The jobs of this run, as the gateway lists them: asked for by their label, unless others submitted some of them. A list of
        all jobs of all runs before costs the gateway more than the jobs do.
        """
        if self._labelled == self.acked.keys():
            query |= {"label": f"run:{self.key}"}
        return [item for item in self.gateway.items("/jobs", **query) if item["id"] in self.acked]

    def states(self) -> dict[str, str]:
        """State by job id."""
        return {item["id"]: item["state"] for item in self.items()}

    def wait_until_all_ended(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Every accepted job is in a terminal state."""
        wait_for(
            lambda: not self._open() and set(self.states().values()) <= ENDED,
            f"all {len(self.acked)} jobs end; {self._told_open()}",
            seconds,
        )

    def _open(self) -> list[dict[str, Any]]:
        """Accepted jobs that have not ended. The list of these alone is short in the end, while that of all is long."""
        return self.items(state=OPEN)

    def _told_open(self) -> str:
        found = [(i["name"], i["state"], (i["reason"] or {}).get("message")) for i in self._open()]
        return f"{len(found)} open: {found[:5]}"

    def wait_until_settled(self, seconds: float = SETTLED_SECONDS) -> None:
        """Every job's cost is final, which is when its usage is complete."""
        try:
            wait_for(lambda: not self._unsettled(), "usage settled", seconds)
        except AssertionError as late:
            raise AssertionError(f"{late}; {self._told_unsettled()}") from None

    def _unsettled(self) -> list[dict[str, Any]]:
        return [item for item in self.items() if item["cost"]["provisional"]]

    def _told_unsettled(self) -> str:
        found = self._unsettled()
        told = [
            (i["name"], i["state"], [*self.gateway.items(f"/jobs/{i['id']}/{what}")])
            for i in found[:3]
            for what in ("attempts", "events")
        ]
        return f"{len(found)} unsettled: {told}"

    def told(self) -> dict[str, dict[str, Any]]:
        """Each job as the gateway shows it, with its attempts."""
        jobs = {item["id"]: item for item in self.items()}
        for job_id, shown in jobs.items():
            shown["attempts"] = list(self.gateway.items(f"/jobs/{job_id}/attempts"))
        return jobs

    def verdict(
        self, witness: Witness, slack_ms: Callable[[SeenPod], int] = lambda _: 0, removed: Collection[str] = ()
    ) -> Verdict:
        """The oracle's judgement of this run, usage included. Jobs of earlier runs are left out, unknown ones are not."""
        others = {item["id"] for item in self.gateway.items("/jobs")} - self.acked.keys()
        witness = witness.without(others)
        verdict = judge(self.acked, self.told(), witness, removed)
        report = self.gateway.get("/usage", group_by="job", **{"from": "2026-01-01", "to": "2030-01-01"})
        billed = {row["job"]: row["gpu_milliseconds"] for row in _rows(report)}
        judge_usage(verdict, billed, witness, self._is_estimated, slack_ms)
        return verdict

    def _is_estimated(self, job_id: str) -> bool:
        return any(event["kind"] == "estimated" for event in self.gateway.items(f"/jobs/{job_id}/events"))


def _rows(report: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    rows: Iterable[Mapping[str, Any]] = report["items"]
    return rows


@contextmanager
def joined(gateway: Gateway, folder: Path, fleet: str, *, audit: bool = False) -> Iterator[ControlPlane]:
    """The one cluster of a fleet file, called like the folder, which is made, as a further cluster of the gateway. Jobs say that
    they run there. At the end its jobs are cancelled and it is removed: the others' jobs must find what they found before. `audit`
    keeps a log of every change there.
    """
    folder.mkdir(mode=0o755)
    fleet_file = folder / "fleet.yaml"
    fleet_file.write_text(fleet)
    planes = start_fleet([folder.name], folder / "fleet", fleet_file=fleet_file, audit=audit)
    try:
        cluster = gateway.register(planes[0])
        price(gateway)
        yield planes[0]
        for item in list(gateway.items("/jobs", state=OPEN)):
            gateway.request("POST", f"/jobs/{item['id']}/cancel", json={})  # it may have ended meanwhile
        wait_for(
            lambda: gateway.request("DELETE", f"/clusters/{cluster['id']}").is_success, f"{folder.name} is removed"
        )
    finally:
        stop_fleet(planes)

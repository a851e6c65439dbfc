"""The main job on real input: jobs of the Alibaba `openb` trace, time-compressed, onto three real control planes.

Jobs are drawn evenly over the trace's pods; their requests are the trace's own, their run times are divided by one
factor. Nodes are cut from the trace's node list, a share of each model for each cluster; every second GPU node of a
model shares its GPUs (ten shares each), since the trace's fractional pods need some. Prices are round numbers of ours.
The oracle outside the product reads the API servers' audit logs.
"""

import argparse
import csv
import io
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
import zstandard

from benchmarks import report
from devtools.localfleet import start_fleet, stop_fleet
from devtools.oracle import Verdict, Witness, judge, judge_usage, read_witness
from devtools.trial import ORGANISATION, Gateway, start_gateway

CLUSTERS = ("rome", "oslo", "lima")
TEAMS = ("ls", "be", "burstable", "guaranteed")
NODES_PER_CLUSTER = 22
SHARES = 10
LONGEST_SECONDS = 20
UNIT_PRICES = {
    "G2": "1.10",
    "G3": "1.90",
    "T4": "0.35",
    "P100": "0.80",
    "V100-16GB": "1.60",
    "V100-32GB": "2.20",
    "A10": "0.90",
}
CPU_PRICE = "0.030000"
PRODUCTS = {
    "G2": ("G2", 24576), "G3": ("G3", 49152), "T4": ("Tesla-T4", 15360), "P100": ("Tesla-P100-PCIE-16GB", 16384),
    "V100M16": ("Tesla-V100-SXM2-16GB", 16384), "V100M32": ("Tesla-V100-SXM2-32GB", 32768), "A10": ("NVIDIA-A10", 24576),
}  # fmt: skip
MODELS = {"V100M16": "V100-16GB", "V100M32": "V100-32GB", "P100": "P100-16GB"}
DONE_SECONDS = 900
CUT_OFF_SECONDS = 1.0
"""Kubernetes truncates starts to whole seconds: each counts as the latest possible time."""


def rows(path: Path) -> list[dict[str, str]]:
    """A CSV file's rows, zstd-compressed or plain."""
    raw = path.read_bytes()
    text = zstandard.ZstdDecompressor().stream_reader(raw).read() if path.suffix == ".zst" else raw
    return list(csv.DictReader(io.StringIO(text.decode())))


def fleet(nodes: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """A fleet file's content: for each cluster its cut of the trace's nodes, the models in the trace's proportions."""
    step = len(nodes) / (NODES_PER_CLUSTER * len(CLUSTERS))
    ordered = sorted(nodes, key=lambda node: (node["model"], node["gpu"], node["sn"]))
    chosen = [ordered[int(index * step)] for index in range(NODES_PER_CLUSTER * len(CLUSTERS))]
    clusters = []
    for place, name in enumerate(CLUSTERS):
        groups = [_group(node, number) for number, node in enumerate(chosen[place :: len(CLUSTERS)])]
        clusters.append({"name": name, "region": f"region-{place}", "provider": "openb", "nodes": groups})
    return {"clusters": clusters}


def _group(node: Mapping[str, str], number: int) -> dict[str, Any]:
    group: dict[str, Any] = {
        "name": f"n{number}", "count": 1, "zone": "a",
        "cpu": int(node["cpu_milli"]) / 1000, "memory_gib": int(node["memory_mib"]) / 1024,
    }  # fmt: skip
    if int(node["gpu"]):
        product, memory_mib = PRODUCTS[node["model"]]
        group |= {"vendor": "nvidia", "model": product, "gpus": int(node["gpu"]), "gpu_memory_mib": memory_mib}
        if number % 2:
            group["timeslice"] = SHARES
    return group


def jobs(pods: Sequence[Mapping[str, str]], wanted: int, arrival_seconds: float) -> list[tuple[float, dict[str, Any]]]:
    """(second of arrival, spec) of `wanted` pods drawn evenly over the trace, in order of creation."""
    placed = [pod for pod in pods if pod["scheduled_time"]]
    drawn = sorted(placed[:: max(1, len(placed) // wanted)][:wanted], key=lambda pod: float(pod["creation_time"]))
    durations = sorted(_duration(pod) for pod in drawn)
    factor = durations[int(len(durations) * 0.9)] / LONGEST_SECONDS
    return [
        (arrival_seconds * index / len(drawn), _spec(pod, max(1, min(LONGEST_SECONDS, round(_duration(pod) / factor)))))
        for index, pod in enumerate(drawn)
    ]


def _duration(pod: Mapping[str, str]) -> float:
    return max(1.0, float(pod["deletion_time"]) - float(pod["scheduled_time"]))


def _spec(pod: Mapping[str, str], seconds: int) -> dict[str, Any]:
    main: dict[str, Any] = {
        "name": "main", "count": 1, "image": "registry.example/job:1",
        "cpu": f"{max(1, int(pod['cpu_milli']))}m", "memory": f"{max(1, int(pod['memory_mib']))}Mi",
    }  # fmt: skip
    count, milli = int(pod["num_gpu"]), int(pod["gpu_milli"])
    models = [MODELS.get(model, model) for model in pod["gpu_spec"].split("|") if model]
    if count and milli < 1000:
        main["gpu"] = {"fraction": f"{milli / 1000:.3f}"}
    elif count:
        main["gpu"] = {"count": count} | ({"models": models} if models else {})
    return {
        "tenant": f"{ORGANISATION}/{pod['qos'].lower()}", "name": pod["name"], "pod_sets": [main],
        "labels": {"sim.switchyard.dev/run-seconds": str(seconds)}, "estimated_seconds": seconds,
    }  # fmt: skip


def prepare(gateway: Gateway) -> None:
    """Teams, and a price for each flavor."""
    for team in TEAMS:
        gateway.create("/tenants", {"name": team, "kind": "team", "parent": ORGANISATION})
    deadline = time.monotonic() + 60
    while not all(cluster["flavors"] for cluster in gateway.items("/clusters")):
        if time.monotonic() > deadline:
            raise SystemExit("the clusters' nodes were not seen within 60 s")
        time.sleep(0.2)
    for cluster in gateway.items("/clusters"):
        for flavor in cluster["flavors"]:
            shares = SHARES if flavor["sharing"].startswith("timeslice") else 1
            unit = float(_price_of(flavor["gpu_model"])) / shares if flavor["gpu_model"] else float(CPU_PRICE)
            body = {"cluster": cluster["name"], "flavor": flavor["name"], "capacity_type": flavor["capacity_type"]}
            gateway.create("/prices", body | {"unit_price": f"{unit:.6f}", "effective_from": "2026-01-01T00:00:00Z"})


def _price_of(model: str) -> str:
    return UNIT_PRICES.get(model) or UNIT_PRICES[model.partition("-")[0]]


def submit(gateway: Gateway, arrivals: Iterable[tuple[float, dict[str, Any]]]) -> tuple[list[str], Counter[str]]:
    """The accepted jobs' ids, submitted at their scheduled times; and refusals by code."""
    accepted, refused = [], Counter[str]()
    began = time.monotonic()
    for due, spec in arrivals:
        time.sleep(max(0.0, began + due - time.monotonic()))
        answer = gateway.request("POST", "/jobs", json=spec, headers={"Idempotency-Key": spec["name"]})
        if answer.is_success:
            accepted.append(answer.json()["id"])
        else:
            refused[answer.json()["code"]] += 1
    return accepted, refused


def finish(gateway: Gateway, accepted: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Each job as the gateway reports it at the end, attempts included."""
    wanted, deadline = set(accepted), time.monotonic() + DONE_SECONDS
    while True:
        told = {job["id"]: job for job in gateway.items("/jobs") if job["id"] in wanted}
        if all(job["finished_at"] and not job["cost"]["provisional"] for job in told.values()):
            break
        if time.monotonic() > deadline:
            open_ = [job for job in told.values() if not job["finished_at"]]
            raise SystemExit(f"{len(open_)} jobs have not ended, such as {open_[:3]}")
        time.sleep(1)
    for job_id, job in told.items():
        job["attempts"] = list(gateway.items(f"/jobs/{job_id}/attempts"))
    return told


def seconds_between(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def utilisation(witness: Witness, nodes: Mapping[str, int]) -> float:
    """GPU-seconds of pods, in units of their flavor, over what the clusters' devices had from first
    start to last end.
    """
    starts = [pod.started_at for pod in witness.pods.values() if pod.gpus and pod.started_at]
    ends = [pod.finished_at for pod in witness.pods.values() if pod.gpus and pod.finished_at]
    if not (starts and ends):
        return 0.0
    span = (max(ends) - min(starts)).total_seconds()
    used = sum(pod.milliseconds * pod.gpus for pod in witness.pods.values()) / 1000
    return 100 * used / (span * sum(nodes.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=Path("../shared/traces/openb"))
    parser.add_argument("--pods", default="openb_pod_list_default.csv.zst")
    parser.add_argument("--nodes", default="openb_node_list_all_node.csv.zst")
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--arrival-seconds", type=float, default=60)
    options = parser.parse_args()
    if not (options.traces / options.pods).exists():
        raise SystemExit(f"no trace at {options.traces / options.pods}: give its folder with --traces")
    report.conditions(kubernetes="1.36.2 with scheduler, controller manager and KWOK", clusters=3, jobs=options.jobs, arrival_seconds=options.arrival_seconds)  # fmt: skip
    plan = fleet(rows(options.traces / options.nodes))
    arrivals = jobs(rows(options.traces / options.pods), options.jobs, options.arrival_seconds)
    with tempfile.TemporaryDirectory(prefix="switchyard-bench-", dir="/var/tmp") as folder:
        root = Path(folder)
        root.chmod(0o755)
        (root / "fleet.yaml").write_text(yaml.safe_dump(plan))
        planes = start_fleet(list(CLUSTERS), root / "fleet", fleet_file=root / "fleet.yaml", audit=True)
        gateway = start_gateway(root / "home")
        try:
            for plane in planes:
                gateway.register(plane)
            prepare(gateway)
            units = {
                f"{c['name']}/{f['name']}": f["total"]
                for c in gateway.items("/clusters")
                for f in c["flavors"]
                if f["gpu_model"]
            }
            accepted, refused = submit(gateway, arrivals)
            told = finish(gateway, accepted)
            witness = read_witness({plane.name: plane.layout.audit_log for plane in planes})
            verdict = judge(accepted, told, witness)
            used = gateway.get("/usage", group_by="job", **{"from": "2026-01-01", "to": "2030-01-01"})
            judge_usage(verdict, {row["job"]: row["gpu_milliseconds"] for row in used["items"]}, witness)
            by_tenant = gateway.get("/usage", group_by="tenant", **{"from": "2026-01-01", "to": "2030-01-01"})
        finally:
            gateway.stop()
            stop_fleet(planes)
    show(told, refused, verdict, by_tenant, utilisation(witness, units))


def show(
    told: Mapping[str, Any], refused: Counter[str], verdict: Verdict, usage: Mapping[str, Any], used_percent: float
) -> None:
    """Prints placement, waiting, utilisation, cost, and the oracle's verdict."""
    places: dict[tuple[str, str], int] = defaultdict(int)
    for job in told.values():
        places[job["attempts"][-1]["cluster"], job["attempts"][-1]["placement"]["flavor"]] += 1
    print("\nplacement")
    report.table(
        [{"cluster": cluster, "flavor": flavor, "jobs": count} for (cluster, flavor), count in sorted(places.items())]
    )
    print("\ncost by tenant")
    report.table(
        [
            {"tenant": row["tenant"], "gpu hours": row["gpu_hours"], "cost": row["cost"]["amount"]}
            for row in usage["items"]
        ]
    )
    waits = [
        seconds_between(job["created_at"], job["started_at"]) + CUT_OFF_SECONDS
        for job in told.values()
        if job["started_at"]
    ]
    print("\noracle:", "clean" if verdict.is_clean else verdict)
    report.last_line(
        {
            "jobs": len(told),
            "succeeded": sum(job["state"] == "succeeded" for job in told.values()),
            "refused": sum(refused.values()),
            "wait_p50_s": report.percentile(waits, 0.50),
            "wait_p95_s": report.percentile(waits, 0.95),
            "utilisation_percent": used_percent,
            "cost": usage["totals"]["cost"]["amount"],
            "lost": len(verdict.lost),
            "ran_twice": len(verdict.ran_twice),
            "misplaced": len(verdict.misplaced),
            "misbilled": len(verdict.misbilled),
        }
    )


if __name__ == "__main__":
    main()

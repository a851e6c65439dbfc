"""The cost of the published manifest's admission policies for an API server: `make bench-admission-policies`.

One real control plane without nodes. In turn it has no policies at all, those of an earlier manifest (EARLIER=file
names another one), and the published ones; each time the same Jobs are created suspended and released with the
published account's token, and the API server's own CPU time is read until every pod exists. The turns repeat, so a host
that becomes slower slows each turn equally; the ratio is the result.
"""

import argparse
import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml

from benchmarks import report
from clusters.drivers.address import ClusterAddress, Credential
from clusters.drivers.kubernetes.driver import KubernetesDriver
from clusters.engine.escapes import duties, escapes
from devtools.localfleet import ControlPlane, start_fleet, stop_fleet
from devtools.localfleet.admin import apply, client, mint_token

PROJECT = Path(__file__).resolve().parent.parent
PUBLISHED = PROJECT / "docs" / "reference" / "cluster-access.yaml"
EARLIER = Path(
    os.environ.get("EARLIER", PROJECT / "tests" / "kube" / "manifests" / "cluster_access_before_bounds.yaml")
)
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
NAMESPACE = "swy-bench-00000000"
JOBS, TURNS, AT_ONCE = 100, 4, 8
POLICIES = {"none": None, "earlier": EARLIER, "published": PUBLISHED}


def main() -> None:
    """Prints conditions, a table, and one JSON object."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    report.conditions(jobs_a_turn=JOBS, turns=TURNS, earlier=EARLIER.name)
    with tempfile.TemporaryDirectory(prefix="switchyard-bench-", dir="/var/tmp") as folder:
        [plane] = start_fleet(("bench",), Path(folder), with_nodes=False)
        try:
            figures = _measure(plane)
        finally:
            stop_fleet([plane])
    least = {name: min(values) for name, values in figures.items()}
    middle = {name: report.median(values) for name, values in figures.items()}
    rows = [
        {
            "policies": name,
            "CPU ms a job, median": middle[name],
            "least": least[name],
            "against none": f"{middle[name] / middle['none']:.2f}",
        }
        for name in POLICIES
    ]
    report.table(rows)
    report.last_line(
        {f"cpu_ms_per_job_{name}": value for name, value in middle.items()}
        | {f"ratio_{name}": middle[name] / middle["none"] for name in ("earlier", "published")}
    )


def _measure(plane: ControlPlane) -> dict[str, list[float]]:
    objects = [found for found in yaml.safe_load_all(PUBLISHED.read_text(encoding="utf-8")) if found]
    apply(plane, [found for found in objects if "Admission" not in found["kind"]])
    [space] = (each.manifest for each in duties((), "bench") if each.resource == "namespaces")
    apply(plane, [{**space, "metadata": {**space["metadata"], "name": NAMESPACE}}])
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}}
    apply(plane, [account])
    token = mint_token(plane, "switchyard-system", "switchyard")
    figures: dict[str, list[float]] = {name: [] for name in POLICIES}
    for turn in range(TURNS + 1):
        for name, path in POLICIES.items():
            _put(plane, path)
            figure = asyncio.run(_turn(plane, token, name))
            print(f"turn {turn}, {name}: {figure:.2f} ms", flush=True)
            # the first turn warms up
            if turn:
                figures[name].append(figure)
    return figures


def _put(plane: ControlPlane, path: Path | None) -> None:
    """Installs the policies of this file, and no others."""
    with client(plane) as http:
        for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            for found in http.get(f"{ADMISSION}/{kind}").raise_for_status().json()["items"]:
                http.delete(f"{ADMISSION}/{kind}/{found['metadata']['name']}").raise_for_status()
    if path is not None:
        objects = yaml.safe_load_all(path.read_text(encoding="utf-8"))
        apply(plane, [found for found in objects if found and "Admission" in found["kind"]])


async def _turn(plane: ControlPlane, token: str, policies: str) -> float:
    port = int(plane.server.rpartition(":")[2])
    credential = Credential("token", token.encode())
    address = ClusterAddress(UUID(int=1), plane.name, plane.server, "127.0.0.1", port, plane.ca_pem, credential)
    driver = KubernetesDriver(address, "bench")
    try:
        await _heeded(driver, policies)
        before = _cpu_seconds(plane)
        uids = await _in_lots([_job(driver, number) for number in range(JOBS)])
        await _until_pods(plane, JOBS)
        spent = _cpu_seconds(plane) - before
        await _in_lots([driver.delete_job(NAMESPACE, _name(number), uid) for number, uid in enumerate(uids)])
        await _until_pods(plane, 0)
    finally:
        await driver.close()
    return spent / JOBS * 1000


async def _heeded(driver: KubernetesDriver, policies: str) -> None:
    """Waits until the API server applies these policies; the number of refused escapes identifies them."""
    expected = {"none": 0, "earlier": 4, "published": len(escapes((), "bench"))}[policies]
    while True:
        answers = [await driver.rehearse(each) for each in escapes((), "bench")]
        if sum(answer.would is False for answer in answers) == expected:
            break
        await asyncio.sleep(0.5)
    await asyncio.sleep(1)


async def _job(driver: KubernetesDriver, number: int) -> str:
    manifest: Any = next(each.manifest for each in duties((), "bench") if each.resource == "jobs")
    named = {**manifest["metadata"], "name": _name(number), "namespace": NAMESPACE}
    uid = await driver.create_job({**manifest, "metadata": named})
    await driver.release_job(NAMESPACE, _name(number), uid, HINTS)
    return uid


async def _until_pods(plane: ControlPlane, count: int) -> None:
    """Waits for the pods. It asks rarely and only for names, because requests cost the API server too."""
    names = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
    with client(plane) as http:
        while True:
            answer = http.get(f"/api/v1/namespaces/{NAMESPACE}/pods", params={"resourceVersion": "0"}, headers=names)
            if len(answer.raise_for_status().json()["items"] or ()) == count:
                return
            await asyncio.sleep(1)


async def _in_lots(calls: Sequence[Any]) -> list[Any]:
    answers: list[Any] = []
    for first in range(0, len(calls), AT_ONCE):
        answers += await asyncio.gather(*calls[first : first + AT_ONCE])
    return answers


def _name(number: int) -> str:
    return f"swy-bench-{number}"


HINTS = {
    "spec": {
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "preference": {
                            "matchExpressions": [
                                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["a", "b", "c"]}
                            ]
                        },
                    }
                ]
            }
        }
    }
}


def _cpu_seconds(plane: ControlPlane) -> float:
    """The CPU seconds of the API server's process so far, in user and kernel mode."""
    fields = Path(f"/proc/{plane.pid('kube-apiserver')}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()

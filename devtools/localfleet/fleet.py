"""Several control planes at the same time, with the nodes of a fleet file."""

import asyncio
import dataclasses
import itertools
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .admin import apply, create_nodes
from .binaries import locate
from .commands import Parts
from .controlplane import POLL_SECONDS, ControlPlane, StartFailed, bring_up, interleave, prepare, stop_together
from .devices import device_classes, resource_slices
from .fleetfile import ClusterSpec, node_objects, read_fleet

SMALL_FLEET = Path(__file__).parent / "fleets" / "small.yaml"
NODES_SECONDS = 180


def start_fleet(  # noqa: PLR0913 - each is a fact about the fleet
    wanted: int | Sequence[str],
    root: Path,
    *,
    fleet_file: Path | None = None,
    api_only: bool = False,
    kwok: bool = True,
    fast: bool = True,
    with_nodes: bool = True,
    audit: bool = False,
    kubelet: bool = False,
) -> list[ControlPlane]:
    """Running control planes with their nodes ready, in the requested order. Call from the main thread.

    `wanted` is the number of clusters of the fleet file (default: SMALL_FLEET), or their names; past its end the file
    starts over with numbered names. `api_only` leaves only etcd and kube-apiserver, `kwok=False` omits the kubelets,
    `fast=False` keeps Kubernetes' default request limits for the controllers. `audit` keeps a log of every change.
    `kubelet` starts the test kubelet even if no node of the file runs pods: nodes with its label may be added later.

    Raises BuildFailed if the programs are not available, StartFailed with the end of a log if one does not start.
    """
    parts = Parts(controllers=not api_only, kwok=kwok and not api_only, fast=fast, audit=audit)
    specs = choose(wanted, read_fleet(fleet_file or SMALL_FLEET))
    programs = {**locate(parts.components), "kubelet": Path(sys.executable)}
    planes = [
        ControlPlane(spec.name, prepare(spec.name, root, own), programs, region=spec.region, provider=spec.provider)
        for spec in specs
        for own in [dataclasses.replace(parts, kubelet=not api_only and (kubelet or (with_nodes and spec.runs_pods)))]
    ]
    if os.geteuid() and any(plane.layout.parts.kubelet for plane in planes):
        raise StartFailed("nodes with `runs: true` need root: the test kubelet mounts volumes and switches users")
    try:
        for _ in interleave([bring_up(plane) for plane in planes]):
            time.sleep(POLL_SECONDS)
        if with_nodes:
            asyncio.run(_populate(planes, specs))
            for plane, spec in zip(planes, specs, strict=True):
                if slices := list(resource_slices(spec)):
                    apply(plane, [*device_classes(), *slices])
    except BaseException:
        stop_together(planes)
        raise
    return planes


def stop_fleet(planes: Sequence[ControlPlane]) -> None:
    """Ends all of them together and removes their data."""
    stop_together(planes)


def choose(wanted: int | Sequence[str], specs: Sequence[ClusterSpec]) -> list[ClusterSpec]:
    """The requested clusters, by number or by name; an unknown name gets the nodes of the next unnamed cluster."""
    if isinstance(wanted, int):
        rounds = ((spec, number) for number in itertools.count(1) for spec in specs)
        chosen = itertools.islice(rounds, wanted)
        return [
            spec if number == 1 else dataclasses.replace(spec, name=f"{spec.name}-{number}") for spec, number in chosen
        ]
    by_name = {spec.name: spec for spec in specs}
    spare = itertools.cycle(specs)
    return [by_name[name] if name in by_name else dataclasses.replace(next(spare), name=name) for name in wanted]


async def _populate(planes: Sequence[ControlPlane], specs: Sequence[ClusterSpec]) -> None:
    async with asyncio.timeout(NODES_SECONDS):
        await asyncio.gather(
            *(create_nodes(plane, node_objects(spec)) for plane, spec in zip(planes, specs, strict=True))
        )


def describe(planes: Sequence[ControlPlane]) -> None:
    """Prints one line per cluster: name, server, kubeconfig path."""
    for plane in planes:
        sys.stdout.write(f"{plane.name} {plane.server} {plane.kubeconfig}\n")
    sys.stdout.flush()

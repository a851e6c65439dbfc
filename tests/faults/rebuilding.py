"""Control planes that lose their memory: put back to what etcd held some time ago, or built anew behind the same address."""

import asyncio
import shutil
import time
from pathlib import Path

from devtools.localfleet import ControlPlane
from devtools.localfleet.admin import create_nodes
from devtools.localfleet.controlplane import POLL_SECONDS
from devtools.localfleet.fleet import SMALL_FLEET
from devtools.localfleet.fleetfile import node_objects, read_fleet


def remember(plane: ControlPlane) -> Path:
    """A copy of what its etcd holds now."""
    plane.kill("etcd")
    copy = plane.layout.root / "etcd-then"
    shutil.copytree(plane.layout.root / "etcd", copy)
    _start(plane, "etcd")
    return copy


def put_back(plane: ControlPlane, then: Path) -> None:
    """Everything of it starts again with what etcd held then. Its identity and its accounts are the same, its objects are not."""
    _stop_all(plane)
    shutil.copytree(then, plane.layout.root / "etcd")
    _start(plane, *plane.layout.parts.components)


def build_anew(plane: ControlPlane) -> None:
    """An empty cluster with the same nodes behind the same address, with the same certificate."""
    _stop_all(plane)
    _start(plane, *plane.layout.parts.components)
    spec = next(spec for spec in read_fleet(SMALL_FLEET) if spec.name == plane.name)
    asyncio.run(create_nodes(plane, node_objects(spec)))


def _stop_all(plane: ControlPlane) -> None:
    for component in reversed(plane.layout.parts.components):
        plane.kill(component)
    shutil.rmtree(plane.layout.root / "etcd")


def _start(plane: ControlPlane, *components: str) -> None:
    for component in components:
        for _ in plane.starting(component):
            time.sleep(POLL_SECONDS)

"""One suite, two clusters: a simulated one and a real control plane."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.localfleet import ControlPlane, start_fleet, stop_fleet
from devtools.localfleet.admin import create_nodes
from devtools.scratch import scratch_folder
from tests.kube.conftest import gateway_token

from .worlds import BASE_NODES, Real, Simulated, World


@pytest.fixture(scope="package")
def plane() -> Iterator[ControlPlane]:
    """A control plane with the base nodes."""
    root = scratch_folder("contract")
    planes = start_fleet(("contract",), root, with_nodes=False)
    try:
        asyncio.run(create_nodes(planes[0], BASE_NODES))
        yield planes[0]
    finally:
        stop_fleet(planes)
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="package")
def real(plane: ControlPlane) -> Real:
    """The control plane as the published role sees it."""
    return Real(plane, gateway_token(plane))


@pytest.fixture(params=["simulated", pytest.param("kubernetes", marks=pytest.mark.kube)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Each kind of cluster in turn."""
    if request.param == "simulated":
        return Simulated(tmp_path / "cluster.sqlite3")
    real: Real = request.getfixturevalue("real")
    return real

"""A whole gateway in front of three real control planes that keep an audit log; one for all journeys."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.embedded import free_port
from devtools.localfleet import ControlPlane, start_fleet, stop_fleet
from devtools.scratch import scratch_folder
from devtools.trial import Gateway, start_gateway
from tests.journeys.workload import prepare


@pytest.fixture(scope="package")
def root() -> Iterator[Path]:
    folder = scratch_folder("journey")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="package")
def planes(root: Path) -> Iterator[list[ControlPlane]]:
    found = start_fleet(3, root / "fleet", audit=True)
    yield found
    stop_fleet(found)


@pytest.fixture(scope="package")
def gateway(root: Path, planes: list[ControlPlane]) -> Iterator[Gateway]:
    port = free_port()
    running = start_gateway(
        root / "home",
        SWITCHYARD_CLUSTER_LOST_SECONDS="20",
        SWITCHYARD_PORT=str(port),
        SWITCHYARD_PUBLIC_URL=f"http://127.0.0.1:{port}",
        SWITCHYARD_JOB_EGRESS="127.0.0.0/8",
    )
    try:
        for plane in planes:
            running.register(plane)
        prepare(running)
        yield running
    finally:
        running.stop(quickly=True)

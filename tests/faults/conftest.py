"""One gateway in front of three real control planes, to be broken again and again; the oracle judges at the end."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.localfleet import ControlPlane, start_fleet, stop_fleet
from devtools.oracle import read_witness
from devtools.trial import Gateway, start_gateway
from tests.faults.proxy import LyingProxy
from tests.journeys.workload import Run, prepare


@pytest.fixture(scope="session")
def root() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="switchyard-faults-", dir="/var/tmp"))
    folder.chmod(0o755)
    (folder / "flags").mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def flags(root: Path) -> Path:
    """Where a file named after a crash point kills the process that passes it."""
    return root / "flags"


@pytest.fixture(scope="session")
def planes(root: Path) -> Iterator[list[ControlPlane]]:
    found = start_fleet(3, root / "fleet", audit=True)
    found += start_fleet(1, root / "proxied", fleet_file=Path(__file__).parent / "proxied.yaml", audit=True)
    yield found
    stop_fleet(found)


@pytest.fixture(scope="session")
def proxied(planes: list[ControlPlane]) -> Iterator[LyingProxy]:
    """What stands between the gateway and the last cluster."""
    proxy = LyingProxy(planes[-1])
    yield proxy
    proxy.close()


@pytest.fixture(scope="session")
def gateway(root: Path, planes: list[ControlPlane], proxied: LyingProxy, flags: Path) -> Iterator[Gateway]:
    running = start_gateway(root / "home", SWITCHYARD_CLUSTER_LOST_SECONDS="8", SWITCHYARD_CRASH_FLAGS=str(flags))
    try:
        for plane in planes[:-1]:
            running.register(plane)
        running.register(planes[-1], server=proxied.address, ca_pem=proxied.ca_pem)
        prepare(running)
        yield running
    finally:
        running.stop()


@pytest.fixture
def run(gateway: Gateway, planes: list[ControlPlane]) -> Iterator[Run]:
    """Jobs that a test submits; when the test is done they must all end, once each, billed to the millisecond."""
    current = Run(gateway)
    yield current
    current.wait_until_all_ended()
    current.wait_until_settled(120)
    assert set(current.states().values()) == {"succeeded"}
    verdict = current.verdict(read_witness({plane.name: plane.layout.audit_log for plane in planes}))
    assert verdict.is_clean, verdict
    gateway.manage("prove_ledger")
    gateway.manage("verify_audit")

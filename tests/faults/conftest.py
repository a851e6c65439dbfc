"""One gateway in front of three real control planes, to be broken again and again; the oracle judges at the end."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.localfleet import ControlPlane, start_fleet, stop_fleet
from devtools.scratch import scratch_folder
from devtools.trial import Gateway
from tests.faults.databases import Databases
from tests.faults.proxy import LyingProxy, Mischief
from tests.faults.stand import FaultRun, Stand, judge_bills, judge_ends, start_behind


@pytest.fixture(scope="session")
def root() -> Iterator[Path]:
    folder = scratch_folder("faults")
    (folder / "flags").mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def flags(root: Path) -> Path:
    """Where a file named after a crash point kills the process that passes it."""
    return root / "flags"


@pytest.fixture(scope="session")
def skews(root: Path) -> Path:
    """Where a file tells how wrong the clocks of processes are, in seconds by role (`skewed/sitecustomize.py`)."""
    return root / "skews.json"


@pytest.fixture(scope="session")
def planes(root: Path) -> Iterator[list[ControlPlane]]:
    found = start_fleet(3, root / "fleet", audit=True)
    yield found
    stop_fleet(found)


@pytest.fixture(scope="session")
def proxies(planes: list[ControlPlane]) -> Iterator[dict[str, LyingProxy]]:
    """What stands between the gateway and each cluster, by the cluster's name."""
    shared = Mischief()
    found = {plane.name: LyingProxy(plane, shared) for plane in planes}
    yield found
    for proxy in found.values():
        proxy.close()


@pytest.fixture(scope="session")
def mischief(proxies: dict[str, LyingProxy]) -> Mischief:
    """The lies that all of them tell."""
    return next(iter(proxies.values())).mischief


@pytest.fixture(scope="session")
def databases(root: Path) -> Iterator[Databases]:
    """A primary and its replica, each behind a relay."""
    pair = Databases(root / "databases")
    yield pair
    pair.close()


@pytest.fixture(scope="session")
def stand(
    root: Path,
    planes: list[ControlPlane],
    proxies: dict[str, LyingProxy],
    databases: Databases,
    flags: Path,
    skews: Path,
) -> Iterator[Stand]:
    standing = start_behind(root / "home", planes, proxies, databases, flags, skews)
    yield standing
    standing.gateway.stop(quickly=True)


@pytest.fixture(scope="session")
def gateway(stand: Stand) -> Gateway:
    return stand.gateway


@pytest.fixture(scope="session")
def ended(stand: Stand) -> Iterator[dict[str, FaultRun]]:
    """The jobs of tests that are done, by the test. After the last fault they must have run once each and be billed to the
    millisecond: the gateway settles bills while the next test breaks it, and no test waits for that.
    """
    runs: dict[str, FaultRun] = {}
    yield runs
    found = judge_bills(stand, runs)
    assert not found, "\n".join(found)
    stand.gateway.manage("prove_ledger")
    stand.gateway.manage("verify_audit")


@pytest.fixture
def run(request: pytest.FixtureRequest, stand: Stand, ended: dict[str, FaultRun]) -> Iterator[FaultRun]:
    """Jobs that a test submits; when the test is done they must all end as they may, and see `ended`."""
    current = FaultRun(stand.gateway)
    yield current
    judge_ends(current)
    ended[request.node.nodeid] = current

"""Real control planes for the whole test run. Each test takes a namespace, or a name, of its own."""

import asyncio
import itertools
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clusters.drivers.kubernetes.driver import KubernetesDriver
from clusters.engine.escapes import Confinement
from clusters.operations.escapes import find_escapes
from devtools.localfleet import ControlPlane, start_fleet, stop_fleet
from devtools.localfleet.admin import apply_file, mint_token
from devtools.scratch import scratch_folder
from tests.contract.worlds import address_of

from .stolen import Cluster

FOLDER = Path(__file__).parent
ACCESS_MANIFEST = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cluster-access.yaml"
HEEDED_SECONDS = 60
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of this folder that use `clusters` come last: nobody else needs them, and three control planes that wait cost a tenth
    of a core.
    """
    places = [place for place, item in enumerate(items) if item.path.parent == FOLDER]
    ordered = sorted((items[place] for place in places), key=_uses_clusters)
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


def _uses_clusters(item: pytest.Item) -> bool:
    return "clusters" in getattr(item, "fixturenames", ())


def _fleet(*names: str, with_nodes: bool) -> Iterator[list[ControlPlane]]:
    root = scratch_folder("kube")
    planes = start_fleet(names or 3, root, with_nodes=with_nodes)
    try:
        yield planes
    finally:
        stop_fleet(planes)
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="package")
def clusters() -> Iterator[list[ControlPlane]]:
    """Three control planes with the nodes of the small fleet: east, west and north."""
    yield from _fleet(with_nodes=True)


@pytest.fixture(scope="package")
def bare_clusters() -> Iterator[list[ControlPlane]]:
    """Two control planes without a node, for tests that break them or bring nodes of their own."""
    yield from _fleet("bare-1", "bare-2", with_nodes=False)


@pytest.fixture(scope="package")
def cluster(bare_clusters: Sequence[ControlPlane]) -> Iterator[Cluster]:
    """One whose token is stolen."""
    found = Cluster(bare_clusters[0], gateway_token(bare_clusters[0]))
    yield found
    found.close()


@pytest.fixture
def namespace_name() -> str:
    """A namespace name that no other test uses."""
    return f"test-{next(_numbers)}"


def gateway_token(plane: ControlPlane) -> str:
    """The token of a ServiceAccount that has the published least-privilege role and nothing more, once it is confined."""
    apply_file(plane, ACCESS_MANIFEST)
    token = mint_token(plane, "switchyard-system", "switchyard")
    with ThreadPoolExecutor(1) as another:  # the caller may have a loop of its own
        confinement = another.submit(asyncio.run, _heeded(plane, token)).result()
    assert confinement.holds, confinement
    return token


async def _heeded(plane: ControlPlane, token: str) -> Confinement:
    """An API server takes a moment to heed policies that were applied just now."""
    driver = KubernetesDriver(address_of(plane, token), "fixture")
    deadline = time.monotonic() + HEEDED_SECONDS
    try:
        while True:
            found = await find_escapes(driver, {"resource.k8s.io"}, pauses=0)
            if found.holds or time.monotonic() > deadline:
                return found
            await asyncio.sleep(0.3)
    finally:
        await driver.close()


def gateway_tokens(planes: Sequence[ControlPlane]) -> dict[str, str]:
    """`gateway_token` of each cluster, by its name."""
    return {plane.name: gateway_token(plane) for plane in planes}

"""Fixtures over `tests.live`; a conftest imports those it wants."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest

from clusters.drivers import connections
from devtools.scratch import scratch_folder
from foundation.threads import Pools, close_kept_threads, use_pools
from tests.builders import actor_for, bind, make_tenant, make_user
from tests.kept_sessions import sessions_are_kept
from tests.kept_threads import KeptPools
from tests.live import simulated_cluster


@pytest.fixture(autouse=True, scope="package")
def kept_sessions(django_db_setup):
    """They end before the tests' database is dropped."""
    with sessions_are_kept():
        yield


@pytest.fixture(scope="session")
def kept_pools(django_db_setup):
    """They end before the tests' database is dropped."""
    pools = KeptPools()
    yield pools
    pools.end()
    close_kept_threads()


@cache
def folder_of_homes():
    """In memory, if there is room: a simulated cluster is a file, and each change of it is written."""
    folder = scratch_folder("homes")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@pytest.fixture
def home(settings, kept_pools):
    settings.HOME = Path(tempfile.mkdtemp(dir=folder_of_homes()))
    use_pools(kept_pools)
    yield settings.HOME
    connections.close_all()
    kept_pools.wait_until_idle()
    use_pools(Pools())
    shutil.rmtree(settings.HOME, ignore_errors=True)


@pytest.fixture
def cluster(home):
    return simulated_cluster()


@pytest.fixture
def submitter():
    user = make_user("ada@acme.example")
    bind(user, "acme", "admin")
    make_tenant("acme/research/vision")
    return actor_for(user)

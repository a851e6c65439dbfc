"""Fixtures over `tests.live`; a conftest imports those it wants."""

import pytest

from clusters.drivers import connections
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


@pytest.fixture
def home(tmp_path, settings, kept_pools):
    settings.HOME = tmp_path
    use_pools(kept_pools)
    yield tmp_path
    connections.close_all()
    kept_pools.wait_until_idle()
    use_pools(Pools())


@pytest.fixture
def cluster(home):
    return simulated_cluster()


@pytest.fixture
def submitter():
    user = make_user("ada@acme.example")
    bind(user, "acme", "admin")
    make_tenant("acme/research/vision")
    return actor_for(user)

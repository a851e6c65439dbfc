"""Fixtures over `tests.live`; a conftest imports those it wants."""

import pytest

from clusters.drivers import connections
from foundation.threads import close_kept_threads
from tests.builders import actor_for, bind, make_tenant, make_user
from tests.live import simulated_cluster


@pytest.fixture
def home(tmp_path, settings):
    settings.HOME = tmp_path
    yield tmp_path
    connections.close_all()
    close_kept_threads()


@pytest.fixture
def cluster(home):
    return simulated_cluster()


@pytest.fixture
def submitter():
    user = make_user("ada@acme.example")
    bind(user, "acme", "admin")
    make_tenant("acme/research/vision")
    return actor_for(user)

"""What the tests of this room share: an API server to register, and someone who may."""

import pytest

from clusters.drivers import connections
from tests.apiserver import api_server
from tests.builders import bearer, bind, make_user


@pytest.fixture
def api():
    with api_server() as server:
        yield server
    connections.close_all()


@pytest.fixture
def admin(db):
    """An administrator of the organisation acme."""
    user = make_user("admin@example.org")
    bind(user, "acme", "admin")
    return user


@pytest.fixture
def register(client, admin):
    """Posts a registration as the administrator."""
    headers = bearer(admin)

    def post(body, **more):
        return client.post("/api/v1/clusters", body, content_type="application/json", headers={**headers, **more})

    return post

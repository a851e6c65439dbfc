"""What tests of several pages of finance ask for."""

import pytest

from tests.builders import bind, make_tenant, make_user


@pytest.fixture
def as_(client):
    """`as_(role, path)`: the client, signed in as a new user with that role there, who is `client.user`."""

    def signed_in(role="finance", path="acme"):
        make_tenant(path)
        user = make_user()
        bind(user, path, role)
        client.force_login(user)
        client.user = user
        return client

    return signed_in

"""What the tests of several rooms ask of the HTTP API, and what would cost each of them the same again."""

import json
import sys
from functools import cache
from importlib.metadata import entry_points

import pytest

from federation.drivers import policy_hooks
from tests.builders import bearer
from tests.processes_role import processes_role

__all__ = ["processes_role"]


@pytest.fixture(autouse=True, scope="session")
def what_is_installed_is_searched_once():
    """For each path of modules, and not again for each test: it reads the metadata of every package."""

    @cache
    def found_on(_path, group):
        return entry_points(group=group)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy_hooks, "entry_points", lambda *, group: found_on(tuple(sys.path), group))
        yield


@pytest.fixture
def call(client):
    """`call(user, verb, path, body)`: the answer's status, and its JSON or None if it is empty."""

    def send(user, verb, path, body=None, **headers):
        raw = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
        answer = getattr(client, verb)(f"/api/v1{path}", **raw, headers=bearer(user) | headers)
        return answer.status_code, answer.json() if answer.content else None

    return send

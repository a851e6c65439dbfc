"""What the tests of several rooms ask of the HTTP API."""

import json

import pytest

from tests.builders import bearer


@pytest.fixture
def call(client):
    """`call(user, verb, path, body)`: the answer's status, and its JSON or None if it is empty."""

    def send(user, verb, path, body=None, **headers):
        raw = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
        answer = getattr(client, verb)(f"/api/v1{path}", **raw, headers=bearer(user) | headers)
        return answer.status_code, answer.json() if answer.content else None

    return send

import io
import json

import pytest
import yaml
from django.core.management import call_command
from drf_spectacular.generators import SchemaGenerator

from foundation.description import DescriptionView
from tests.builders import bearer, make_user

pytestmark = pytest.mark.django_db
SCHEMA, DOCS = "/api/v1/schema/", "/api/v1/docs/"
FEW = 5


@pytest.fixture(scope="module")
def schema():
    out = io.StringIO()
    call_command("spectacular", "--validate", "--fail-on-warn", "--format", "openapi-json", stdout=out)
    return json.loads(out.getvalue())


def operations(schema):
    return [
        (f"{method.upper()} {path}", operation)
        for path, item in schema["paths"].items()
        for method, operation in item.items()
    ]


def test_every_operation_says_what_a_refusal_looks_like(schema):
    for name, operation in operations(schema):
        content = operation["responses"]["default"]["content"]
        assert content["application/problem+json"]["schema"]["$ref"].endswith("/Problem"), name


ONLY_ASK = {
    "POST /api/v1/carbon/plan", "POST /api/v1/commitments/plan", "POST /api/v1/price-book/plan", "POST /api/v1/jobs/{job_id}/migrate/preview",
    "POST /api/v1/quotes", "POST /api/v1/quotas/preview", "POST /api/v1/tree/plan", "POST /api/v1/tree/preview",
}  # fmt: skip


def test_every_post_that_changes_something_takes_an_idempotency_key(schema):
    for name, operation in operations(schema):
        keys = (
            [parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "header"]
            if "parameters" in operation
            else []
        )
        assert ("Idempotency-Key" in keys) == (name.startswith("POST") and name not in ONLY_ASK), name


def test_every_operation_is_described_and_asks_who_calls(schema):
    for name, operation in operations(schema):
        assert operation.get("description"), name
        assert {"token": []} in operation["security"], name


def test_a_list_declares_its_filters_and_paging_words(schema):
    parameters = {parameter["name"] for parameter in schema["paths"]["/api/v1/audit"]["get"]["parameters"]}
    assert parameters == {"actor", "object", "action", "tenant", "outcome", "limit", "cursor", "order"}
    assert schema["components"]["schemas"]["TenantPage"]["properties"]["items"]["items"]["$ref"].endswith("/Tenant")


def test_the_schema_and_its_page_are_for_those_who_are_known(client):
    for path in (SCHEMA, DOCS):
        assert client.get(path).status_code in {401, 302}
    assert client.get(SCHEMA, headers=bearer(make_user())).status_code == 200


@pytest.fixture
def generated(monkeypatch):
    """The media types that a description was made for. It is of a few endpoints: all of them take a second of a core."""
    made, real, endpoints = [], DescriptionView._made, SchemaGenerator._get_paths_and_endpoints
    monkeypatch.setattr(SchemaGenerator, "_get_paths_and_endpoints", lambda self: endpoints(self)[:FEW])
    monkeypatch.setattr(
        DescriptionView,
        "_made",
        lambda self, request: made.append(request.accepted_media_type) or real(self, request),
    )
    return made


def test_a_process_makes_the_description_once_for_each_media_type(client, generated):
    first, other = bearer(make_user()), bearer(make_user())
    answers = [client.get(SCHEMA, headers=headers) for headers in (first, other)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].content == answers[1].content
    assert answers[1]["Content-Type"] == "application/vnd.oai.openapi; charset=utf-8"
    assert answers[1]["Content-Disposition"] == 'inline; filename="Switchyard.yaml"'
    assert generated == ["application/vnd.oai.openapi"]
    for _ in range(2):
        found = client.get(SCHEMA, headers=other | {"Accept": "application/json"})
        assert found["Content-Type"] == "application/json"
        assert yaml.load(answers[0].content, yaml.CSafeLoader) == found.json()  # noqa: TID251 - our own file, not a user's
    assert generated == ["application/vnd.oai.openapi", "application/json"]
    assert client.get(SCHEMA).status_code == 401, "a stranger gets nothing of what is kept"


def test_a_description_with_parameters_is_not_kept(client, generated):
    headers = bearer(make_user()) | {"Accept": "application/json"}
    assert client.get(SCHEMA, {"version": "9"}, headers=headers).json()["info"]["version"] == "1 (9)"
    assert client.get(SCHEMA, headers=headers).json()["info"]["version"] == "1"
    assert client.get(SCHEMA, {"version": "9"}, headers=headers).json()["info"]["version"] == "1 (9)"
    assert len(generated) == 3


def test_the_page_brings_nothing_from_elsewhere_and_no_inline_code(client):
    client.force_login(make_user())
    page = client.get(DOCS, headers={"Accept": "text/html"})
    text = page.content.decode()
    assert page.status_code == 200
    assert "http" not in text.replace("<!DOCTYPE html>", "")
    assert "<style" not in text
    assert text.count("<script") == text.count("<script src=")
    script = client.get(f"{DOCS}?script=")
    assert script.status_code == 200
    assert "javascript" in script["Content-Type"]

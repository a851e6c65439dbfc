"""What the gateway does with the added field `warmup_seconds`. `test_where_to_add` runs this in a copy that has it."""

import json
from uuid import uuid4

import pytest

from federation.engine.intake.normal_form import request_of, shape_of, spec_json
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.models import Job
from tests.builders import bearer, bind, make_spec, make_user
from tests.engine.test_manifest import MANIFEST

pytestmark = pytest.mark.django_db


@pytest.fixture
def user():
    found = make_user()
    bind(found, "acme", "submitter")
    return found


@pytest.fixture
def post(client, user):
    def send(**body):
        raw = json.dumps({"tenant": "acme", **body})
        return client.post("/api/v1/jobs", raw, content_type="application/json", headers=bearer(user))

    return send


def test_the_api_accepts_it_and_the_normal_form_has_it(post):
    answer = post(**make_spec(warmup_seconds=120))
    assert answer.status_code == 201
    assert answer.json()["spec"]["warmup_seconds"] == 120
    assert Job.objects.get().spec["warmup_seconds"] == 120


def test_it_is_accepted_beside_a_manifest(post):
    assert post(manifest=MANIFEST, warmup_seconds=120).json()["spec"]["warmup_seconds"] == 120


@pytest.mark.parametrize(("value", "code"), [(0, "out_of_range"), (3601, "out_of_range"), ("120", "wrong_type")])
def test_its_bounds_are_checked(post, value, code):
    answer = post(**make_spec(warmup_seconds=value))
    assert answer.status_code == 422
    assert [(error["field"], error["code"]) for error in answer.json()["errors"]] == [("warmup_seconds", code)]


def test_other_jobs_keep_their_normal_form_and_their_shape():
    plain, given = (spec_json(read_spec(make_spec(**more), Rules())) for more in ({}, {"warmup_seconds": 120}))
    assert "warmup_seconds" not in plain
    assert given == {**plain, "warmup_seconds": 120}
    assert shape_of(plain) != shape_of(given)


def test_placement_sees_it():
    stored = spec_json(read_spec(make_spec(warmup_seconds=120), Rules()))
    assert request_of(stored, job_id=uuid4(), tenant_path="acme", shape="s").warmup_seconds == 120


def test_the_openapi_description_has_it(shapes):
    shape = {"type": "integer", "minimum": 1, "maximum": 3600, "nullable": True, "description": "Before useful work."}
    for name in ("JobSpec", "JobSpecRequest", "ManifestRequest", "BulkItemRequest"):
        assert shapes[name]["properties"]["warmup_seconds"] == shape
        assert "warmup_seconds" not in shapes[name]["required"]


def test_the_form_offers_it_and_the_page_of_the_job_shows_it(client, user):
    client.force_login(user)
    form = client.get("/jobs/new/").content.decode()
    assert '<label class="form-label" for="f-warmup_minutes">Warm-up, minutes</label>' in form
    typed = {
        "tenant": "acme",
        "name": "train",
        "image": "registry.example/train:1",
        "count": "1",
        "kind": "none",
        "cpu": "1",
        "memory": "1Gi",
        "warmup_minutes": "2",
    }
    refused = client.post("/jobs/new/", {**typed, "warmup_minutes": "61"}).content.decode()
    assert '<div class="field-error" id="e-warmup_minutes"><p>must be between 1 and 3600</p></div>' in refused
    page = client.post("/jobs/new/", typed, follow=True).content.decode()
    assert Job.objects.get().spec["warmup_seconds"] == 120
    assert "<dt>Warmup</dt><dd>2 min</dd>" in page

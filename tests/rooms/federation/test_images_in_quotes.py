"""Where the images of jobs are: in quotes, in rounds and on pages, for the organisation that has proven them."""

import json
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.engine.images import MIB, packed
from clusters.engine.pulls import PullSample, class_of
from clusters.models import Cluster
from clusters.operations import record_images, record_pulls
from federation.models import Attempt, JobEvent, ProvenImage
from federation.operations import run_scheduling_cycle
from federation.queries.snapshot import load_snapshot
from federation.web.offers import offers_for
from foundation import clock
from foundation.caches import reset_all
from placement.answers.recording import decisions_text, snapshot_of, snapshot_text
from placement.cycle.cycle import decide
from tests.builders import (
    actor_for,
    bearer,
    bind,
    make_cluster,
    make_flavor,
    make_node,
    make_spec,
    make_tenant,
    make_user,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("quotes_look_anew")]
TENANT = "acme/research"
TRAIN = "registry:5000/train:v1"
SECONDS = 40


@pytest.fixture(autouse=True)
def fleet() -> dict[str, Cluster]:
    """Two equal clusters, of which south has the image on one of two nodes; both pull it in 40 s."""
    make_tenant(TENANT)
    made = {}
    for name in ("north", "south"):
        made[name] = cluster = make_cluster("acme", name)
        make_flavor(cluster)
        for number in range(2):
            make_node(cluster, f"{name}-{number}")
    first, last = sorted(made.values(), key=lambda one: one.id)
    record_images(last.id, {f"{last.name}-0": packed([([TRAIN], 900 * MIB)])}, [TRAIN])
    for cluster in made.values():
        record_pulls(cluster.id, [PullSample(class_of(900), SECONDS)] * 3)
    ProvenImage.objects.create(organisation=make_tenant("acme"), name=TRAIN)
    return {"first": first, "last": last}


@pytest.fixture
def user():
    found = make_user("ada@example.org")
    bind(found, "acme", "submitter")
    return found


def body(image: str = TRAIN, tenant: str = TENANT):
    found = make_spec(tenant=tenant)
    for pod_set in found["pod_sets"]:
        pod_set["image"] = image
    return found


def quoted(client, user, image: str = TRAIN, tenant: str = TENANT):
    own = {"data": json.dumps(body(image, tenant)), "content_type": "application/json", "headers": bearer(user)}
    answer = client.post("/api/v1/quotes", **own)
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_a_quote_shows_where_the_image_is_and_starts_later_by_its_pull(client, user, fleet):
    told = quoted(client, user)
    best, other = told["offers"]
    assert best["cluster"] == fleet["last"].name
    assert best["pull"] == {
        "image": TRAIN,
        "nodes": 1,
        "of_nodes": 2,
        "seconds": SECONDS,
        "message": "its image is on 1 of 2 nodes there, and pulling it takes about 40 s",
    }
    later = datetime.fromisoformat(best["expected_start_at"]) - datetime.fromisoformat(told["as_of"])
    assert abs(later - timedelta(seconds=SECONDS)) < timedelta(seconds=1)
    assert other["pull"]["message"] == "no node there reports its image, and pulling it takes about 40 s"


@pytest.mark.parametrize("image", ["registry:5000/train:v2", "registry:5000/train", "registry/train:v1"])
def test_of_an_image_that_no_run_has_proven_nothing_is_said(client, user, image):
    told = quoted(client, user, image)
    assert [offer["pull"] for offer in told["offers"]] == [None, None]
    assert {offer["expected_start_at"] for offer in told["offers"]} == {told["as_of"]}


def test_attack_an_organisation_cannot_find_out_which_images_another_runs(client, user, fleet):
    Cluster.objects.update(owner=make_tenant("shared"))
    make_tenant("shared/rival")
    bind(user, "shared/rival", "submitter")
    told = quoted(client, user, tenant="shared/rival")
    assert [offer["pull"] for offer in told["offers"]] == [None, None]
    assert told["offers"][0]["cluster"] == fleet["first"].name, "nor does it decide"


def test_the_round_does_what_the_quote_says_and_the_job_page_names_the_pull(client, user, fleet):
    best = quoted(client, user)["offers"][0]
    own = {"data": json.dumps(body()), "content_type": "application/json"}
    job = client.post("/api/v1/jobs", **own, headers=bearer(user) | {"Idempotency-Key": "k"}).json()["id"]
    reset_all()
    snapshot = load_snapshot(clock.now(), 100)
    assert decisions_text(decide(snapshot_of(json.loads(snapshot_text(snapshot))))) == decisions_text(decide(snapshot))
    assert run_scheduling_cycle().placed == 1
    attempt = Attempt.objects.get(job_id=job)
    assert attempt.cluster_id == fleet["last"].id
    assert best["cluster"] == attempt.cluster.name
    assert best["pull"]["message"] in JobEvent.objects.get(attempt=attempt).message
    client.force_login(user)
    assert best["pull"]["message"] in client.get(f"/jobs/{job}/").content.decode()


def test_the_form_shows_where_the_image_is(client, user):
    shown = offers_for(actor_for(user), body())
    assert shown.offers[0].pull == "its image is on 1 of 2 nodes there, and pulling it takes about 40 s"


def test_a_queue_of_many_jobs_asks_for_its_images_in_two_queries_and_then_in_none(client, user):
    for number in range(4):
        own = {"data": json.dumps(body()), "content_type": "application/json"}
        client.post("/api/v1/jobs", **own, headers=bearer(user) | {"Idempotency-Key": str(number)})
    reset_all()

    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            load_snapshot(clock.now(), 100)
        return sum("provenimage" in one["sql"] or "clusterimage" in one["sql"] for one in queries)

    assert (asked(), asked()) == (2, 0)

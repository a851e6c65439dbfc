"""An image is followed once a run has succeeded with it, for the organisation whose run it was."""

from datetime import timedelta

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext

from federation.engine.lifecycle import AttemptState
from federation.models import ProvenImage
from federation.operations.images import KEPT_FOR
from federation.queries.images import followed_images
from foundation.caches import reset_all
from foundation.clock import now
from tests.builders import actor_for, bind, make_cluster, make_flavor, make_node, make_tenant, make_user, submit
from tests.rooms.federation.test_run_history import ran

pytestmark = pytest.mark.django_db
NAME = "docker.io/library/python:3.11"


@pytest.fixture
def user():
    found = make_user()
    for path in ("acme/team", "acme/other", "rival/team"):
        make_tenant(path)
        bind(found, path)
    cluster = make_cluster()
    make_flavor(cluster)
    make_node(cluster)
    return found


def job(user, *images: str, tenant: str = "acme/team"):
    sets = [
        {"name": f"p{n}", "count": 1, "image": image, "cpu": "1", "memory": "1Gi"} for n, image in enumerate(images)
    ]
    return submit(actor_for(user), {"tenant": tenant, "name": "train", "pod_sets": sets})


def proven() -> set[tuple[str, str]]:
    return set(ProvenImage.objects.values_list("organisation__path", "name"))


def test_every_image_of_a_run_that_succeeded_is_proven_for_its_organisation(user):
    ran(job(user, "python:3.11", "registry:5000/t:1"), 60)
    ran(job(user, "library/python:3.11", tenant="acme/other"), 60)
    assert proven() == {("acme", NAME), ("acme", "registry:5000/t:1")}
    assert followed_images().names == (NAME, "registry:5000/t:1")


@pytest.mark.parametrize("state", [AttemptState.FAILED, AttemptState.PREEMPTED])
def test_attack_a_run_that_did_not_succeed_proves_nothing(user, state):
    ran(job(user, "registry:5000/secret:1"), 60, state)
    assert proven() == set()
    assert followed_images().names == ()


def test_a_fresh_success_is_not_written_again_and_an_older_one_is(user):
    ran(job(user, "python:3.11"), 60)
    before = ProvenImage.objects.get().last_at
    with CaptureQueriesContext(connection) as asked:
        ran(job(user, "python:3.11"), 60)
    assert ProvenImage.objects.get().last_at == before
    assert not [query for query in asked if "DELETE" in query["sql"] and "provenimage" in query["sql"]]
    ProvenImage.objects.update(last_at=before - timedelta(hours=2))
    ran(job(user, "python:3.11"), 60)
    assert ProvenImage.objects.get().last_at >= before


def test_images_that_have_not_succeeded_for_long_are_forgotten(user):
    ran(job(user, "old:1"), 60)
    ran(job(user, "old:1", tenant="rival/team"), 60)
    ProvenImage.objects.update(last_at=now() - KEPT_FOR - timedelta(hours=1))
    ran(job(user, "new:1"), 60)
    assert proven() == {("acme", "docker.io/library/new:1"), ("rival", "docker.io/library/old:1")}


def test_the_newest_images_are_followed_if_there_are_too_many(user, monkeypatch):
    monkeypatch.setattr("federation.queries.images.MOST_FOLLOWED", 1)
    ran(job(user, "old:1"), 60)
    ProvenImage.objects.update(last_at=now() - timedelta(days=2))
    ran(job(user, "new:1"), 60)
    reset_all()
    assert followed_images().names == ("docker.io/library/new:1",)


@pytest.mark.parametrize(
    "attack",
    [
        "UPDATE federation_provenimage SET name = ''",
        "INSERT INTO federation_provenimage (organisation_id, name) SELECT organisation_id, name FROM federation_provenimage",
    ],
)
def test_attack_the_database_refuses_doubles_and_blanks(user, attack):
    ran(job(user, "python:3.11"), 60)
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(attack)

"""Who may name the images that nodes should have, what is refused, and what the database refuses behind it."""

from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction

from federation import operations
from federation.models import Prepull, PrepullPolicy
from federation.operations.prepull_policies import PolicyChanges, WantedPolicy
from foundation.clock import now
from foundation.ids import new_id
from foundation.problems import Conflict, Invalid, NotFound
from tenancy.queries import NotAllowedHere
from tests.builders import actor_for, bearer, bind, make_user
from tests.live import simulated_cluster
from tests.rooms.federation.test_prepulls import IMAGE, admin, make, rounds

__all__ = ["admin"]
pytestmark = pytest.mark.django_db(transaction=True)
HOSTILE = [
    "", " ", "UPPER/x", "localhost/x:1", "127.0.0.1:5000/x", "10.0.0.1/x", "0x7f.1/x", "a b", "a\nb:1", "x:1@sha256:12", "http://r/x",
    "r.example/x:1;rm", "r.example/../x", "$(id)", "r.example/x:" + "t" * 129, "r.example/" + "x" * 600, "ü.example/x",
]  # fmt: skip


@pytest.mark.parametrize("image", HOSTILE)
def test_attack_a_hostile_image_name_is_refused_before_anything_exists(admin, cluster, client, image):
    with pytest.raises(Invalid):
        make(admin, cluster, image)
    headers = bearer(make_admin())
    answer = client.post(
        f"/api/v1/clusters/{cluster.id}/prepull-policies",
        {"name": "x", "images": [image]},
        content_type="application/json",
        headers=headers,
    )
    assert answer.status_code == 422
    assert not PrepullPolicy.objects.exists()


def make_admin():
    user = make_user()
    bind(user, "acme")
    return user


def test_faults_name_their_fields(admin, cluster, settings):
    settings.REQUIRE_DIGEST = True
    with pytest.raises(Invalid) as refused:
        make(admin, cluster, IMAGE, IMAGE, flavor="none")
    assert [(one.field, one.code) for one in refused.value.errors] == [
        ("images[0]", "digest_required"),
        ("images[1]", "digest_required"),
        ("flavor", "unknown_flavor"),
    ]
    settings.REQUIRE_DIGEST = False
    with pytest.raises(Invalid) as refused:
        make(admin, cluster, "python:3", "docker.io/library/python:3")
    assert refused.value.errors[0].code == "duplicate"
    with pytest.raises(Invalid) as refused:
        make(admin, cluster, tenant="other")
    assert refused.value.errors[0].field == "tenant"
    make(admin, cluster)
    with pytest.raises(Conflict):
        make(admin, cluster)


def test_only_those_who_manage_the_cluster_change_policies(admin, cluster, client):
    policy = make(admin, cluster)
    viewer, stranger = make_user(), make_user()
    bind(viewer, "acme", "viewer")
    bind(stranger, "other")
    for work in (
        lambda actor: operations.change_prepull_policy(actor, cluster.id, policy.id, PolicyChanges(at_once=3)),
        lambda actor: operations.remove_prepull_policy(actor, cluster.id, policy.id),
        lambda actor: operations.retry_prepulls(actor, cluster.id, policy.id),
        lambda actor: operations.make_prepull_policy(actor, cluster.id, WantedPolicy("x", (IMAGE,))),
    ):
        with pytest.raises(NotAllowedHere):
            work(actor_for(viewer))
        with pytest.raises(NotFound):
            work(actor_for(stranger))
    with pytest.raises(NotFound):
        operations.remove_prepull_policy(admin, cluster.id, new_id())
    with pytest.raises(NotFound):
        operations.remove_prepull_policy(admin, simulated_cluster("west").id, policy.id)
    url = f"/api/v1/clusters/{cluster.id}/prepull-policies"
    assert client.get(url, headers=bearer(stranger)).status_code == 404
    assert client.get(url, headers=bearer(viewer)).json()["items"][0]["name"] == "base"


def test_the_api_tells_the_progress_per_image_and_node(cluster, client):
    headers = bearer(make_admin())
    url = f"/api/v1/clusters/{cluster.id}/prepull-policies"
    body = {"name": "base", "images": [IMAGE], "at_once": 1}
    made = client.post(url, body, content_type="application/json", headers=headers)
    assert made.status_code == 201, made.json()
    one = f"{url}/{made.json()['id']}"
    rounds()
    PrepullPolicy.objects.update(changed_at=now() - timedelta(minutes=5))
    rounds()
    shown = client.get(one, headers=headers).json()
    assert shown["images"][0]["nodes"]["pulled"] == 2
    lines = client.get(f"{one}/nodes?state=pulled", headers=headers).json()["items"]
    assert [line["state"] for line in lines] == ["pulled", "pulled"]
    assert client.get(f"{one}/nodes?state=%00", headers=headers).status_code == 422
    assert client.get(f"{one}/nodes?cursor=1", headers=headers).status_code == 422
    patched = client.patch(one, {"paused": True}, content_type="application/json", headers=headers)
    assert patched.json()["paused"] is True
    assert client.patch(one, {"at_once": 11}, content_type="application/json", headers=headers).status_code == 422
    assert client.patch(one, {"images": []}, content_type="application/json", headers=headers).status_code == 422
    assert client.post(f"{one}/retry", headers=headers).status_code == 200
    assert client.delete(one, headers=headers).status_code == 204
    assert client.get(one, headers=headers).status_code == 404


ATTACKS = {
    "prepull_slot_exists": "UPDATE federation_prepull SET phase='planned', slot=10, object_id=gen_random_uuid(), begun_at=now()",
    "live_prepull_has_a_slot_and_an_object": "UPDATE federation_prepull SET phase='planned'",
    "created_prepull_has_a_uid": "UPDATE federation_prepull SET phase='created', slot=1, object_id=gen_random_uuid(), begun_at=now()",
    "released_prepull_has_its_time": "UPDATE federation_prepull SET phase='released', uid='u', slot=1, object_id=gen_random_uuid(), begun_at=now()",
    "prepull_outcome_is_known": "UPDATE federation_prepull SET outcome='lost'",
    "ended_prepull_has_its_time": "UPDATE federation_prepull SET outcome='failed', ended_at=NULL",
    "pulled_prepull_has_its_time": "UPDATE federation_prepull SET outcome='pulled', failures=1",
    "prepulls_are_counted": "UPDATE federation_prepull SET pulls=0",
    "prepull_is_on_the_cluster_of_its_policy": "UPDATE federation_prepull SET cluster_id=%(west)s",
    "prepull_policy_has_one_cluster": "INSERT INTO federation_prepullpolicy SELECT * FROM federation_prepullpolicy",
    "prepulls_at_once_are_few": "UPDATE federation_prepullpolicy SET at_once=11",
    "prepull_images_are_few": "UPDATE federation_prepullpolicy SET images='{}'",
    "prepull_name_is_a_dns_label": "UPDATE federation_prepullpolicy SET name='../x'",
    "prepull_was_made_by_someone": "UPDATE federation_prepullpolicy SET created_by=''",
    "image_is_pulled_once_to_a_node": "INSERT INTO federation_prepull (policy_id, cluster_id, image, node, phase, namespace, secrets, uid,"
    " outcome, message, failures, pulls) SELECT policy_id, cluster_id, image, node, 'idle', '', '{}', '', '', '', 0, 0"
    " FROM federation_prepull LIMIT 1",
    "a_slot_has_one_prepull": "UPDATE federation_prepull SET phase='planned', slot=1, object_id=gen_random_uuid(), begun_at=now()",
}


@pytest.mark.parametrize("constraint", ATTACKS)
def test_attack_the_database_refuses(admin, cluster, constraint):
    make(admin, cluster)
    west = simulated_cluster("west")
    rounds(2)
    assert Prepull.objects.filter(outcome="pulled").count() == 2
    known = "federation_prepullpolicy_pkey" if "one_cluster" in constraint else constraint
    with pytest.raises(IntegrityError, match=known):
        attack(ATTACKS[constraint], west.id)


def attack(statement, west_id):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, {"west": west_id})
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")

"""The page of a node, and what leads to it: from its cluster and from a failure on a job's page, for those who manage the cluster."""

import pytest

from clusters.models import Node
from federation import operations
from federation.models import Attempt, Diagnosis
from foundation.clock import now
from tests.builders import bind, make_cluster, make_flavor, make_node, make_user

from .test_lemon_nodes import TENANTS, ran, spoil, usual
from .test_node_history import FIRST, SECOND, with_devices

pytestmark = pytest.mark.django_db
NASTY = '<img src=x onerror="hacked()">'
LONGEST = ".".join(["n" * 63] * 4)[:253].rstrip(".")


@pytest.fixture
def north():
    cluster = make_cluster("acme", "north")
    make_flavor(cluster)
    for number in range(10):
        make_node(cluster, f"n{number}")
    return cluster


@pytest.fixture
def read(client, north):
    """`read(path, role)`: the page's text; a `role` is at the owner of the cluster."""

    def get(path: str, role: str = "admin", status: int = 200) -> str:
        bind(user := make_user(), "acme", role)
        client.force_login(user)
        answer = client.get(path)
        assert answer.status_code == status, path
        return answer.content.decode()

    return get


def page_of(cluster, node: str = "n3", query: str = "") -> str:
    return f"/clusters/{cluster.id}/nodes/{node}/{query}"


def test_a_node_without_runs_has_an_empty_state(read, north):
    text = read(page_of(north))
    for words in ("Nothing ran here yet", "no job ended here", "No run here used a device"):
        assert words in text


def test_gpus_by_count_are_said_to_be_unknown_and_claimed_ones_are_listed(read, north):
    ran(north, "n3", TENANTS[0])
    assert "1 unknown" in read(page_of(north))
    for device in (FIRST, SECOND):
        with_devices(ran(north, "n3", TENANTS[0], "device"), device)
    text = read(page_of(north))
    assert text.count(">gpu-0<") == text.count(">gpu-1<") == 2
    filtered = read(page_of(north, query=f"?device={FIRST}"))
    assert "Runs with gpu-0" in filtered
    assert (filtered.count(">gpu-0<"), filtered.count(">gpu-1<")) == (2, 1)


def test_jobs_use_an_avoided_node_again_from_its_page(read, client, north):
    usual(north)
    spoil(north)
    operations.weigh_failures()
    avoided = north.avoided_nodes.get()
    text = read(page_of(north))
    assert "Found by its rate of failures: 6 of its last 9 runs failed" in text
    form = f'action="/clusters/{north.id}/avoided/{avoided.id}/clear/"'
    assert form in text
    client.post(f"/clusters/{north.id}/avoided/{avoided.id}/clear/")
    text = read(page_of(north))
    assert "used again" in text
    assert form not in text


def test_the_cluster_and_a_failed_job_lead_to_it_for_those_who_manage_the_cluster_only(read, north):
    attempt = ran(north, "n3", TENANTS[0], "device")
    link = f'href="{page_of(north)}"'
    for path in (f"/clusters/{north.id}/", f"/jobs/{attempt.job_id}/"):
        assert link in read(path)
        for role in ("viewer", "manager", "submitter"):
            assert link not in read(path, role)
    for role in ("viewer", "manager", "submitter"):
        read(page_of(north), role, 403)
    bind(rival := make_user(), "rival")
    assert rival


def test_a_node_with_the_longest_name_and_one_that_left_are_shown(read, north):
    make_node(north, LONGEST)
    assert LONGEST in read(f"/clusters/{north.id}/")
    assert LONGEST in read(page_of(north, LONGEST))
    Node.objects.filter(name=LONGEST).delete()
    assert "does not have this node any more" in read(page_of(north, LONGEST))


def test_the_page_of_a_cluster_opens_even_if_a_row_has_a_name_that_no_node_can_have(read, north):
    make_node(north, "a/b")
    assert "a/b" in read(f"/clusters/{north.id}/")


def test_what_a_cluster_or_program_says_is_text(read, north):
    attempt = ran(north, "n3", TENANTS[0])
    attempt.pods.update(reason=NASTY, disruption=NASTY[:60])
    Attempt.objects.filter(id=attempt.id).update(end_reason=NASTY[:20])
    attempt.job.name = NASTY
    attempt.job.save(update_fields=["name"])
    Diagnosis.objects.create(
        attempt=attempt, failure_class="device", own_class="device", text=NASTY, rule="r", step="stop", node="n3",
        judged_at=now(),
    )  # fmt: skip
    Node.objects.filter(name="n3").update(taints=[{"key": "xid", "value": NASTY, "effect": NASTY}])
    text = read(page_of(north))
    assert "<img" not in text
    assert text.count("&lt;img") >= 4


@pytest.mark.parametrize(
    ("query", "status"),
    [("?cursor=forged", 422), ("?colour=red", 400), ("?device=%00", 200), (f"?device={'x' * 1999}", 200)],
)
def test_hostile_queries_are_refused_or_find_nothing(read, north, query, status):
    ran(north, "n3", TENANTS[0])
    text = read(page_of(north, query=query), status=status)
    assert "hacked" not in text

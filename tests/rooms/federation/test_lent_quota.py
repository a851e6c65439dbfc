"""What quotes, capacity and their pages say of borrowed quota is what the next hold takes."""

import json

import pytest
from django.test import Client
from django.urls import reverse

from federation.models import Job, PriorityClass
from federation.operations import run_scheduling_cycle
from quotas.engine.holds import Borrowing
from quotas.models import QuotaLimit
from quotas.operations import put_limit
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_cluster, make_flavor, make_node, make_spec, make_tenant, make_user

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("quotes_look_anew", "lent")]
GPU = 1000


@pytest.fixture
def lent():
    """A quota of sixteen GPUs of twenty-four; half of each department's, which borrow from each other. One GPU of b is guaranteed."""
    cluster = make_cluster("acme", "north")
    make_flavor(cluster)
    for number in range(3):
        make_node(cluster, f"n{number}")
    for path in ("acme/a", "acme/b"):
        make_tenant(path)
    put_limit(SYSTEM, "acme", "gpu", nominal=16 * GPU)
    put_limit(SYSTEM, "acme/a", "gpu", nominal=8 * GPU, borrowing=Borrowing(None, None, reclaims=True))
    put_limit(SYSTEM, "acme/b", "gpu", nominal=8 * GPU, borrowing=Borrowing(6 * GPU, 7 * GPU))


def user_of(path):
    user = make_user()
    bind(user, path, "submitter")
    return user


def asked(user, tenant, gpus, pods=1, **more):
    pod = {"count": pods, "gpu": {"count": gpus, "models": []}, "cpu": "4", "memory": "16Gi"}
    return {"tenant": tenant, **make_spec(pod=pod, **more)}, bearer(user)


def quoted(client, user, *args, **more):
    body, key = asked(user, *args, **more)
    response = client.post("/api/v1/quotes", json.dumps(body), content_type="application/json", headers=key)
    assert response.status_code == 200, response.json()
    return response.json()


def submitted(client, user, *args, **more):
    body, key = asked(user, *args, **more)
    response = client.post("/api/v1/jobs", json.dumps(body), content_type="application/json", headers=key)
    assert response.status_code == 201, response.json()
    run_scheduling_cycle()


def flavors(client, user, tenant):
    shape = json.dumps({"pod_sets": [{"cpu": "4", "memory": "16Gi", "gpu": {"count": 1}}]})
    response = client.get("/api/v1/capacity", {"shape": shape, "tenant": tenant}, headers=bearer(user))
    return response.json()["clusters"][0]["flavors"]


def borrowed(path):
    one = QuotaLimit.objects.get(tenant__path=path, resource="gpu")
    return max(0, one.held - one.nominal)


def test_an_offer_says_what_is_borrowed_and_the_hold_takes_just_that(client):
    user = user_of("acme")
    own = quoted(client, user, "acme/b", 4)["offers"][0]["quota"]
    assert (own["own"], own["message"], own["reclaimed_by"]) == (True, "within the tenant's own quota", [])
    submitted(client, user, "acme/b", 6)
    told = quoted(client, user, "acme/b", 4)["offers"][0]["quota"]
    assert told == {
        "message": "2 of 4 gpu borrowed from acme; acme/a may take it back",
        "own": False,
        "limits": [
            {"tenant": "acme/b", "resource": "gpu", "clusters": [], "amount": "4", "own": "2",
             "borrowed": [{"tenant": "acme/b", "from": "acme", "amount": "2"}]},
        ],
        "reclaimed_by": ["acme/a"],
        "others_reclaim": False,
    }  # fmt: skip
    submitted(client, user, "acme/b", 4)
    assert borrowed("acme/b") == 2 * GPU


def test_a_tenant_that_the_asker_does_not_see_is_not_named(client):
    user = user_of("acme/b")
    submitted(client, user, "acme/b", 8)
    answer = quoted(client, user, "acme/b", 4)
    assert answer["offers"][0]["quota"]["others_reclaim"]
    assert answer["offers"][0]["quota"]["message"].endswith("another tenant may take it back")
    submitted(client, user, "acme/b", 4)
    room = flavors(client, user, "acme/b")
    assert (room[0]["may_be_taken_back"], room[0]["reclaimed_by"], room[0]["others_reclaim"]) == ("4", [], True)
    assert "acme/a" not in json.dumps([answer, room])


def test_capacity_says_what_is_own_guaranteed_and_to_borrow(client):
    user = user_of("acme")
    [room] = flavors(client, user, "acme/b")
    assert (room["flavor"], room["resource"]) == ("h100", "gpu")
    assert (room["own"], room["guaranteed"], room["borrowable"]) == ("8", "1", "6")
    submitted(client, user, "acme/a", 8)
    [room] = flavors(client, user, "acme/b")
    assert (room["own"], room["guaranteed"], room["borrowable"], room["may_be_taken_back"]) == ("8", "1", "0", "0")
    assert flavors(client, user, "acme/a")[0]["own"] == "0"


def test_protection_is_the_shield_of_the_class_and_whether_a_higher_class_replaces(client):
    user = user_of("acme")
    PriorityClass.objects.update(shield_seconds=0, preempts="never")
    calm = quoted(client, user, "acme/a", 1)["offers"][0]
    assert calm["protection"] == {"shielded_until": calm["expected_start_at"], "by_priority": False}
    PriorityClass.objects.filter(name="high").update(preempts="lower")
    PriorityClass.objects.filter(name="normal").update(shield_seconds=3600)
    threatened = quoted(client, user, "acme/a", 1)["offers"][0]
    assert threatened["protection"]["by_priority"]
    assert threatened["protection"]["shielded_until"] > threatened["expected_start_at"]
    high = quoted(client, user_of("acme"), "acme/a", 1, priority_class="high")["offers"][0]
    assert not high["protection"]["by_priority"]


def test_the_pages_say_whose_quota_it_is(client):
    user = user_of("acme")
    submitted(client, user, "acme/b", 6)
    browser = Client()
    browser.force_login(user)
    page = browser.get(reverse("capacity"), {"tenant": "acme/b", "gpus": "1"}).content.decode()
    assert "What quota leaves" in page
    assert "2 GPUs own" in page
    assert "6 GPUs to borrow" in page
    offers = browser.post(reverse("job-submit"), form_of("acme/b", 4)).content.decode()
    assert "2 of 4 gpu borrowed from acme; acme/a may take it back" in offers
    assert "not stopped for other jobs before" in offers


def test_what_quota_leaves_is_shown_once_for_clusters_where_it_is_equal(client):
    for name in ("south", "west"):
        make_flavor(cluster := make_cluster("acme", name))
        make_node(cluster, "n0")
    put_limit(SYSTEM, "acme/b", "gpu", nominal=2 * GPU, clusters=["west"])
    client.force_login(user_of("acme"))
    text = client.get(reverse("capacity"), {"tenant": "acme/b", "gpus": "1"}).content.decode()
    _, _, table = text.partition('aria-label="What quota leaves"')
    assert (table.count("<tr>"), table.count("2 clusters")) == (3, 1)  # with the head
    assert "north, south" in table
    assert "<span>west</span>" in table


def explained(client, user, name):
    job = Job.objects.get(name=name)
    return job, client.get(f"/api/v1/jobs/{job.id}/explanation", headers=bearer(user)).json()


def test_a_job_that_waits_for_quota_says_who_holds_it(client):
    user, stranger = user_of("acme"), user_of("acme/a")
    submitted(client, user, "acme/b", 8)
    submitted(client, user, "acme/b", 4)
    submitted(client, user, "acme/a", 8, name="waits")
    job, told = explained(client, user, "waits")
    assert told["reason"]["code"] == "waiting_for_quota"
    limit = QuotaLimit.objects.get(tenant__path="acme")
    assert told["quota"] == [
        {"tenant": "acme", "resource": "gpu", "clusters": [], "nominal": "16", "held": "12", "lacking": "4",
         "reserved": "0", "reserved_from": None,
         "holders": [{"tenant": "acme/b", "own": False, "direct": False, "held": "12", "kept": "0", "borrowed": "4",
                      "nominal": "8"}]},
    ]  # fmt: skip
    assert limit.held == 12 * GPU
    [one] = explained(client, stranger, "waits")[1]["quota"]
    assert [(part["tenant"], part["held"], part["borrowed"]) for part in one["holders"]] == [(None, "12", "4")]
    browser = Client()
    browser.force_login(user)
    page = browser.get(reverse("job", args=[job.id])).content.decode()
    assert "Who holds the gpu quota of acme" in page
    assert "acme/b" in page
    browser.force_login(stranger)
    hidden = browser.get(reverse("job", args=[job.id])).content.decode()
    assert "Other tenants" in hidden
    assert "acme/b" not in hidden


def test_a_job_that_does_not_wait_for_quota_names_nobody(client):
    user = user_of("acme")
    submitted(client, user, "acme/b", 8, name="runs")
    assert explained(client, user, "runs")[1]["quota"] == []


def form_of(tenant, gpus):
    return {
        "show": "offers", "tenant": tenant, "name": "x", "image": "registry.example/x:1", "count": "1", "gpus": str(gpus),
        "cpu": "4", "memory": "16Gi", "pod_sets": "1",
    }  # fmt: skip

"""Jobs that use network attachments: where they may run, what they are promised, and what is sent to their cluster."""

import json

import pytest
from django.db import DatabaseError, connection, transaction

from clusters.drivers.simulated import SimulatedDriver
from clusters.models import Network
from clusters.operations.networks import NetworkChanges, WantedNetwork, create_network, remove_network, update_network
from federation import operations
from federation.engine.objects.networks import ANNOTATION
from federation.models import Attempt, Job, RemoteObject
from tenancy.models import Tenant
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_tenant, make_user, submit
from tests.live import gpu_job, simulated_cluster

pytestmark = pytest.mark.django_db(transaction=True)
TENANT = "acme/research/vision"


@pytest.fixture
def vision():
    return make_tenant(TENANT)


@pytest.fixture
def sent(monkeypatch):
    """The pod template of every Job, as it is sent to the cluster."""
    templates = []
    create = SimulatedDriver.create_job

    async def look(self, manifest):
        templates.append(manifest["spec"]["template"])
        return await create(self, manifest)

    monkeypatch.setattr(SimulatedDriver, "create_job", look)
    return templates


@pytest.fixture
def post(client):
    user = make_user()
    bind(user, TENANT, "submitter")

    def send(path, body):
        answer = client.post(f"/api/v1{path}", json.dumps(body), content_type="application/json", headers=bearer(user))
        return answer.status_code, answer.json()

    return send


def declare(cluster, **fields):
    given = {"name": "rdma", "definition": "rdma-net", "namespace": "fabric", "tenant": "acme/research"} | fields
    return create_network(SYSTEM, cluster.id, WantedNetwork(**given))


def wanted(*networks):
    body = gpu_job()
    body["pod_sets"][0]["networks"] = list(networks)
    return body


def placed(submitter, *networks):
    job = submit(submitter, wanted(*networks))
    operations.run_scheduling_cycle()
    return Job.objects.get(id=job.id)


def attached(template):
    return template["metadata"].get("annotations", {}).get(ANNOTATION)


def test_the_pods_of_a_job_get_the_networks_that_it_names_in_their_order(cluster, submitter, vision, sent):
    declare(cluster)
    declare(cluster, name="storage", definition="nfs", namespace="")
    assert placed(submitter, "storage", "rdma").state == "dispatching"
    operations.dispatch_attempts()
    assert [attached(one) for one in sent] == ["nfs,fabric/rdma-net"]


def test_each_pod_set_has_its_own(cluster, submitter, sent):
    declare(cluster)
    body = wanted("rdma")
    body["pod_sets"].append({**body["pod_sets"][0], "name": "other", "networks": []})
    submit(submitter, body)
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    assert [attached(one) for one in sent] == ["fabric/rdma-net", None]


def test_a_job_runs_only_where_all_its_networks_are(home, submitter):
    east, west = simulated_cluster("east"), simulated_cluster("west")
    for cluster, names in ((east, ["rdma"]), (west, ["rdma", "storage"])):
        for name in names:
            declare(cluster, name=name)
    job = placed(submitter, "rdma", "storage")
    assert Attempt.objects.get(job=job).cluster_id == west.id


@pytest.mark.parametrize(
    "fields", [{"tenant": "acme/other"}, {"tenant": "acme/research/vision/deeper"}, {"name": "else"}]
)
def test_a_network_that_the_tenant_may_not_use_looks_like_one_that_is_not_there(cluster, post, fields):
    for path in ("acme/other", "acme/research/vision/deeper"):
        make_tenant(path)
    status, absent = post("/jobs", wanted("rdma"))
    assert (status, absent["code"]) == (404, "not_found")
    assert [(one["field"], one["code"]) for one in absent["errors"]] == [("networks.rdma", "not_found")]
    declare(cluster, **fields)
    foreign = post("/jobs", wanted("rdma"))[1]
    assert {**foreign, "request_id": ""} == {**absent, "request_id": ""}
    assert {**post("/quotes", wanted("rdma"))[1], "request_id": ""} == {**absent, "request_id": ""}
    assert not Job.objects.exists()


def test_a_network_of_another_organisations_cluster_serves_no_one_here(home, post):
    simulated_cluster("east")
    theirs = simulated_cluster("theirs", owner="globex")
    declare(theirs, tenant="globex")
    Network.objects.update(tenant=Tenant.objects.get(path=TENANT))
    assert post("/jobs", wanted("rdma"))[0] == 404


def test_two_networks_that_no_cluster_has_both_of_never_fit(home, post):
    declare(simulated_cluster("east"))
    declare(simulated_cluster("west"), name="storage")
    status, refused = post("/jobs", wanted("rdma", "storage"))
    assert (status, refused["code"]) == (422, "never_fits")
    assert [(one["field"], one["code"], one["detail"]) for one in refused["errors"]] == [
        ("clusters.east", "network_missing", "has no network storage that the job's tenant may use"),
        ("clusters.west", "network_missing", "has no network rdma that the job's tenant may use"),
    ]


def test_a_quote_offers_only_the_clusters_with_the_network_and_says_so_of_the_others(home, post):
    declare(simulated_cluster("east"))
    simulated_cluster("west")
    status, quote = post("/quotes", wanted("rdma"))
    assert status == 200
    assert [offer["cluster"] for offer in quote["offers"]] == ["east"]
    [why] = quote["why_not"]
    assert (why["cluster"], why["code"]) == ("west", "network_missing")


def test_a_network_that_goes_while_a_job_waits_keeps_it_waiting_with_the_reason_until_it_is_back(cluster, submitter):
    network = declare(cluster)
    job = submit(submitter, wanted("rdma"))
    remove_network(SYSTEM, cluster.id, network.id)
    operations.run_scheduling_cycle()
    job.refresh_from_db()
    assert (job.state, job.reason_code) == ("queued", "network_missing")
    assert "east has no network rdma" in job.reason_message
    assert [one["code"] for one in job.explanation["clusters"]] == ["network_missing"]
    declare(cluster)
    operations.run_scheduling_cycle()
    job.refresh_from_db()
    assert job.state == "dispatching"


@pytest.mark.parametrize(
    "change",
    [lambda: Network.objects.all().delete(), lambda: Network.objects.update(tenant=make_tenant("acme/other"))],
    ids=["removed", "taken away"],
)
def test_a_network_that_goes_while_the_engine_decides_places_no_job_on_it(cluster, submitter, monkeypatch, change):
    declare(cluster)
    apply = operations.cycle._apply

    def late(*arguments):
        change()
        return apply(*arguments)

    monkeypatch.setattr(operations.cycle, "_apply", late)
    assert placed(submitter, "rdma").state == "queued"
    assert not Attempt.objects.exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda cluster, one: update_network(SYSTEM, cluster.id, one.id, NetworkChanges(definition="x", namespace="")),
        lambda cluster, one: remove_network(SYSTEM, cluster.id, one.id),
    ],
    ids=["changed", "removed"],
)
def test_what_was_promised_when_the_job_was_placed_is_what_is_sent(cluster, submitter, sent, change):
    network = declare(cluster)
    placed(submitter, "rdma")
    change(cluster, network)
    operations.dispatch_attempts()
    assert [attached(one) for one in sent] == ["fabric/rdma-net"]


def test_no_one_rewrites_which_networks_an_object_uses(cluster, submitter):
    declare(cluster)
    placed(submitter, "rdma")
    promised = RemoteObject.objects.get().networks
    assert promised == [{"network": "rdma", "namespace": "fabric", "definition": "rdma-net"}]
    with (
        pytest.raises(DatabaseError, match="which networks object"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute("UPDATE federation_remoteobject SET networks = '[]'")
    assert RemoteObject.objects.get().networks == promised


def test_a_job_without_networks_asks_nothing_of_them(cluster, submitter, sent, django_assert_num_queries):
    declare(cluster)
    submit(submitter, gpu_job())
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    assert attached(sent[0]) is None
    assert RemoteObject.objects.get().networks == []


def test_hostile_names_are_refused_before_they_are_stored(cluster, post):
    declare(cluster)
    for text in ("kube-system/rdma", "rdma,other", '[{"name":"rdma"}]', "rdma@eth0", "%00"):
        status, refused = post("/jobs", wanted(text))
        assert status == 422, text
        assert [one["field"] for one in refused["errors"]] == ["pod_sets[0].networks[0]"]
    body = wanted("rdma")
    body["pod_sets"][0]["annotations"] = {ANNOTATION: "kube-system/rdma"}
    status, refused = post("/jobs", body)
    assert (status, refused["errors"][0]["code"]) == (422, "unknown_field")

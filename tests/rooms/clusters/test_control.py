"""Reading, changing, cordoning, draining, probing and removing clusters over HTTP."""

from datetime import timedelta

import pytest
from django.db import connection

from clusters.models import Cluster, ClusterCredential, ClusterEvent, Flavor, Node
from clusters.operations import record_auth_failure, record_silence, register_simulated
from clusters.queries import cluster_by_name, flavor_summary
from foundation import clock
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.apiserver import api_server, make_certificate
from tests.builders import bearer, bind, make_tenant, make_user

pytestmark = pytest.mark.django_db
URL = "/api/v1/clusters"


@pytest.fixture
def headers(admin):
    return bearer(admin)


@pytest.fixture
def east(api, register):
    return Cluster.objects.get(id=register(api.body()).json()["id"])


def simulated(name, owner="acme", **fields):
    """A simulated cluster's row alone: nothing is founded on disk."""
    return Cluster.objects.create(
        owner=make_tenant(owner),
        name=name,
        driver="simulated",
        server=f"simulated://{name}",
        identity=f"sim-{owner}-{name}",
        **fields,
    )


def add_node(cluster, name, flavor, units, *, used=0, resource="nvidia.com/gpu", **fields):
    Flavor.objects.get_or_create(
        cluster=cluster,
        name=flavor,
        defaults={"vendor": "nvidia", "gpu_model": "H100-80GB", "gpu_memory_mib": 81920, "resource_name": resource},
    )
    return Node.objects.create(
        cluster=cluster, name=name, uid=name, devices=[{"flavor": flavor, "units": units}], used_devices={resource: used},
        cpu_millicores=64_000, memory_mib=262_144, pods=110, observed_at=clock.now(), **fields,
    )  # fmt: skip


def test_tenants_below_the_owner_see_a_cluster_and_may_not_change_it(client, east):
    member = make_user()
    bind(member, "acme/research/vision", "admin")
    headers = bearer(member)
    assert [item["name"] for item in client.get(URL, headers=headers).json()["items"]] == ["east"]
    assert client.get(f"{URL}/{east.id}", headers=headers).status_code == 200
    for answer in (
        client.patch(f"{URL}/{east.id}", {"region": "x"}, content_type="application/json", headers=headers),
        client.delete(f"{URL}/{east.id}", headers=headers),
        *(client.post(f"{URL}/{east.id}/{verb}", headers=headers) for verb in ("probe", "cordon", "uncordon", "drain")),
    ):
        assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied")
    east.refresh_from_db()
    assert (east.region, east.wish, east.removed_at) == ("", "open", None)


def test_a_read_token_may_not_change_a_cluster(client, admin, east):
    answer = client.post(f"{URL}/{east.id}/cordon", headers=bearer(admin, "read"))
    assert answer.status_code == 403
    assert client.get(f"{URL}/{east.id}", headers=bearer(admin, "read")).status_code == 200


def test_a_cluster_of_a_team_is_not_seen_by_its_siblings_or_parents_alone(client, db):
    simulated("theirs", owner="acme/research")
    sibling, inside = make_user(), make_user()
    bind(sibling, "acme/sales", "admin")
    bind(inside, "acme/research/vision", "viewer")
    assert client.get(URL, headers=bearer(sibling)).json()["items"] == []
    assert len(client.get(URL, headers=bearer(inside)).json()["items"]) == 1


def test_lists_filter_and_page(client, headers):
    for number in range(5):
        simulated(f"c{number}", region="eu-1" if number % 2 else "us-1", wish="cordoned" if number == 4 else "open")
    first = client.get(f"{URL}?limit=2", headers=headers).json()
    second = client.get(f"{URL}?limit=2&cursor={first['next']}", headers=headers).json()
    third = client.get(f"{URL}?limit=2&cursor={second['next']}", headers=headers).json()
    names = [item["name"] for page in (first, second, third) for item in page["items"]]
    assert names == ["c0", "c1", "c2", "c3", "c4"]
    assert third["next"] is None

    def found(query):
        return [item["name"] for item in client.get(f"{URL}?{query}", headers=headers).json()["items"]]

    assert found("region=eu-1") == ["c1", "c3"]
    assert found("name=c2") == ["c2"]
    assert found("state=cordoned") == ["c4"]
    assert found("state=ready") == ["c0", "c1", "c2", "c3"]
    assert found("state=unreachable") == []
    assert found("tenant=acme&order=-created") == ["c4", "c3", "c2", "c1", "c0"]
    assert client.get(f"{URL}?state=fine", headers=headers).status_code == 422
    assert client.get(f"{URL}?owner__path__startswith=a", headers=headers).status_code == 422


def test_a_list_asks_the_database_a_fixed_number_of_times(client, headers, django_assert_max_num_queries):
    for number in range(20):
        add_node(simulated(f"c{number}"), "n1", "h100", 8)
    with django_assert_max_num_queries(12):
        assert len(client.get(URL, headers=headers).json()["items"]) == 20


def test_a_cluster_shows_its_flavors_with_what_is_free(client, headers):
    cluster = simulated("east")
    add_node(cluster, "n1", "h100", 8, used=2)
    add_node(cluster, "n2", "h100", 8, used=5)
    add_node(cluster, "n3", "h100", 8, is_ready=False)
    add_node(cluster, "n4", "h100", 8, is_schedulable=False)
    add_node(cluster, "n5", "h100", 4, used=9)
    [flavor] = client.get(f"{URL}/{cluster.id}", headers=headers).json()["flavors"]
    assert flavor == {
        "name": "h100", "vendor": "nvidia", "gpu_model": "H100-80GB", "gpu_memory_mib": 81920, "sharing": "whole",
        "capacity_type": "on_demand", "nodes": 5, "total": 36, "free": 9, "used": 11, "used_by_others": 0,
        "out_of_service": 16, "unseen": 0, "largest_free_block": 6, "slice_hosts": 1, "unplaceable": "",
    }  # fmt: skip
    assert client.get(f"{URL}/{cluster.id}/flavors", headers=headers).json()["items"] == [flavor]


def test_summaries_keep_clusters_apart(db):
    here, there = simulated("here"), simulated("there")
    add_node(here, "n", "h100", 8)
    add_node(there, "n", "h100", 2)
    found = flavor_summary([here, there], clock.now())
    assert [(f.count.total, f.nodes) for f in found[here.id]] == [(8, 1)]
    assert [(f.count.total, f.nodes) for f in found[there.id]] == [(2, 1)]


def test_nodes_are_listed_with_kubernetes_quantities(client, headers):
    cluster = simulated("east")
    for number in range(3):
        add_node(cluster, f"n{number}", "h100", 8, used=1, domain=["z", "b", "r", f"n{number}", ""])
    page = client.get(f"{URL}/{cluster.id}/nodes?limit=2", headers=headers).json()
    assert [node["name"] for node in page["items"]] == ["n0", "n1"]
    assert page["items"][0]["cpu"] == "64000m"
    assert page["items"][0]["memory"] == "262144Mi"
    assert page["items"][0]["used_devices"] == {"nvidia.com/gpu": 1}
    assert page["next"]


def test_cordon_drain_and_uncordon_are_told_once_each(client, headers, east):
    states = []
    for verb in ("cordon", "cordon", "drain", "uncordon"):
        answer = client.post(f"{URL}/{east.id}/{verb}", headers=headers)
        assert answer.status_code == 200
        states.append(answer.json()["state"])
    assert states == ["cordoned", "cordoned", "draining", "ready"]
    audited = AuditEntry.objects.filter(object_id=str(east.id), outcome="done").order_by("id")
    assert list(audited.values_list("action", flat=True)) == [
        "cluster.register", "cluster.cordon", "cluster.drain", "cluster.uncordon",
    ]  # fmt: skip
    events = client.get(f"{URL}/{east.id}/events", headers=headers).json()["items"]
    assert [event["kind"] for event in events] == [
        "cluster.uncordon", "cluster.drain", "cluster.cordon", "cluster.registered",
    ]  # fmt: skip


def test_trouble_is_shown_before_the_administrators_wish(client, headers, east):
    client.post(f"{URL}/{east.id}/cordon", headers=headers)
    record_silence(east.id, "the connection failed")
    assert client.get(f"{URL}/{east.id}", headers=headers).json()["state"] == "unreachable"


def test_region_provider_and_labels_change_without_a_probe(client, headers, east, api):
    calls = len(api.seen)
    answer = client.patch(
        f"{URL}/{east.id}",
        {"region": "eu-2", "labels": {"tier": "1"}},
        content_type="application/json",
        headers=headers,
    )
    assert answer.status_code == 200
    assert (answer.json()["region"], answer.json()["labels"], answer.json()["provider"]) == ("eu-2", {"tier": "1"}, "")
    assert len(api.seen) == calls
    assert AuditEntry.objects.latest("id").detail == {"fields": ["labels", "region"]}
    for body in ({"server": "https://203.0.113.1"}, {"name": "west"}, {"state": "ready"}, {"identity": "x"}):
        refused = client.patch(f"{URL}/{east.id}", body, content_type="application/json", headers=headers)
        assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, "unknown_field")


def test_a_new_token_is_probed_and_then_used(client, headers, east, api):
    before = ClusterCredential.objects.get()
    refused = client.patch(f"{URL}/{east.id}", {"token": "new"}, content_type="application/json", headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (422, "not_authorized")
    assert bytes(ClusterCredential.objects.get().sealed) == bytes(before.sealed)
    api.token = "new"
    answer = client.patch(f"{URL}/{east.id}", {"token": "new"}, content_type="application/json", headers=headers)
    assert (answer.status_code, answer.json()["state"]) == (200, "ready")
    api.seen.clear()
    assert client.post(f"{URL}/{east.id}/probe", headers=headers).json()["state"] == "ready"
    assert {sent["Authorization"] for _, _, sent in api.seen} == {"Bearer new"}


def test_new_credentials_must_reach_the_same_cluster(client, headers, east, api):
    api.identity = "rebuilt"
    answer = client.patch(f"{URL}/{east.id}", {"token": api.token}, content_type="application/json", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "identity_changed")


def test_a_new_authority_is_probed_with_the_stored_credential(client, headers, east, api):
    stranger, _ = make_certificate("127.0.0.1")
    refused = client.patch(f"{URL}/{east.id}", {"ca_pem": stranger}, content_type="application/json", headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (422, "tls_failed")
    both = client.patch(
        f"{URL}/{east.id}", {"ca_pem": api.ca_pem + stranger}, content_type="application/json", headers=headers
    )
    assert both.status_code == 200
    east.refresh_from_db()
    assert east.ca_pem.count("BEGIN CERTIFICATE") == 2


def test_a_probe_finds_kueue_when_it_comes_and_when_it_goes(client, headers, east, api):
    def probed():
        shown = client.post(f"{URL}/{east.id}/probe", headers=headers).json()
        return shown["state"], shown["capabilities"]

    assert probed() == ("ready", [])
    api.groups = ["batch", "kueue.x-k8s.io"]
    assert probed() == ("ready", ["kueue"])
    api.groups = ["batch", "visibility.kueue.x-k8s.io"]
    assert probed() == ("ready", [])
    # an account that may not list the groups is no reason to refuse the cluster
    api.answers["/apis"] = lambda handler: handler.say(403, {"kind": "Status", "reason": "Forbidden", "code": 403})
    assert probed() == ("ready", [])


def test_a_probe_tells_rights_clock_and_identity(client, headers, east, api):
    def probed():
        shown = client.post(f"{URL}/{east.id}/probe", headers=headers).json()
        return shown["state"], [reason["code"] for reason in shown["reasons"]]

    rules = api.rules
    api.rules = [*rules, {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    assert probed() == ("degraded", ["excess_permission"])
    api.clock_offset = timedelta(minutes=5)
    assert probed() == ("degraded", ["clock_skew", "excess_permission"])
    api.rules, api.clock_offset = rules, timedelta()
    assert probed() == ("ready", [])
    pinned, api.identity = api.identity, "rebuilt"
    assert probed() == ("unreachable", ["identity_changed"])
    api.identity = pinned
    assert probed() == ("ready", [])


def test_a_probe_of_a_cluster_that_is_gone_makes_it_unreachable(client, headers, register):
    with api_server() as api:
        cluster_id = register(api.body()).json()["id"]
    answer = client.post(f"{URL}/{cluster_id}/probe", headers=headers)
    assert answer.status_code == 200
    assert answer.json()["state"] == "unreachable"
    assert answer.json()["reasons"][0]["code"] == "unreachable"


def test_removal_takes_secret_and_inventory_and_keeps_history(client, headers, east):
    add_node(east, "n1", "h100", 8)
    answer = client.delete(f"{URL}/{east.id}", headers=headers)
    assert answer.status_code == 204
    assert client.get(f"{URL}/{east.id}", headers=headers).status_code == 404
    assert client.get(URL, headers=headers).json()["items"] == []
    assert not ClusterCredential.objects.exists()
    assert not Node.objects.exists()
    assert not Flavor.objects.exists()
    kept = Cluster.everything.get()
    assert kept.removed_at is not None
    assert ClusterEvent.objects.filter(cluster=kept).exists()
    assert AuditEntry.objects.latest("id").action == "cluster.remove"
    assert record_auth_failure(east.id, "late") is False


def test_a_removed_cluster_may_be_registered_again_under_its_name(client, headers, east, api, register):
    client.delete(f"{URL}/{east.id}", headers=headers)
    again = register(api.body())
    assert again.status_code == 201
    assert again.json()["id"] != str(east.id)


@pytest.fixture
def work_lives_there(east):
    """What a room above does to keep a cluster: a trigger on `removed_at`."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION pg_temp.keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " RAISE EXCEPTION 'in use' USING ERRCODE = 'foreign_key_violation'; END $$;"
            " CREATE TRIGGER keep BEFORE UPDATE OF removed_at ON clusters_cluster FOR EACH ROW EXECUTE FUNCTION pg_temp.keep()"
        )


@pytest.mark.usefixtures("work_lives_there")
def test_a_cluster_with_live_work_is_not_removed(client, headers, east):
    answer = client.delete(f"{URL}/{east.id}", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (409, "cluster_in_use")
    assert ClusterCredential.objects.count() == 1
    assert client.get(f"{URL}/{east.id}", headers=headers).status_code == 200


def test_a_simulated_cluster_is_registered_only_from_inside(client, headers, settings, tmp_path, register):
    settings.HOME = tmp_path
    cluster = register_simulated(make_tenant("acme"), "sim-1", region="eu-1")
    assert cluster_by_name(SYSTEM, "sim-1") == cluster
    assert client.get(f"{URL}/{cluster.id}", headers=headers).json()["state"] == "ready"
    assert client.post(f"{URL}/{cluster.id}/probe", headers=headers).json()["state"] == "ready"
    refused = client.patch(f"{URL}/{cluster.id}", {"token": "x"}, content_type="application/json", headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (409, "state_conflict")
    for body in ({"server": "simulated://sim-2", "token": "t"}, {"driver": "simulated"}):
        assert register({"name": "sim-2", **body}).status_code == 422


def test_the_commands_take_no_strange_methods(client, headers, east):
    assert client.get(f"{URL}/{east.id}/cordon", headers=headers).status_code == 405
    assert client.put(f"{URL}/{east.id}", {}, content_type="application/json", headers=headers).status_code == 405

"""Attacks 5 to 18 of the catalogue that the other fields of a registration, or the server that it names, can carry (8, 12 and 14 also
against the driver and real clusters).

Every refusal is a 4xx with a stable code and the field's name, leaves no row, echoes no secret, and is audited.
"""

import base64
import logging
import re
import socket
import tracemalloc
from uuid import UUID

import pytest
from django.conf import settings
from django.core.management import call_command

from clusters.drivers import NodeSeen, Unreachable, connections
from clusters.drivers.resolve import address_of, registration_of
from clusters.engine.inventory import ForeignUse
from clusters.models import Cluster, ClusterCredential, Node
from clusters.operations import record_inventory
from clusters.queries import address_of_registered, cluster_by_name, driver_of
from foundation.problems import NotFound
from tenancy.models import AuditEntry
from tenancy.queries import actor_for
from tests.apiserver import TOKEN, api_server, make_certificate
from tests.builders import bearer, bind, make_user

from .refused import assert_refused, kubeconfig

pytestmark = pytest.mark.django_db
URL = "/api/v1/clusters"


def test_attack_05_plain_http_is_refused(register):
    assert_refused(register({"name": "east", "server": "http://203.0.113.9", "token": TOKEN}), "server", "not_https")
    answer = register({"name": "east", "kubeconfig": kubeconfig(server="http://203.0.113.9")})
    assert_refused(answer, "kubeconfig.clusters[0].cluster.server", "not_https")


def test_attack_05_proxies_of_the_environment_are_not_used(register, api, monkeypatch):
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert register(api.body()).status_code == 201


@pytest.mark.parametrize(
    "server",
    [
        "https://169.254.169.254",
        "https://[fd00:ec2::254]",
        "https://168.63.129.16",
        "https://100.100.100.200",
        "https://[::1]",
        "https://[::]",
        "https://[::ffff:169.254.169.254]",
        "https://[64:ff9b::a9fe:a9fe]",
        "https://[fe80::1]",
        "https://10.0.0.1",
        "https://172.16.0.1",
        "https://192.168.0.1",
        "https://100.64.0.1",
        "https://0.0.0.0",
        "https://224.0.0.1",
        "https://255.255.255.255",
    ],
)
def test_attack_06_addresses_inside_are_refused(register, server):
    assert_refused(register({"name": "east", "server": server, "token": TOKEN}), "server", "address_not_allowed")


@pytest.mark.parametrize("host", ["127.0.0.1", "[::ffff:127.0.0.1]", "localhost"])
def test_attack_06_loopback_is_refused_unless_listed(register, settings, host):
    settings.EGRESS_ALLOW = []
    assert_refused(
        register({"name": "east", "server": f"https://{host}", "token": TOKEN}), "server", "address_not_allowed"
    )


@pytest.mark.parametrize(
    "host", ["0x7f.1", "0x7f000001", "2130706433", "017700000001", "127.1", "127.0.0.01", "127.0.0.1."]
)
def test_attack_06_odd_spellings_of_addresses_are_refused(register, host):
    assert_refused(register({"name": "east", "server": f"https://{host}", "token": TOKEN}), "server", "bad_host")


def test_attack_06_our_own_database_and_broker_are_refused_even_where_their_network_is_listed(register):
    database = settings.DATABASES["default"]
    broker = settings.REDIS_URL.rpartition("@")[2].removeprefix("redis://").partition("/")[0]
    for server in (f"https://{database['HOST']}:{database['PORT']}", f"https://{broker}"):
        answer = register({"name": "east", "server": server, "token": TOKEN})
        assert_refused(answer, "server", "address_not_allowed")


def test_attack_07_a_name_is_resolved_once_and_only_the_judged_address_is_called(register, api, monkeypatch):
    answers = iter([["127.0.0.1"], ["169.254.169.254"]])
    asked = []

    def rebinding(host, port, *args, **kwargs):
        if host != "rebind.example":
            return real(host, port, *args, **kwargs)
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in next(answers)]

    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    with api_server("rebind.example") as named:
        answer = register(named.body(server=f"https://rebind.example:{named.port}"))
    assert answer.status_code == 201, answer.content
    assert asked == ["rebind.example"]
    assert all(headers["Host"] == f"rebind.example:{named.port}" for _, _, headers in named.seen)
    # A new driver asks again, and the name now leads inside.
    connections.close_all()
    cluster = Cluster.objects.get()
    with pytest.raises(Unreachable, match="is refused"):
        driver_of(cluster.id)


def test_attack_08_a_redirect_is_not_followed(register, api):
    with api_server() as inside:
        for path in ("/version", "/api/v1/namespaces/kube-system"):
            api.answers = {path: lambda handler: handler.say(302, {}, {"Location": f"{inside.server}/version"})}
            answer = register(api.body())
            assert (answer.status_code, answer.json()["code"]) == (422, "unreachable")
        assert inside.seen == []


@pytest.mark.parametrize(
    "server",
    [
        "https://good.example@evil.example",
        "https://user:pass@203.0.113.9",
        "https://203.0.113.9#x",
        "https://203.0.113.9?x=1",
        "https://203.0.113.9:0",
        "https://203.0.113.9:65536",
        "https://203.0.113.9:0443",
        "https://203.0.113.9:",
        "https://203.0.113.9:+443",
        "https://203.0.113.9:443:443",
        "https://203.0.113.9/../x",
        "https://203.0.113.9\\@evil.example",
        "https://203.0.113.9%2f",
        "https:///x",
        "https://",
        "//203.0.113.9",
        "file:///etc/passwd",
        "https://ex ample",
        "https://exämple.org",
        "https://[fe80::1%25eth0]",
        "https://" + "a" * 600,
    ],
)
def test_attack_09_urls_that_mislead_are_refused(register, server):
    assert_refused(register({"name": "east", "server": server, "token": TOKEN}), "server")


def test_attack_11_the_same_cluster_is_registered_once(register, api, client):
    assert register(api.body()).status_code == 201
    with api_server() as same:
        same.identity = api.identity
        again = register(same.body(name="west"))
        assert (again.status_code, again.json()["code"]) == (409, "cluster_already_registered")
        stranger = make_user()
        bind(stranger, "globex", "admin")
        body = same.body(name="theirs")
        theirs = client.post(URL, body, content_type="application/json", headers=bearer(stranger))
        assert (theirs.status_code, theirs.json()["code"]) == (409, "cluster_already_registered")
        assert "acme" not in theirs.content.decode()
    assert Cluster.everything.count() == ClusterCredential.objects.count() == 1


def test_attack_12_a_revoked_token_turns_the_cluster_auth_failed(register, api, client, admin):
    cluster_id = register(api.body()).json()["id"]
    api.token = "another"
    answer = client.post(f"{URL}/{cluster_id}/probe", headers=bearer(admin))
    assert answer.status_code == 200
    assert answer.json()["state"] == "auth_failed"
    assert answer.json()["reasons"][0]["code"] == "auth_failed"


@pytest.mark.parametrize(
    "rule",
    [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["one"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["deletecollection"]},
        {"apiGroups": ["batch"], "resources": ["*"], "verbs": ["get"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["escalate"]},
        {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]},
        {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]},
    ],
)
def test_attack_13_an_overpowered_credential_is_refused(register, api, rule):
    api.rules = [*api.rules, rule]
    answer = register(api.body())
    assert (answer.status_code, answer.json()["code"]) == (422, "excess_permission")
    verb, resource = rule["verbs"][0], rule["resources"][0]
    assert any(f"{verb} {resource}" in error["detail"] for error in answer.json()["errors"])
    assert not Cluster.everything.exists()


def test_attack_14_a_probe_of_a_hostile_server_ends_in_a_refusal(register, api):
    api.answers = {"/version": lambda handler: handler.say(200, b"[" * 100_000)}
    answer = register(api.body())
    assert (answer.status_code, answer.json()["code"]) == (422, "unreachable")


IDENTITIES = ["", "\0", "uid\0", "u" * 65, "u" * 100_000, "a b", "\u202eabc", "-", "../x", "<script>", "\u0661"]


@pytest.mark.parametrize("identity", IDENTITIES, ids=range(len(IDENTITIES)))
def test_a_cluster_that_does_not_say_who_it_is_is_not_registered(register, api, identity):
    api.identity = identity
    answer = register(api.body())
    assert (answer.status_code, answer.json()["code"]) == (422, "identity_refused"), answer.content[:500]
    assert len(answer.content) < 1000
    assert not Cluster.everything.exists()


@pytest.mark.parametrize("identity", [7, None, ["a"], {"a": "b"}, True])
def test_an_identity_of_another_type_is_an_answer_that_nobody_expected(register, api, identity):
    api.identity = identity
    answer = register(api.body())
    assert (answer.status_code, answer.json()["code"]) == (422, "unreachable")


@pytest.mark.parametrize("identity", ["", "uid\0", "u" * 100_000])
def test_a_registered_cluster_that_comes_to_say_such_things_is_another(register, api, client, admin, identity):
    cluster = register(api.body()).json()
    api.identity = identity
    answer = client.post(f"{URL}/{cluster['id']}/probe", headers=bearer(admin))
    assert answer.status_code == 200, answer.content[:500]
    shown = client.get(f"{URL}/{cluster['id']}", headers=bearer(admin)).json()
    assert (shown["state"], [reason["code"] for reason in shown["reasons"]]) == ("unreachable", ["identity_changed"])


@pytest.mark.parametrize("version", ["\0", "v1\0", "v" * 100_000, "\u202e", "v 1"])
def test_a_version_that_is_none_is_a_refusal_and_no_defect(register, api, version):
    api.answers["/version"] = lambda handler: handler.say(200, {"gitVersion": version})
    assert register(api.body()).status_code == 422


def test_rules_of_a_few_kilobytes_are_not_made_billions_of(register, api):
    many = [f"t{n}" for n in range(200)]
    api.rules = [*api.rules, {"apiGroups": many, "resources": many, "verbs": many}]
    tracemalloc.start()
    try:
        answer = register(api.body())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (answer.status_code, answer.json()["code"]) == (422, "excess_permission")
    assert re.search(r"and 2\d{7} more", answer.json()["detail"])
    assert peak < 64 * 2**20


@pytest.mark.parametrize("amount", ["1000000000000", "-1", "NaN", "1e400", "9" * 5000])
def test_attack_15_implausible_capacity_counts_as_none_and_raises_an_alarm(register, api, amount):
    cluster_id = register(api.body()).json()["id"]
    seen = NodeSeen(
        name="n1",
        uid="u1",
        labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        taints=(),
        allocatable={"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": amount},
        is_ready=True,
        is_schedulable=True,
    )
    record_inventory(cluster_id, [seen], {"n1": ForeignUse()})
    node = Node.objects.get()
    assert sum(entry["units"] for entry in node.devices) == 0
    cluster = Cluster.objects.get()
    assert (cluster.health, [reason["code"] for reason in cluster.reasons]) == ("degraded", ["implausible_capacity"])
    assert list(cluster.events.order_by("id").values_list("kind", flat=True)) == [
        "cluster.registered",
        "implausible_capacity",
        "health.degraded",
    ]


def test_attack_17_the_credential_is_never_shown_anywhere(register, api, client, admin, caplog):
    caplog.set_level(logging.DEBUG)
    certificate, key = make_certificate("canary-certificate")
    key_line = key.splitlines()[1]
    cluster_id = register(api.body()).json()["id"]
    refused = register(api.body(name="west", token=None, client_certificate_pem=certificate, client_key_pem=key[:-40]))
    headers = bearer(admin)
    pages = [
        refused,
        client.get(URL, headers=headers),
        client.get(f"{URL}/{cluster_id}", headers=headers),
        client.patch(f"{URL}/{cluster_id}", {"token": TOKEN}, content_type="application/json", headers=headers),
        client.post(f"{URL}/{cluster_id}/probe", headers=headers),
        *(client.get(f"{URL}/{cluster_id}/{part}", headers=headers) for part in ("nodes", "flavors", "events")),
    ]
    api.answers = {"/version": lambda handler: handler.say(403, {"message": f"no: {TOKEN}", "code": 403})}
    pages.append(client.post(f"{URL}/{cluster_id}/probe", headers=headers))
    operator = make_user("operator@example.org")
    operator.is_staff = operator.is_superuser = True
    operator.save()
    client.force_login(operator)
    pages += [
        client.get(f"/admin/clusters/{path}") for path in ("cluster/", f"cluster/{cluster_id}/change/", "clusterevent/")
    ]
    assert [page.status_code for page in pages] == [422, *[200] * 11]
    told = "\n".join(page.content.decode() for page in pages) + caplog.text
    told += "".join(f"{entry.action}{entry.detail}" for entry in AuditEntry.objects.all())
    sealed = bytes(ClusterCredential.objects.get().sealed)
    for secret in (TOKEN, key_line, sealed.hex(), base64.b64encode(sealed).decode()[:40]):
        assert secret not in told
    assert TOKEN not in repr(address_of_registered(UUID(cluster_id)))


def test_attack_17_an_unsealed_credential_is_not_in_an_exception(register, api, settings):
    cluster_id = register(api.body()).json()["id"]
    settings.KEY_RING = "other:" + base64.b64encode(b"o" * 32).decode()
    with pytest.raises(Exception, match="no longer in the key ring") as caught:
        driver_of(cluster_id)
    assert TOKEN not in str(caught.value)


def test_attack_18_another_tenants_cluster_is_absent(register, api, client):
    cluster_id = register(api.body()).json()["id"]
    stranger = make_user()
    bind(stranger, "globex", "admin")
    headers = bearer(stranger)
    absent = client.get(f"{URL}/01a1fd59-0000-7000-8000-000000000000", headers=headers)
    assert absent.status_code == 404
    asked = [
        client.get(f"{URL}/{cluster_id}", headers=headers),
        client.patch(f"{URL}/{cluster_id}", {"region": "x"}, content_type="application/json", headers=headers),
        client.delete(f"{URL}/{cluster_id}", headers=headers),
        *(
            client.post(f"{URL}/{cluster_id}/{verb}", headers=headers)
            for verb in ("probe", "cordon", "uncordon", "drain")
        ),
        *(client.get(f"{URL}/{cluster_id}/{part}", headers=headers) for part in ("nodes", "flavors", "events")),
    ]
    for answer in asked:
        assert answer.status_code == 404
        assert {**answer.json(), "request_id": ""} == {**absent.json(), "request_id": ""}
    assert client.get(URL, headers=headers).json()["items"] == []
    assert client.get(f"{URL}?name=east", headers=headers).json()["items"] == []
    with pytest.raises(NotFound):
        cluster_by_name(actor_for(stranger), "east")
    assert Cluster.objects.get().wish == "open"


def test_attack_71_after_rekeying_the_old_key_is_dead(register, api, settings, capsys):
    cluster_id = register(api.body()).json()["id"]
    new = "new:" + base64.b64encode(b"n" * 32).decode()
    old_only, both = settings.KEY_RING, f"{new},{settings.KEY_RING}"
    settings.KEY_RING = both
    call_command("rekey_credentials")
    assert capsys.readouterr().out == "1 credentials and secrets moved to the current key, 0 already used it.\n"
    assert ClusterCredential.objects.get().key_id == "new"
    settings.KEY_RING = new
    assert driver_of(cluster_id)
    settings.KEY_RING = old_only
    connections.close_all()
    with pytest.raises(Exception, match="no longer in the key ring"):
        address_of(registration_of(cluster_id))

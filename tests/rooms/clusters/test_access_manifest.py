"""The manifest for clusters has the installation's list of resources."""

import json

import pytest
import yaml
from django.conf import settings
from django.test import override_settings

from clusters.engine.resources import HUGE_PAGES_MIB
from clusters.operations.networks import WantedNetwork, create_network
from clusters.web.register import MANIFEST, USUAL_RESOURCES
from tenancy.queries import SYSTEM
from tests.builders import bind, make_cluster, make_user


def lists_in(text: str) -> list[object]:
    """What the policy for Jobs lets through."""
    policies = [one for one in yaml.safe_load_all(text) if one["kind"] == "ValidatingAdmissionPolicy"]
    variables = [each for one in policies for each in one["spec"].get("variables", ())]
    return [json.loads(each["expression"]) for each in variables if each["name"] == "others"]


def test_the_file_has_the_usual_list():
    assert lists_in(MANIFEST.read_text()) == [sorted(USUAL_RESOURCES)]
    assert set(USUAL_RESOURCES) == set(HUGE_PAGES_MIB)
    assert tuple(sorted(USUAL_RESOURCES)) == settings.RESOURCES


@pytest.mark.django_db
@pytest.mark.parametrize(
    "allowed", [(), ("rdma/hca",), ("hugepages-2Mi", "nvidia.com/gpumem", "vpc.amazonaws.com/efa")]
)
def test_the_download_has_the_installations_list_and_nothing_else_differs(client, allowed):
    user = make_user()
    bind(user, "acme", "admin")
    client.force_login(user)
    with override_settings(RESOURCES=allowed):
        text = client.get("/clusters/access.yaml").content.decode()
    assert lists_in(text) == [sorted(allowed)]
    differing = set(text.splitlines()) ^ set(MANIFEST.read_text().splitlines())
    assert len(differing) == 2


def networks_in(text: str) -> list[object]:
    """The network attachments that the policy for Jobs allows."""
    policies = [one for one in yaml.safe_load_all(text) if one["kind"] == "ValidatingAdmissionPolicy"]
    variables = [each for one in policies for each in one["spec"].get("variables", ())]
    return [json.loads(each["expression"]) for each in variables if each["name"] == "networks"]


@pytest.mark.django_db
def test_the_download_for_a_cluster_allows_its_networks_and_nothing_else_differs(client):
    north, south = make_cluster("acme", "north"), make_cluster("acme", "south")
    for cluster, name, namespace in ((north, "rdma", "fabric"), (north, "own", ""), (south, "far", "fabric")):
        create_network(SYSTEM, cluster.id, WantedNetwork(name=name, definition=f"{name}-net", namespace=namespace))
    user = make_user()
    bind(user, "acme", "admin")
    client.force_login(user)
    plain = client.get("/clusters/access.yaml").content.decode()
    assert networks_in(plain) == networks_in(MANIFEST.read_text()) == [[]]
    text = client.get(f"/clusters/access.yaml?cluster={north.id}").content.decode()
    assert networks_in(text) == [["fabric/rdma-net", "own-net"]]
    assert len(set(text.splitlines()) ^ set(plain.splitlines())) == 2
    stranger = make_user()
    bind(stranger, "globex", "admin")
    client.force_login(stranger)
    for asked in (north.id, stranger.id, "x", "%00", ""):
        answer = client.get(f"/clusters/access.yaml?cluster={asked}")
        assert answer.status_code in (200, 404, 422), asked
        assert b"rdma-net" not in answer.content, asked
    assert client.get(f"/clusters/access.yaml?cluster={north.id}").status_code == 404

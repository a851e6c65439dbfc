"""Network attachments on a real API server: the policy for Jobs allows those that are listed for the cluster, and no others."""

import time

import pytest
import yaml

from clusters.engine.networks import KnownNetwork
from clusters.web.register import NO_NETWORKS
from devtools.localfleet.admin import apply, client
from federation.engine.objects.networks import ANNOTATION, lay_networks, promised_network
from foundation.ids import new_id

from .attacks import OURS, WORKING, folder, job
from .conftest import ACCESS_MANIFEST, HEEDED_SECONDS, gateway_token

pytestmark = pytest.mark.kube
FOREIGN = [
    "fabric/other", "rdma-net", "default/rdma-net", "fabric/rdma-net,kube-system/host", "fabric/rdma-net@eth0", " fabric/rdma-net",
    "fabric/rdma-net,", ",", "", '[{"name": "rdma-net", "namespace": "fabric"}]', "FABRIC/rdma-net", "fabric/rdma-net\n",
]  # fmt: skip


@pytest.fixture
def thief(bare_clusters):
    """A client with the gateway's token on a cluster whose policy lists two networks."""
    plane = bare_clusters[1]
    token = gateway_token(plane)
    listed = NO_NETWORKS.replace('"[]"', """'["fabric/rdma-net", "nfs"]'""")
    text = ACCESS_MANIFEST.read_text().replace(NO_NETWORKS, listed)
    apply(plane, [one for one in yaml.safe_load_all(text) if one["kind"] == "ValidatingAdmissionPolicy"])
    with client(plane, token) as http, client(plane) as admin:
        own = WORKING["namespaces"]["metadata"]
        http.post("/api/v1/namespaces", json={"metadata": {**own, "name": OURS}})
        yield http
        admin.delete(f"/api/v1/namespaces/{OURS}")
    gateway_token(plane)  # as it was


def sent(http, text=None, promised=()):
    manifest = job(f"n-{new_id().hex[-12:]}")
    if text is not None:
        manifest["spec"]["template"]["metadata"]["annotations"] = {ANNOTATION: text}
    lay_networks(manifest["spec"]["template"], promised)
    return http.post(f"{folder('jobs')}?dryRun=All", json=manifest)


def test_the_gateway_attaches_what_is_listed_for_the_cluster_and_a_thief_no_more(thief):
    known = [
        KnownNetwork(new_id(), "acme", "acme", "rdma", "rdma-net", "fabric"),
        KnownNetwork(new_id(), "acme", "acme", "storage", "nfs", ""),
    ]
    deadline = time.monotonic() + HEEDED_SECONDS
    while not (answer := sent(thief, promised=[promised_network(one) for one in known])).is_success:
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.3)
    template = answer.json()["spec"]["template"]
    assert template["metadata"]["annotations"] == {ANNOTATION: "fabric/rdma-net,nfs"}
    for text in FOREIGN:
        refused = sent(thief, text)
        assert refused.status_code == 403, text
        assert "network attachments that are listed here" in refused.json()["message"], text

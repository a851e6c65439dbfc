"""One control plane whose nodes run pods, for all tests of the kubelet."""

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest

from devtools.localfleet import start_fleet, stop_fleet
from devtools.localfleet.admin import apply, client, create_nodes
from devtools.localfleet.kubelet import RUNS_LABEL
from tests.contract.worlds import BASE_NODES, Real, node_object
from tests.kube.conftest import gateway_token
from tests.kube.running_pods import wait_for


@pytest.fixture(scope="package")
def plane():
    root = Path(tempfile.mkdtemp(prefix="switchyard-kubelet-", dir="/var/tmp"))
    (found,) = start_fleet(("ran",), root, with_nodes=False, kubelet=True)
    ours = [{**node, "metadata": {**node["metadata"], "labels": {**node["metadata"]["labels"], RUNS_LABEL: "true"}}}
            for node in BASE_NODES]  # fmt: skip
    try:
        asyncio.run(create_nodes(found, [*ours, node_object("pretend")]))
        apply(found, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "runs"}}])
        with client(found) as http:
            wait_for(lambda: http.get("/api/v1/namespaces/runs/serviceaccounts/default").is_success, "an account")
        yield found
    finally:
        stop_fleet([found])
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def http(plane):
    with client(plane) as found:
        yield found


@pytest.fixture(scope="package")
def world(plane):
    return Real(plane, gateway_token(plane))

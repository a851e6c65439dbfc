import re
import subprocess

import pytest
import yaml

from devtools.localfleet.admin import client
from devtools.programs import unpack
from devtools.serve import PROJECT
from tests.kube.test_localfleet import wait_for

pytestmark = pytest.mark.kube
LABEL = "pod-security.kubernetes.io/enforce"


def test_a_real_api_server_takes_the_chart_strictly_and_its_pods_pass_the_restricted_standard(
    bare_clusters, namespace_name, tmp_path
):
    plane = bare_clusters[0]
    text = subprocess.run(
        [unpack("helm", tmp_path), "template", "swy", str(PROJECT / "helm")], capture_output=True, text=True, check=True
    ).stdout
    strictly = {"fieldValidation": "Strict", "dryRun": "All"}
    with client(plane) as http:
        namespace = {"metadata": {"name": namespace_name, "labels": {LABEL: "restricted"}}}
        http.post("/api/v1/namespaces", json=namespace).raise_for_status()
        account = f"/api/v1/namespaces/{namespace_name}/serviceaccounts/default"
        wait_for(lambda: http.get(account).status_code == 200, "the namespace's ServiceAccount")
        for document in filter(None, yaml.safe_load_all(text)):
            group = document["apiVersion"]
            root = f"/apis/{group}" if "/" in group else f"/api/{group}"
            plural = re.sub("ys$", "ies", f"{document['kind'].lower()}s")
            answer = http.post(f"{root}/namespaces/{namespace_name}/{plural}", params=strictly, json=document)
            assert answer.status_code == 201, answer.text
            # Workloads are only warned about; a pod made from the same template is judged.
            template = document["spec"].get("template")
            if template:
                pod = {"metadata": {"name": "judged"}, "spec": template["spec"]}
                answer = http.post(f"/api/v1/namespaces/{namespace_name}/pods", params=strictly, json=pod)
                assert answer.status_code == 201, answer.text

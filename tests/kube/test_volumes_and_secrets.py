"""A job's volumes and Secrets as a real control plane shows them, from their creation to the end of their Job, and the new volumes
and images that its policy lets in.
"""

import asyncio
import base64
import time
from uuid import uuid4

import pytest
import yaml

from clusters.drivers import AlreadyExists
from clusters.drivers.kubernetes.driver import KubernetesDriver
from clusters.engine.secrets import KnownSecret, keyring_of, pull_config
from clusters.engine.storages import KnownStorage
from clusters.web.register import NO_CLASSES
from devtools.localfleet.admin import apply, client
from federation.engine.intake.normal_form import spec_json
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.objects.job_secrets import lay_secrets, secret_manifests, versions_of
from federation.engine.objects.mounts import lay_mounts, promised_mount
from federation.engine.objects.rendering import Devices, Identity, namespace_labels, render_job
from federation.queries.secrets import promised_secrets
from foundation.ids import new_id
from tests.builders import make_spec
from tests.contract.worlds import INSTALL, address_of, until

from .attacks import OURS, PINNED, WORKING, folder, fresh, job, mounting, set_at
from .attacks import POD as POD_SPEC
from .conftest import ACCESS_MANIFEST, HEEDED_SECONDS, gateway_token

pytestmark = pytest.mark.kube
CANARY = "canary-3e55"
POD = {
    "mounts": [{"storage": "data", "path": "/data", "sub_path": "imagenet"}],
    "secrets": [{"secret": "token", "env": "TOKEN"}, {"secret": "token", "file": "/run/secrets/token"}],
    "pull_secret": "ghcr",
}


def rendered(whose):
    """The Job, what its pods were promised, and the values of their secrets."""
    spec = spec_json(read_spec(make_spec(pod=POD), Rules()))
    [pod_set] = spec["pod_sets"]
    data = KnownStorage(uuid4(), "acme", "acme", "data", "shared", is_writable=False, prefix="t/{tenant}")
    known = (KnownSecret(uuid4(), "acme", *each, 1) for each in (("token", "value"), ("ghcr", "registry")))
    promised = promised_secrets(pod_set, "acme", keyring_of(known))
    assert promised is not None
    contents = {"token": CANARY.encode(), "ghcr": pull_config("ghcr.io", "ada", CANARY)}
    named = {**{use["id"]: use["secret"] for use in promised["uses"]}, promised["pull"]["id"]: "ghcr"}
    values = {version: contents[named[str(version[0])]] for version in versions_of(promised)}
    job = render_job(spec, 0, whose, Devices())
    lay_mounts(
        job["spec"]["template"]["spec"], [promised_mount(one, data, whose.tenant_id) for one in pod_set["mounts"]]
    )
    lay_secrets(job["spec"]["template"]["spec"], promised)
    return job, promised, values


def seen(plane, space):
    """The Jobs and the Secrets of a namespace, as an administrator sees them."""
    with client(plane) as http:
        jobs = http.get(f"/apis/batch/v1/namespaces/{space}/jobs").raise_for_status().json()["items"]
        secrets = http.get(f"/api/v1/namespaces/{space}/secrets").raise_for_status().json()["items"]
    return jobs, {one["metadata"]["name"]: one for one in secrets}


async def run(plane, whose, job, manifests_of):
    """Creates the Job and its Secrets, looks at them, deletes the Job, and waits until the Secrets are gone."""
    space = whose.namespace
    driver = KubernetesDriver(address_of(plane, gateway_token(plane)), INSTALL)
    try:
        await driver.ensure_namespace(space, namespace_labels(INSTALL, str(whose.tenant_id)))
        owner = job["metadata"]["name"], await driver.create_job(job)
        manifests = manifests_of(owner)
        for manifest in manifests:
            await driver.create_secret(manifest)
        with pytest.raises(AlreadyExists) as again:
            await driver.create_secret(manifests[0])
        shown = await asyncio.to_thread(seen, plane, space)
        await driver.delete_job(space, *owner)

        async def gone():
            return not (await asyncio.to_thread(seen, plane, space))[1]

        await until(gone)
        return owner, shown, str(again.value)
    finally:
        await driver.close()


def test_a_volume_and_secrets_are_what_was_promised_and_go_with_their_job(bare_clusters):
    whose = Identity(INSTALL, uuid4(), "acme/research", new_id(), new_id(), 1, "0" * 32)
    job, promised, values = rendered(whose)
    owner, ([shown], secrets), told = asyncio.run(
        run(
            bare_clusters[0], whose, job,
            lambda owner: secret_manifests(promised, whose.namespace, whose, owner, values),
        )
    )  # fmt: skip
    pod = shown["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["storage-0"]["persistentVolumeClaim"] == {"claimName": "shared", "readOnly": True}
    mounts = {mount["mountPath"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts["/data"] == {
        "name": "storage-0", "mountPath": "/data", "subPath": f"t/{whose.tenant_id}/imagenet", "readOnly": True,
    }  # fmt: skip
    value, access = secrets[promised["object"]], secrets[promised["pull"]["object"]]
    assert base64.b64decode(value["data"]["s0"]).decode() == CANARY
    assert (value["type"], access["type"]) == ("Opaque", "kubernetes.io/dockerconfigjson")
    for one in (value, access):
        assert one["immutable"] is True
        assert one["metadata"]["labels"] == whose.labels
        [reference] = one["metadata"]["ownerReferences"]
        assert (reference["name"], reference["uid"]) == owner
    assert pod["imagePullSecrets"] == [{"name": access["metadata"]["name"]}]
    assert CANARY not in str(shown)
    assert CANARY not in told


LISTED = NO_CLASSES.replace('"{}"', """'{"fast": "1Ti", "fast.nvme": "10Gi"}'""")
FOREIGN = {
    "another class": fresh("slow"),
    "a class by another case": fresh("FAST"),
    "a class with a line end": fresh("fast\n"),
    "the default class": fresh(None),
    "no class": fresh(""),
    "a byte more": fresh(size=str(2**40 + 1)),
    "a larger one of a smaller class": fresh("fast.nvme", "11Gi"),
    "a large exponent": fresh(size="1e30"),
    "many writers": fresh(accessModes=["ReadWriteMany"]),
    "a raw device": fresh(volumeMode="Block"),
    "a copy of a claim": fresh(dataSource={"kind": "PersistentVolumeClaim", "name": "theirs"}),
    "a copy of another namespace": fresh(
        dataSourceRef={"kind": "PersistentVolumeClaim", "name": "theirs", "namespace": "default"}
    ),
    "a volume by name": fresh(volumeName="theirs"),
    "a volume by labels": fresh(selector={"matchLabels": {"a": "b"}}),
    "labels": fresh(template={"metadata": {"labels": {"example.com/x": "y"}}}),
    "annotations": fresh(template={"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n"}}}),
    "limits": fresh(resources={"requests": {"storage": "1Gi"}, "limits": {"storage": "1Ei"}}),
    "faster by attributes": fresh(volumeAttributesClassName="gold"),
    "the node's files": {"hostPath": {"path": "/"}},
    "an image by tag": {"image": {"reference": "registry.example/data:1", "pullPolicy": "Always"}},
    "an image by tag and digest of another": {"image": {"reference": f"{PINNED},b", "pullPolicy": "Always"}},
}


@pytest.fixture
def gateway(bare_clusters):
    """A client with the gateway's token on a cluster whose policy lists two StorageClasses."""
    plane = bare_clusters[1]
    token = gateway_token(plane)
    text = ACCESS_MANIFEST.read_text().replace(NO_CLASSES, LISTED)
    apply(plane, [one for one in yaml.safe_load_all(text) if one["kind"] == "ValidatingAdmissionPolicy"])
    with client(plane, token) as http, client(plane) as admin:
        own = WORKING["namespaces"]["metadata"]
        # that of another test may still be going
        heeded(lambda: http.post("/api/v1/namespaces", json={"metadata": {**own, "name": OURS}}))
        heeded(lambda: admin.get(f"/api/v1/namespaces/{OURS}/serviceaccounts/default"))
        yield http, admin
        admin.delete(f"/api/v1/namespaces/{OURS}")
    gateway_token(plane)  # as it was


def sent(http, pod):
    manifest = set_at(job(f"v-{new_id().hex[-12:]}"), POD_SPEC, pod)
    return http.post(folder("jobs"), params={"dryRun": "All", "fieldValidation": "Strict"}, json=manifest)


def pod_sent(http, pod):
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": pod}
    return http.post(folder("pods"), params={"dryRun": "All", "fieldValidation": "Strict"}, json=body)


def heeded(send):
    """The answer, once the API server heeds the policies that were applied just now."""
    deadline = time.monotonic() + HEEDED_SECONDS
    while not (answer := send()).is_success:
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.3)
    return answer


def promised_pod(path="/fast", size="1Ti", storage_class="fast"):
    """The pod of a job with a new volume and an image, as the gateway renders it."""
    given = [
        {"storage": "fast", "path": path, "size": size},
        {"storage": "weights", "path": "/weights", "sub_path": "llama/8b"},
    ]
    [stored] = spec_json(read_spec(make_spec(pod={"mounts": given}), Rules()))["pod_sets"]
    shelf = {
        "fast": KnownStorage(
            uuid4(), "acme", "acme", "fast", "", is_writable=True, prefix="", storage_class=storage_class, most_bytes=2**40
        ),
        "weights": KnownStorage(uuid4(), "acme", "acme", "weights", "", is_writable=False, prefix="", image=PINNED),
    }  # fmt: skip
    pod = mounting({})
    del pod["volumes"], pod["containers"][0]["volumeMounts"]
    lay_mounts(pod, [promised_mount(one, shelf[one["storage"]], uuid4()) for one in stored["mounts"]])
    return pod


def test_a_pod_gets_new_volumes_of_listed_classes_and_sizes_and_images_by_digest_and_a_thief_no_others(gateway):
    gateway, admin = gateway
    answer = heeded(lambda: sent(gateway, promised_pod()))
    volumes = {one["name"]: one for one in answer.json()["spec"]["template"]["spec"]["volumes"]}
    assert volumes["storage-0"]["ephemeral"]["volumeClaimTemplate"]["spec"] == {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Ti"}}, "storageClassName": "fast", "volumeMode": "Filesystem",
    }  # fmt: skip
    assert volumes["storage-1"]["image"] == {"reference": PINNED, "pullPolicy": "Always"}
    assert sent(gateway, promised_pod(size="10Gi", storage_class="fast.nvme")).is_success
    for what, source in FOREIGN.items():
        refused = sent(gateway, mounting(source))
        if refused.status_code == 422:  # the API server itself knows no class of such a name
            assert "storageClassName: Invalid value" in refused.json()["message"], what
            continue
        assert refused.status_code == 403, (what, refused.text)
        assert "new volumes of classes and sizes that are listed here" in refused.json()["message"], what
    # what the Job controller makes of it: the namespace's own policy and its level let the pod in, and no other class
    assert "Warning" not in heeded(lambda: pod_sent(admin, promised_pod())).headers
    refused = pod_sent(admin, mounting(fresh("slow")))
    assert (refused.status_code, "A pod here has no volumes" in refused.json()["message"]) == (403, True)
    many = mounting(fresh())
    many["volumes"] = [{"name": f"storage-{n}", **fresh()} for n in range(17)]
    assert "at most 16 new volumes" in sent(gateway, many).json()["message"]

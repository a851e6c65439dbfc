"""A job's volume and Secrets as a real control plane shows them, from their creation to the end of their Job."""

import asyncio
import base64
from uuid import uuid4

import pytest

from clusters.drivers import AlreadyExists
from clusters.drivers.kubernetes.driver import KubernetesDriver
from clusters.engine.secrets import KnownSecret, keyring_of, pull_config
from clusters.engine.storages import KnownStorage
from devtools.localfleet.admin import client
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

from .conftest import gateway_token

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

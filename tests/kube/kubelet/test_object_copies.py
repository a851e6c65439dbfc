"""Copies of datasets from an object store on a real control plane with nodes that run pods, by the account with the published role.

Real: the control plane and its admission policies, the Job, its Secret, the pod's process with its environment and its claim, TLS, and
the signature of each request. The store is a small one in this process, and `rclone` a command of the tests that does what copies ask
of it.
"""

import asyncio
import base64
import json
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from clusters.drivers import Refused
from clusters.engine.secrets import KnownSecret, access_key
from federation.engine.objects.job_secrets import secret_manifests, secret_name, versions_of
from federation.engine.objects.rendering import namespace_labels
from federation.engine.objects.stage_jobs import promised_key, stage_hash
from federation.engine.staging import Outcome
from foundation.ids import new_id
from tests.contract.worlds import INSTALL, until
from tests.kube.kubelet.test_prepulls import at, shown
from tests.kube.kubelet.test_stage_ins import (
    FILES,
    IMAGE,
    MOUNTS,
    PinnedCopy,
    copy_of,
    digest_of,
    prepared,
    removed,
    run,
)
from tests.object_store import BUCKET, KEY_ID, PATH, REGION, SECRET, running

pytestmark = pytest.mark.kube
CERTIFICATE = "/switchyard/to/store.pem"


class StoreCopy(PinnedCopy):
    """With the tests' command on its path, and the store's certificate, which lies at its target."""

    __slots__ = ()

    def render(self):
        manifest = PinnedCopy.render(self)
        [container] = manifest["spec"]["template"]["spec"]["containers"]
        container["env"] += [
            {"name": "PATH", "value": PATH},
            {"name": "SSL_CERT_FILE", "value": CERTIFICATE},
        ]
        return manifest


async def store_copy(driver, store, key=(KEY_ID, SECRET)):
    base = await copy_of(driver)
    where = {"endpoint": store.url, "region": REGION, "bucket": BUCKET, "path": "in/set"}
    promised = promised_key(KnownSecret(uuid4(), "acme", "s3-key", "access_key", 1), secret_name(new_id()))
    return StoreCopy(
        image=IMAGE,
        sha256="",
        mounts=MOUNTS[1:],
        identity=replace(base.identity, spec_hash=stage_hash(IMAGE, "", where)),
        cluster_identity=base.cluster_identity,
        uid="",
        policies=base.policies,
        lasted=base.lasted,
        store=where,
        promised=promised,
        values=dict.fromkeys(versions_of(promised), access_key(*key)),
    )


async def with_certificate(plane, driver, copy, store):
    """The folder to which it copies, with the store's certificate in it."""
    _, fast = await prepared(plane, driver, copy)

    def lay():
        there = fast / "out/set"
        there.mkdir(parents=True, exist_ok=True)
        (there / "store.pem").write_bytes(store.certificate.read_bytes())
        for place in (fast / "out", there):
            place.chmod(0o777)
        return there

    return await asyncio.to_thread(lay)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    content = {f"in/set/{name}": content for name, content in FILES.items()}
    with running({**content, "in/settle": b"not below"}, tmp_path_factory.mktemp("store")) as found:
        yield found


def test_the_data_arrives_with_the_tenants_key_and_nothing_is_left(plane, store):
    async def work(driver):
        store.refused.clear()
        copy = await store_copy(driver, store)
        there = await with_certificate(plane, driver, copy, store)
        copy, found = await run(driver, copy)
        assert found.verdict.outcome == Outcome.STAGED, found
        assert {name: (there / name).read_bytes() for name in FILES} == FILES
        assert sorted(one.name for one in there.iterdir() if one.is_file()) == ["$(id);x", "a.txt", "store.pem"]
        assert (found.progress.sha256, found.progress.total) == (digest_of(there), sum(map(len, FILES.values())))
        assert store.refused == []
        jobs, pods, secrets = await asyncio.to_thread(shown, plane, copy.namespace)
        [secret] = secrets
        assert {name: base64.b64decode(text).decode() for name, text in secret["data"].items()} == {
            "id": KEY_ID,
            "secret": SECRET,
        }
        assert secret["metadata"]["ownerReferences"][0]["uid"] == copy.uid
        log = await driver.read_log(copy.namespace, pods[0]["metadata"]["name"], tail_lines=100, limit_bytes=9000)
        for text in (json.dumps(jobs), json.dumps(pods), log, repr(copy), repr(found)):
            assert not any(part in text for part in (KEY_ID, SECRET))
        await removed(driver, copy)

        async def gone():
            return (await asyncio.to_thread(shown, plane, copy.namespace))[2] == []

        await until(gone)

    at(plane, work)


def test_a_wrong_key_fails_in_words_that_are_ours(plane, store):
    async def work(driver):
        store.words = f"hostile {KEY_ID}"
        copy = await store_copy(driver, store, (KEY_ID, "wrong"))
        there = await with_certificate(plane, driver, copy, store)
        copy, found = await run(driver, copy)
        assert found.verdict == (Outcome.FAILED, "the object store: SignatureDoesNotMatch")
        assert [one.name for one in there.iterdir()] == ["store.pem"]
        await removed(driver, copy)

    at(plane, work)


def test_attack_a_stolen_token_gives_a_copy_no_other_secret(plane, store):
    async def work(driver):
        copy = await store_copy(driver, store)
        await driver.ensure_namespace(
            copy.namespace, namespace_labels(INSTALL, str(copy.identity.tenant_id)), copy.policies
        )
        manifest = copy.render()
        [container] = manifest["spec"]["template"]["spec"]["containers"]
        key = next(one for one in container["env"] if one["name"].endswith("_SECRET_ACCESS_KEY"))
        key["valueFrom"] = {"secretKeyRef": {"name": "theirs", "key": "secret"}}
        with pytest.raises(Refused):
            await driver.create_job(manifest)
        [secret] = secret_manifests(copy.promised, copy.namespace, copy.identity, ("j", str(UUID(int=1))), copy.values)
        for name, kind in (("theirs", "Opaque"), (secret_name(new_id()), "kubernetes.io/service-account-token")):
            with pytest.raises(Refused):
                await driver.create_secret({**secret, "type": kind, "metadata": {**secret["metadata"], "name": name}})

    at(plane, work)

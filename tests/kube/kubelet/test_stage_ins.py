"""Copies of datasets on a real control plane with nodes that run pods, by the account with the published role: two claims as folders,
between which the data really moves.
"""

import asyncio
import hashlib
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from clusters.drivers import Refused
from devtools.localfleet.admin import client
from federation.engine.names import namespace_of
from federation.engine.objects.isolation import namespace_policies
from federation.engine.objects.mounts import lay_mounts
from federation.engine.objects.rendering import Devices, Identity, namespace_labels, render_job, template_patch
from federation.engine.objects.stage_jobs import SOURCE, TARGET, render_stage_in, stage_hash, stage_spec
from federation.engine.staging import Outcome
from federation.operations import preparation_calls, stage_calls
from federation.operations.preparation_calls import Gone, Made
from federation.operations.stage_calls import Copy
from foundation.ids import new_id
from tests.contract.worlds import INSTALL, until
from tests.kube.kubelet.test_prepulls import NODE, at, shown

pytestmark = pytest.mark.kube
IMAGE = "python:3"
FILES = {
    "a.txt": b"first\n",
    "deep/b with blanks.bin": b"\x00\x01" * 5000,
    "deep/--help": b"named like an option\n",
    "$(id);x": b"inert\n",
}


def mount(claim, path, sub_path, *, read_only):
    return {
        "storage": claim,
        "claim": claim,
        "path": path,
        "sub_path": sub_path,
        "read_only": read_only,
        "is_writable": claim == "fast",
    }


MOUNTS = (mount("archive", SOURCE, "in/set", read_only=True), mount("fast", TARGET, "out/set", read_only=False))


def pinned(manifest):
    """To a node that runs pods: another one only pretends to."""
    template = manifest["spec"]["template"]
    template["spec"] |= template_patch({}, [NODE], must_keep=True)["spec"]
    return manifest


class PinnedCopy(Copy):
    __slots__ = ()

    def render(self):
        return pinned(Copy.render(self))


async def copy_of(driver, sha256="", mounts=MOUNTS):
    identity = Identity(INSTALL, uuid4(), "acme", new_id(), new_id(), 1, stage_hash(IMAGE, sha256))
    return PinnedCopy(
        image=IMAGE,
        sha256=sha256,
        mounts=mounts,
        identity=identity,
        cluster_identity=await driver.identity(),
        uid="",
        policies=namespace_policies(identity.namespace, INSTALL, ()),
        lasted=timedelta(minutes=2),
    )


def make_claims(plane, space):
    """Two claims in the namespace as an administrator makes them; returns their folders."""
    wanted = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    with client(plane) as http:
        for name in ("archive", "fast"):
            body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": wanted}
            http.post(f"/api/v1/namespaces/{space}/persistentvolumeclaims", json=body).raise_for_status()
    return [plane.layout.claims / space / name for name in ("archive", "fast")]


def fill(folder):
    for name, content in FILES.items():
        place = folder / "in/set" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    (folder / "in/set/link").symlink_to("/etc/hostname")
    for place in (folder, *folder.rglob("*")):
        if not place.is_symlink():
            place.chmod(0o777)


def digest_of(folder):
    """What the documented command prints."""
    names = sorted(f"./{name}".encode() for name in FILES)
    lines = b"".join(
        hashlib.sha256((folder / name.decode()).read_bytes()).hexdigest().encode() + b"  " + name + b"\n"
        for name in names
    )
    return hashlib.sha256(lines).hexdigest()


async def prepared(plane, driver, copy):
    """Its namespace with filled claims."""
    labels = namespace_labels(INSTALL, str(copy.identity.tenant_id))
    await driver.ensure_namespace(copy.namespace, labels, copy.policies)
    archive, fast = await asyncio.to_thread(make_claims, plane, copy.namespace)

    async def are_there():
        return archive.is_dir() and fast.is_dir()

    def make():
        archive.mkdir(parents=True, exist_ok=True)
        fast.mkdir(parents=True, exist_ok=True)

    await asyncio.to_thread(make)
    await until(are_there)
    await asyncio.to_thread(fill, archive)
    fast.chmod(0o777)
    return archive, fast


async def run(driver, copy):
    made = await preparation_calls.create(driver, copy)
    assert isinstance(made, Made), made
    assert await preparation_calls.create(driver, copy) == made, "a repeated creation finds the same object"
    copy = replace(copy, uid=made.uid)
    assert isinstance(await preparation_calls.release(driver, copy), Made)
    assert isinstance(await preparation_calls.release(driver, copy), Made), "a repeated release changes nothing"

    async def over():
        found = await stage_calls.read(driver, copy)
        return found if found.verdict.outcome else None

    return copy, await until(over)


async def removed(driver, copy):
    async def over():
        return isinstance(await preparation_calls.remove(driver, copy), Gone)

    await until(over)


def test_the_data_arrives_whole_a_job_sees_it_and_nothing_is_left(plane):
    async def work(driver):
        copy = await copy_of(driver)
        _, fast = await prepared(plane, driver, copy)
        copy, found = await run(driver, copy)
        assert found.verdict.outcome == Outcome.STAGED, found
        there = fast / "out/set"
        assert {name: (there / name).read_bytes() for name in FILES} == FILES
        assert (there / "link").is_symlink(), "a link is copied as one"
        assert found.progress.sha256 == digest_of(there)
        assert found.progress.total == sum(map(len, FILES.values()))
        jobs, pods, secrets = await asyncio.to_thread(shown, plane, copy.namespace)
        assert len(jobs) == len(pods) == 1
        assert secrets == []
        assert not any("gpu" in key for key in pods[0]["spec"]["containers"][0]["resources"]["limits"])
        await removed(driver, copy)
        seen = await look(driver, copy, fast)
        assert "first" in seen

    async def look(driver, copy, fast):
        """What a job of the tenant reads of it, where its mount says."""
        spec = dict(stage_spec(IMAGE, ""))
        pod = {**spec["pod_sets"][0], "name": "reader", "command": ["sh", "-c", "cat /data/a.txt"], "args": []}
        spec["pod_sets"] = [pod]
        identity = replace(copy.identity, job_id=new_id(), attempt_id=new_id())
        manifest = pinned(render_job(spec, 0, identity, Devices()))
        lay_mounts(manifest["spec"]["template"]["spec"], [mount("fast", "/data", "out/set", read_only=True)])
        uid = await driver.create_job(manifest)
        name = manifest["metadata"]["name"]
        await driver.release_job(copy.namespace, name, uid, {})

        async def over():
            return (await driver.get_job(copy.namespace, name)).outcome

        assert await until(over) == "succeeded"
        (ran,) = await driver.list_pods(copy.namespace, name)
        return await driver.read_log(copy.namespace, ran.name, tail_lines=5, limit_bytes=1000)

    at(plane, work)


def test_a_wrong_digest_and_an_empty_source_fail_in_words(plane):
    async def work(driver):
        copy = await copy_of(driver, sha256="0" * 64)
        await prepared(plane, driver, copy)
        copy, found = await run(driver, copy)
        assert found.verdict == (Outcome.FAILED, "The copy has another sha256 than its plan says.")
        await removed(driver, copy)
        empty = (mount("archive", SOURCE, "in/set/deep", read_only=True), MOUNTS[1])
        hollow = replace(
            copy,
            sha256="",
            uid="",
            mounts=empty,
            identity=replace(copy.identity, attempt_id=new_id(), spec_hash=stage_hash(IMAGE, "")),
        )
        folder = plane.layout.claims / copy.namespace / "archive/in/set/deep"
        for place in list(folder.iterdir()):
            place.unlink()
        hollow, found = await run(driver, hollow)
        assert found.verdict == (Outcome.FAILED, "There is nothing to copy at its source.")
        await removed(driver, hollow)

    at(plane, work)


def test_the_right_digest_passes(plane):
    async def work(driver):
        copy = await copy_of(driver)
        archive, _ = await prepared(plane, driver, copy)
        wanted = digest_of(archive / "in/set")
        copy = replace(copy, sha256=wanted, identity=replace(copy.identity, spec_hash=stage_hash(IMAGE, wanted)))
        copy, found = await run(driver, copy)
        assert (found.verdict.outcome, found.progress.sha256) == (Outcome.STAGED, wanted)
        await removed(driver, copy)

    at(plane, work)


def test_attack_a_stolen_token_makes_no_copy_that_mounts_the_host_or_runs_at_once(plane):
    async def work(driver):
        copy = await copy_of(driver)
        labels = {"switchyard.dev/install": INSTALL, "switchyard.dev/tenant": "t"}
        await driver.ensure_namespace(namespace_of("acme", copy.identity.tenant_id), labels)
        for change in (
            lambda manifest: manifest["spec"].update(suspend=False),
            lambda manifest: manifest["spec"]["template"]["spec"]["volumes"].append(
                {"name": "h", "hostPath": {"path": "/"}}
            ),
            lambda manifest: manifest["spec"]["template"]["spec"].update(serviceAccountName="default", hostPID=True),
        ):
            manifest = render_stage_in(IMAGE, "", copy.identity, MOUNTS)
            change(manifest)
            with pytest.raises(Refused):
                await driver.create_job(manifest)

    at(plane, work)

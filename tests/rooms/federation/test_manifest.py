import copy
from typing import Any

import pytest

from federation.engine.intake.manifest import read_manifest
from federation.engine.intake.reading import Refused
from federation.engine.intake.spec import Rules
from placement.values.model import GpuRequest

MANIFEST: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "labels": {"experiment": "42"}},
    "spec": {
        "parallelism": 8,
        "completions": 8,
        "activeDeadlineSeconds": 3600,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "worker",
                        "image": "registry.example/train:1",
                        "command": ["python", "train.py"],
                        "env": [{"name": "EPOCHS", "value": "3"}],
                        "resources": {
                            "requests": {"cpu": "16", "memory": "128Gi"},
                            "limits": {"memory": "128Gi", "nvidia.com/gpu": 8},
                        },
                    }
                ],
            }
        },
    },
}


def changed(path, value):
    """The manifest with the field at `path` set; it is made if need be."""
    manifest = copy.deepcopy(MANIFEST)
    *above, last = path
    at: Any = manifest
    for step in above:
        at = at[step] if isinstance(step, int) else at.setdefault(step, {})
    at[last] = value
    return manifest


def faults_of(manifest):
    with pytest.raises(Refused) as caught:
        read_manifest(manifest, {}, Rules())
    return {fault.field: fault.code for fault in caught.value.faults}


def test_a_manifest_is_read_into_the_same_spec_as_anything_else():
    spec = read_manifest(MANIFEST, {"strategy": "cheapest", "constraints": {"regions": ["eu-*"]}}, Rules())
    [worker] = spec.pod_sets
    assert (spec.name, spec.deadline_seconds, spec.completions, spec.labels) == (
        "train",
        3600,
        None,
        (("experiment", "42"),),
    )
    assert (worker.name, worker.count, worker.gpu, worker.env) == ("worker", 8, GpuRequest(8), (("EPOCHS", "3"),))
    assert (worker.cpu_millicores, worker.memory_bytes) == (16_000, 128 * 2**30)
    assert (spec.strategy, spec.constraints.regions) == ("cheapest", ("eu-*",))


@pytest.mark.parametrize(
    ("parallelism", "completions", "count", "kept"), [(2, 100, 2, 100), (4, 2, 2, None), (3, 3, 3, None)]
)
def test_completions_beyond_parallelism_make_an_indexed_job(parallelism, completions, count, kept):
    manifest = changed(["spec", "parallelism"], parallelism)
    manifest["spec"]["completions"] = completions
    spec = read_manifest(manifest, {}, Rules())
    assert (spec.pod_sets[0].count, spec.completions) == (count, kept)


def test_what_we_do_anyway_may_be_said():
    manifest = changed(["spec", "backoffLimit"], 0)
    manifest["spec"] |= {"suspend": True, "podReplacementPolicy": "Failed", "completionMode": "Indexed"}
    pod = manifest["spec"]["template"]["spec"]
    pod |= {"automountServiceAccountToken": False, "securityContext": {"runAsNonRoot": True}}
    pod["containers"][0]["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert read_manifest(manifest, {}, Rules()) == read_manifest(MANIFEST, {}, Rules())


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        (["apiVersion"], "v1", "not_allowed"),
        (["kind"], "Pod", "not_allowed"),
        (["status"], {}, "unknown_field"),
        (["metadata", "name"], "Bad_Name", "bad_format"),
        (["spec", "parallelism"], 0, "out_of_range"),
        (["spec", "backoffLimit"], 6, "not_allowed"),
        (["spec", "suspend"], False, "not_allowed"),
        (["spec", "ttlSecondsAfterFinished"], 0, "not_allowed"),
        (["spec", "activeDeadlineSeconds"], 0, "out_of_range"),
        (["spec", "template", "spec", "restartPolicy"], "OnFailure", "not_allowed"),
        (["spec", "template", "spec", "containers", 0, "image"], "10.0.0.1/x", "not_allowed"),
        (["spec", "template", "spec", "containers", 0, "resources", "requests", "cpu"], "x", "bad_quantity"),
        (["spec", "template", "spec", "containers", 0, "resources", "limits", "memory"], "1Gi", "conflict"),
    ],
)
def test_a_fault_is_named_in_the_manifests_own_terms(path, value, code):
    shown = "manifest" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    assert faults_of(changed(path, value)) == {shown: code}


@pytest.mark.parametrize(
    "junk", [None, [], "x", {}, {"apiVersion": "batch/v1", "kind": "Job", "metadata": [], "spec": 7}]
)
def test_junk_is_refused_and_never_crashes(junk):
    assert faults_of(junk)


def test_parallel_pods_say_how_many_must_succeed():
    manifest = changed(["spec", "parallelism"], 2)
    del manifest["spec"]["completions"]
    assert faults_of(manifest) == {"manifest.spec.completions": "required"}


def test_mig_slices_are_understood_and_other_devices_refused():
    where = ["spec", "template", "spec", "containers", 0, "resources", "limits"]
    spec = read_manifest(changed(where, {"nvidia.com/mig-1g.10gb": "2"}), {}, Rules())
    assert spec.pod_sets[0].gpu == GpuRequest(2, mig="1g.10gb")
    [field] = faults_of(changed(where, {"amd.com/gpu": 1}))
    assert field == "manifest.spec.template.spec.containers[0].resources.limits.amd.com/gpu"

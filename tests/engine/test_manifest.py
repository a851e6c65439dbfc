"""A Kubernetes manifest is read into a spec, or refused in its own terms."""

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
    safe = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    pod |= {"automountServiceAccountToken": False, "enableServiceLinks": False, "securityContext": safe}
    pod["containers"][0]["securityContext"] = {
        **safe, "allowPrivilegeEscalation": False, "privileged": False, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
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
        (["apiVersion"], None, "required"),
        (["metadata", "labels", "-"], "b", "bad_format"),
        (["spec", "backoffLimit"], False, "not_allowed"),
        (["spec", "podReplacementPolicy"], "TerminatingOrFailed", "not_allowed"),
        (["spec", "completionMode"], "Sorted", "unknown_value"),
        (["spec", "completions"], 100_001, "out_of_range"),
        (["spec", "parallelism"], 10_001, "out_of_range"),
        (["spec", "template", "spec", "automountServiceAccountToken"], True, "not_allowed"),
        (["spec", "template", "spec", "enableServiceLinks"], True, "not_allowed"),
        (["spec", "template", "spec", "restartPolicy"], "OnFailure", "not_allowed"),
        (["spec", "template", "spec", "restartPolicy"], None, "required"),
        (["spec", "template", "spec", "containers"], [], "required"),
        (["spec", "template", "spec", "containers"], [{}, {}], "too_many"),
        (["spec", "template", "spec", "containers", 0, "name"], "Worker", "bad_format"),
        (["spec", "template", "spec", "containers", 0, "image"], "10.0.0.1/x", "not_allowed"),
        (["spec", "template", "spec", "containers", 0, "resources", "requests", "cpu"], "x", "bad_quantity"),
        (["spec", "template", "spec", "containers", 0, "resources", "limits", "memory"], "1Gi", "conflict"),
    ],
)
def test_a_fault_is_named_in_the_manifests_own_terms(path, value, code):
    shown = "manifest" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    assert faults_of(changed(path, value)) == {shown: code}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["kind"], "Pod", "must be Job"),
        (["spec", "suspend"], False, "must be true: each attempt runs once; leave this out"),
    ],
)
def test_a_fault_says_what_must_be_and_why_if_there_is_a_reason(path, value, message):
    with pytest.raises(Refused) as caught:
        read_manifest(changed(path, value), {}, Rules())
    assert [fault.detail for fault in caught.value.faults] == [message]


METADATA_WITHOUT = ["namespace", "annotations", "generateName", "ownerReferences", "finalizers"]
JOB_WITHOUT = [
    "backoffLimitPerIndex", "maxFailedIndexes", "podFailurePolicy", "successPolicy", "ttlSecondsAfterFinished",
    "selector", "manualSelector", "managedBy",
]  # fmt: skip
POD_WITHOUT = [
    "hostNetwork", "hostPID", "hostIPC", "hostUsers", "hostAliases", "shareProcessNamespace", "initContainers",
    "ephemeralContainers", "serviceAccountName", "serviceAccount", "imagePullSecrets", "nodeName",
    "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "schedulerName", "schedulingGates",
    "runtimeClassName", "priorityClassName", "priority", "preemptionPolicy", "activeDeadlineSeconds",
]  # fmt: skip
CONTAINER_WITHOUT = [
    "envFrom", "volumeDevices", "lifecycle", "livenessProbe", "readinessProbe",
    "startupProbe", "restartPolicy",
]  # fmt: skip
SECURITY_WITHOUT = ["runAsUser", "capabilities", "privileged", "seLinuxOptions"]


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (["metadata"], METADATA_WITHOUT),
        (["spec"], JOB_WITHOUT),
        (["spec", "template", "metadata"], ["name", *METADATA_WITHOUT]),
        (["spec", "template", "spec"], POD_WITHOUT),
        (["spec", "template", "spec", "securityContext"], SECURITY_WITHOUT),
        (["spec", "template", "spec", "containers", 0], CONTAINER_WITHOUT),
        (["spec", "template", "spec", "containers", 0, "securityContext"], ["runAsUser", "procMount"]),
    ],
)
def test_a_field_of_kubernetes_that_the_gateway_does_not_pass_on_is_refused_and_not_called_unknown(owner, names):
    for name in names:
        assert set(faults_of(changed([*owner, name], {})).values()) == {"not_allowed"}, name


def test_labels_of_the_job_and_of_its_pods_are_the_jobs():
    manifest = changed(["spec", "template", "metadata"], {"labels": {"team": "vision", "experiment": "43"}})
    assert read_manifest(manifest, {}, Rules()).labels == (("experiment", "43"), ("team", "vision"))
    assert faults_of(changed(["spec", "template", "metadata"], {"labels": {"team": 7}}))


def environment(*variables):
    return changed(["spec", "template", "spec", "containers", 0, "env"], list(variables))


def test_variables_are_plain_values_with_different_names():
    where = "manifest.spec.template.spec.containers[0].env"
    longest = environment({"name": "A"}, {"name": "B", "value": None}, {"name": "C", "value": "x" * 60_000})
    assert read_manifest(longest, {}, Rules()).pod_sets[0].env == (("A", ""), ("B", ""), ("C", "x" * 60_000))
    for variables, fault in (
        ([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}], {f"{where}[1].name": "duplicate"}),
        ([{"name": "A", "valueFrom": {}}], {f"{where}[0].valueFrom": "not_allowed"}),
        ([{"name": "A", "value": 1}], {f"{where}[0].value": "wrong_type"}),
        ([{"name": "A", "value": "x" * 65_537}], {f"{where}[0].value": "too_long"}),
        ([{"name": "A" * 129, "value": ""}], {f"{where}[0].name": "too_long"}),
        ([{"value": ""}], {f"{where}[0].name": "required"}),
        ([{"name": f"A{n}", "value": ""} for n in range(257)], {where: "too_many"}),
        ([{"name": "LD_PRELOAD", "value": ""}], {f"{where}.LD_PRELOAD": "not_allowed"}),
    ):
        assert faults_of(environment(*variables)) == fault


RESOURCES = ["spec", "template", "spec", "containers", 0, "resources"]


@pytest.mark.parametrize(
    ("devices", "gpu"),
    [
        ({}, None),
        ({"nvidia.com/gpu": "8"}, GpuRequest(8)),
        ({"nvidia.com/gpu": 64}, GpuRequest(64)),
        ({"nvidia.com/mig-3g.40gb": 1}, GpuRequest(1, mig="3g.40gb")),
    ],
)
def test_requests_may_repeat_what_the_limits_say(devices, gpu):
    amounts = {"cpu": "2", "memory": "4Gi", **devices}
    for resources in ({"limits": amounts}, {"requests": amounts}, {"requests": amounts, "limits": amounts}):
        (worker,) = read_manifest(changed(RESOURCES, resources), {}, Rules()).pod_sets
        assert (worker.gpu, worker.cpu_millicores, worker.memory_bytes) == (gpu, 2000, 4 * 2**30)


@pytest.mark.parametrize(
    ("devices", "field", "code"),
    [
        ({"nvidia.com/gpu": "65"}, "nvidia.com/gpu", "out_of_range"),
        ({"nvidia.com/gpu": "999999999"}, "nvidia.com/gpu", "out_of_range"),
        ({"nvidia.com/gpu": "1000000000"}, "nvidia.com/gpu", "not_allowed"),
        ({"nvidia.com/gpu": "0.5"}, "nvidia.com/gpu", "not_allowed"),
        ({"nvidia.com/gpu": True}, "nvidia.com/gpu", "not_allowed"),
        ({"nvidia.com/gpu": "-1"}, "nvidia.com/gpu", "not_allowed"),
        ({"nvidia.com/gpu": "\uff11"}, "nvidia.com/gpu", "not_allowed"),
        ({"nvidia.com/mig-": "1"}, "nvidia.com/mig-", "not_allowed"),
        ({"nvidia.com/mig-9x": "1"}, "nvidia.com/mig-9x.mig", "bad_format"),
        ({"ephemeral-storage": "1Gi"}, "ephemeral-storage", "not_allowed"),
        ({"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 1}, "nvidia.com/mig-1g.10gb", "conflict"),
    ],
)
def test_devices_are_whole_numbers_of_one_kind(devices, field, code):
    found = faults_of(changed(RESOURCES, {"limits": {"cpu": "2", "memory": "4Gi", **devices}}))
    where = f"manifest.spec.template.spec.containers[0].resources.limits.{field}"
    assert found == {where if where in found else f"{where}.count": code}


@pytest.mark.parametrize(
    "junk", [None, [], "x", {}, {"apiVersion": "batch/v1", "kind": "Job", "metadata": [], "spec": 7}]
)
def test_junk_is_refused_and_never_crashes(junk):
    assert faults_of(junk)


def test_a_container_without_resources_is_told_where_they_belong():
    where = ["spec", "template", "spec", "containers", 0, "resources"]
    faults = faults_of(changed(where, None))
    assert faults["manifest.spec.template.spec.containers[0].resources"] == "required"


def test_parallel_pods_say_how_many_must_succeed():
    manifest = changed(["spec", "parallelism"], 2)
    del manifest["spec"]["completions"]
    assert faults_of(manifest) == {"manifest.spec.completions": "required"}


def test_mig_slices_are_understood_and_other_devices_refused():
    where = ["spec", "template", "spec", "containers", 0, "resources", "limits"]
    spec = read_manifest(changed(where, {"nvidia.com/mig-1g.10gb": "2"}), {}, Rules())
    assert spec.pod_sets[0].gpu == GpuRequest(2, mig="1g.10gb")
    assert faults_of(changed(where, {"amd.com/gpu": 1})) == {
        "manifest.spec.template.spec.containers[0].resources.limits.amd.com/gpu": "not_allowed"
    }

"""Reads a batch/v1 Job manifest through an allowlist into a job spec.

A field that is not on the list is refused with its path, never dropped or merged: we render the Job that runs from the
spec. A field with the value that we use anyway (such as `suspend: true` or a non-root security context) is accepted.
"""

import re
from collections.abc import Mapping
from typing import Any

from clusters.engine.resources import name_fault

from .job_fields import BESIDE_MANIFEST
from .manifest_volumes import read_ports, read_volumes
from .reading import Fault, Faults, Fields, Refused, child, text_fault
from .spec import MAX_COMPLETIONS, MAX_COUNT, MAX_ENVIRONMENT, JobSpec, Rules
from .spec_reading import read_spec

_RUNS_ONCE = "each attempt runs once; leave this out"
_USE_CONSTRAINTS = "the gateway chooses where pods run; use `constraints` beside `manifest`"
_SHARES_HOST = "pods cannot share the host's namespaces, ports or paths"
_ONE_CONTAINER = "a pod has exactly one container"
_NO_IDENTITY = "pods have no identity on the cluster"
_WHY_NOT_METADATA = {
    "namespace": "the namespace follows from the tenant; leave it out",
    "annotations": "annotations steer other controllers; use labels",
    "generateName": "give a name",
    "ownerReferences": "the gateway owns the objects that it creates",
    "finalizers": "the gateway owns the objects that it creates",
}
_WHY_NOT_JOB = {
    "backoffLimitPerIndex": _RUNS_ONCE,
    "maxFailedIndexes": _RUNS_ONCE,
    "podFailurePolicy": _RUNS_ONCE,
    "successPolicy": "a job succeeds when all its pods do",
    "ttlSecondsAfterFinished": "the gateway removes finished objects after it has recorded their end",
    "selector": "the cluster chooses the selector",
    "manualSelector": "the cluster chooses the selector",
    "managedBy": "the cluster's own Job controller runs it",
}
_WHY_NOT_POD = {
    "hostNetwork": _SHARES_HOST,
    "hostPID": _SHARES_HOST,
    "hostIPC": _SHARES_HOST,
    "hostUsers": _SHARES_HOST,
    "hostAliases": _SHARES_HOST,
    "shareProcessNamespace": _ONE_CONTAINER,
    "initContainers": _ONE_CONTAINER,
    "ephemeralContainers": _ONE_CONTAINER,
    "serviceAccountName": _NO_IDENTITY,
    "serviceAccount": _NO_IDENTITY,
    "imagePullSecrets": "a manifest cannot have secrets; submit a job spec with `pull_secret` instead",
    "nodeName": _USE_CONSTRAINTS,
    "nodeSelector": _USE_CONSTRAINTS,
    "affinity": _USE_CONSTRAINTS,
    "tolerations": _USE_CONSTRAINTS,
    "topologySpreadConstraints": _USE_CONSTRAINTS,
    "schedulerName": _USE_CONSTRAINTS,
    "schedulingGates": _USE_CONSTRAINTS,
    "runtimeClassName": "all pods use the cluster's default runtime",
    "priorityClassName": "use `priority_class` beside `manifest`",
    "priority": "use `priority_class` beside `manifest`",
    "preemptionPolicy": "use `priority_class` beside `manifest`",
    "activeDeadlineSeconds": "set it on the Job",
}
_WHY_NOT_CONTAINER = {
    "envFrom": "only plain values",
    "volumeDevices": "only emptyDir: shared memory at /dev/shm, or local disk",
    "lifecycle": "hooks are not supported",
    "livenessProbe": "probes are not supported",
    "readinessProbe": "probes are not supported",
    "startupProbe": "probes are not supported",
    "restartPolicy": _RUNS_ONCE,
}

_MANIFEST_FIELDS = frozenset(["apiVersion", "kind", "metadata", "spec"])
_METADATA_FIELDS = frozenset(["name", "labels"])
_JOB_FIELDS = frozenset(
    [
        "parallelism",
        "completions",
        "completionMode",
        "activeDeadlineSeconds",
        "backoffLimit",
        "suspend",
        "podReplacementPolicy",
        "template",
    ]
)
_POD_FIELDS = frozenset(
    ["containers", "restartPolicy", "automountServiceAccountToken", "enableServiceLinks", "securityContext", "volumes"]
)
_CONTAINER_FIELDS = frozenset(
    ["name", "image", "command", "args", "env", "resources", "securityContext", "ports", "volumeMounts"]
)
_SAFE_POD_SECURITY = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
_SAFE_CONTAINER_SECURITY = {
    **_SAFE_POD_SECURITY,
    "allowPrivilegeEscalation": False,
    "privileged": False,
    "capabilities": {"drop": ["ALL"]},
}
MOST_DIGITS = 10
_GPU = "nvidia.com/gpu"
_MIG = re.compile(r"nvidia\.com/mig-([0-9a-z.]{1,30})").fullmatch


def read_manifest(manifest: object, beside: Mapping[str, Any], rules: Rules) -> JobSpec:
    """The spec of a manifest and the fields `beside` it. Raises Refused with the manifest's own paths."""
    faults = Faults()
    spec, origin = _as_spec(manifest, faults)
    faults.refuse_if_any()
    spec.update({name: beside[name] for name in BESIDE_MANIFEST if name in beside})
    try:
        return read_spec(spec, rules)
    except Refused as refused:
        raise Refused([_in_manifest_terms(fault, origin) for fault in refused.faults]) from None


def _in_manifest_terms(fault: Fault, origin: Mapping[str, str]) -> Fault:
    for ours in sorted(origin, key=len, reverse=True):
        if fault.field == ours or fault.field.startswith((f"{ours}.", f"{ours}[")):
            return Fault(origin[ours] + fault.field[len(ours) :], fault.code, fault.detail)
    return fault


def _as_spec(manifest: object, faults: Faults) -> tuple[dict[str, Any], dict[str, str]]:
    """The unchecked spec, and the manifest path that each part of it came from."""
    top = Fields(manifest, "manifest", faults, _MANIFEST_FIELDS)
    _must_be(top, {"apiVersion": "batch/v1", "kind": "Job"}, required=True)
    metadata = Fields(top.values.get("metadata"), "manifest.metadata", faults, _METADATA_FIELDS, _WHY_NOT_METADATA)
    job = Fields(top.values.get("spec"), "manifest.spec", faults, _JOB_FIELDS, _WHY_NOT_JOB)
    _must_be(job, {"backoffLimit": 0, "suspend": True, "podReplacementPolicy": "Failed"}, why=_RUNS_ONCE)
    job.choice("completionMode", ("Indexed", "NonIndexed"), "NonIndexed")
    count, completions = _read_counts(job)
    template = Fields(job.values.get("template"), "manifest.spec.template", faults, frozenset(["metadata", "spec"]))
    labels = {**metadata.mapping("labels"), **_template_labels(template)}
    pod = Fields(template.values.get("spec"), "manifest.spec.template.spec", faults, _POD_FIELDS, _WHY_NOT_POD)
    _must_be(pod, {"restartPolicy": "Never"}, required=True, why=_RUNS_ONCE)
    _must_be(pod, {"automountServiceAccountToken": False, "enableServiceLinks": False}, why=_NO_IDENTITY)
    _check_security(pod, _SAFE_POD_SECURITY)
    containers = pod.array("containers", least=1, most=1)
    pod_set, origin = _read_container(containers[0], pod) if containers else ({}, {})
    origin |= {
        "name": "manifest.metadata.name",
        "labels": "manifest.metadata.labels",
        "completions": "manifest.spec.completions",
        "deadline_seconds": "manifest.spec.activeDeadlineSeconds",
        "pod_sets[0].count": "manifest.spec.parallelism",
        "pod_sets[0]": "manifest.spec.template.spec.containers[0]",
        "": "manifest",
    }
    spec = {
        "name": metadata.values.get("name"),
        "labels": labels,
        "pod_sets": [{**pod_set, "count": count}],
        "completions": completions,
        "deadline_seconds": job.values.get("activeDeadlineSeconds"),
    }
    return spec, origin


def _template_labels(template: Fields) -> dict[str, Any]:
    if template.values.get("metadata") is None:
        return {}
    why_not = {**_WHY_NOT_METADATA, "name": "pods are named by their Job"}
    return Fields(
        template.values["metadata"], template.at("metadata"), template.faults, frozenset(["labels"]), why_not
    ).mapping("labels")


def _read_counts(job: Fields) -> tuple[int, int | None]:
    """The number of pods that run at the same time, and the number that must succeed if that is more."""
    parallelism = job.whole("parallelism", 1, MAX_COUNT, 1) or 1
    completions = job.whole("completions", 1, MAX_COMPLETIONS)
    if completions is None:
        if parallelism > 1:
            job.fault("completions", "required", "give the number of pods that must succeed")
        return parallelism, None
    if completions <= parallelism:
        return completions, None
    return parallelism, completions


def _must_be(fields: Fields, expected: Mapping[str, Any], *, required: bool = False, why: str = "") -> None:
    """Checks fields that may only have the values that we use anyway."""
    for name, only in expected.items():
        value = fields.values.get(name)
        if value is None:
            if required:
                fields.fault(name, "required", f"must be {only}")
        elif value != only or type(value) is not type(only):
            shown = str(only).lower() if isinstance(only, bool) else only
            fields.fault(name, "not_allowed", f"must be {shown}" + (f": {why}" if why else ""))


def _check_security(owner: Fields, safe: Mapping[str, Any]) -> None:
    """Checks a security context: it may only repeat what every pod gets."""
    if owner.values.get("securityContext") is None:
        return
    path = owner.at("securityContext")
    why_not = dict.fromkeys(owner.mapping("securityContext"), "pods run unprivileged under the level `restricted`")
    context = Fields(owner.values["securityContext"], path, owner.faults, frozenset(safe), why_not)
    _must_be(context, safe, why="pods run unprivileged under the level `restricted`")


def _read_container(value: object, pod: Fields) -> tuple[dict[str, Any], dict[str, str]]:
    container = Fields(value, pod.at("containers[0]"), pod.faults, _CONTAINER_FIELDS, _WHY_NOT_CONTAINER)
    _check_security(container, _SAFE_CONTAINER_SECURITY)
    pod_set: dict[str, Any] = {name: container.values.get(name) for name in ("name", "image", "command", "args")}
    pod_set["env"] = _read_environment(container)
    origin: dict[str, str] = {}
    for part, its_origin in (_read_resources(container), read_ports(container), read_volumes(pod, container)):
        pod_set |= part
        origin |= its_origin
    return pod_set, origin


def _read_environment(container: Fields) -> dict[str, str]:
    found: dict[str, str] = {}
    for index, item in enumerate(container.array("env", most=MAX_ENVIRONMENT)):
        path = container.at(f"env[{index}]")
        why_not = {"valueFrom": "only plain values; submit a job spec with `secrets` instead"}
        variable = Fields(item, path, container.faults, frozenset(["name", "value"]), why_not)
        name = variable.text("name", most_bytes=128)
        value = variable.values.get("value")
        fault = None if value is None else text_fault(value, 64 * 1024)
        if fault is not None:
            variable.fault("value", *fault)
        elif name in found:
            variable.fault("name", "duplicate", "another variable has this name")
        else:
            found[name] = value or ""
    return found


def _read_resources(container: Fields) -> tuple[dict[str, Any], dict[str, str]]:
    """CPU, memory and GPUs, from requests and limits that must not differ, and the path of each."""
    if container.values.get("resources") is None:
        container.fault("resources", "required", "give the cpu and memory of a pod")
        return {}, {}
    path = container.at("resources")
    sides = Fields(container.values["resources"], path, container.faults, frozenset(["requests", "limits"]))
    found: dict[str, tuple[str, Any]] = {}
    for side in ("requests", "limits"):
        for name, value in sides.mapping(side).items():
            where = child(sides.at(side), name)
            amount = str(value) if type(value) is int else value
            if name in found and found[name][1] != amount:
                container.faults.add(where, "conflict", "requests and limits must be equal")
            found.setdefault(name, (where, amount))
    result: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for name, (where, amount) in found.items():
        if name not in ("cpu", "memory") and not name_fault(name):
            result.setdefault("resources", {})[name] = amount
            origin[f"pod_sets[0].resources.{name}"] = where
            continue
        ours = name if name in ("cpu", "memory") else "gpu"
        meaning = amount if ours == name else _gpu_meaning(name, amount)
        if meaning is None:
            container.faults.add(
                where, "not_allowed", "only cpu, memory and whole numbers of NVIDIA GPUs or MIG slices"
            )
        elif ours in result:
            container.faults.add(where, "conflict", "request only one kind of GPU")
        else:
            result[ours], origin[f"pod_sets[0].{ours}"] = meaning, where
    return result, origin


def _gpu_meaning(resource: str, amount: object) -> dict[str, Any] | None:
    """The spec's `gpu` for an extended resource; None if the resource is unknown or the amount is
    not a whole number.
    """
    if not (isinstance(amount, str) and amount.isascii() and amount.isdigit() and len(amount) < MOST_DIGITS):
        return None
    if resource == _GPU:
        return {"count": int(amount)}
    sliced = _MIG(resource)
    return None if sliced is None else {"mig": sliced[1], "count": int(amount)}

"""A rendered Job in full, and the patches that release it: what a cluster is sent, member by member."""

from uuid import UUID

import pytest

from federation.engine.intake.normal_form import spec_json
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.objects.isolation import namespace_policies
from federation.engine.objects.rendering import (
    Devices,
    Identity,
    namespace_labels,
    render_job,
    spec_hash,
    template_patch,
)
from placement.values.advance import Bounds
from tests.builders import make_spec

WHOSE = Identity("main", UUID(int=1), "acme/research", UUID(int=2), UUID(int=3), 4, "0" * 32)
LABELS = {
    "switchyard.dev/install": "main",
    "switchyard.dev/tenant": str(UUID(int=1)),
    "switchyard.dev/job": str(UUID(int=2)),
    "switchyard.dev/attempt": str(UUID(int=3)),
    "switchyard.dev/spec-hash": "0" * 32,
}
NAME = "swy-aaaaaaaaaaaaaaaaaaaaaaaaam"

CONTAINER = {
    "name": "worker",
    "image": "registry.example/train:1",
    "imagePullPolicy": "Always",
    "command": ["python"],
    "args": ["-v"],
    "env": [
        {"name": "MASTER_ADDR", "value": f"{NAME}-0.{NAME}.swy-research-00000001.svc"},
        {"name": "MASTER_PORT", "value": "29500"},
        {"name": "WORLD_SIZE", "value": "3"},
        {"name": "SWITCHYARD_FIRST_RANK", "value": "0"},
        {"name": "SWITCHYARD_HOSTS_FILE", "value": "/etc/switchyard/hosts"},
        {
            "name": "NODE_RANK",
            "valueFrom": {
                "fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}
            },
        },
        {"name": "EPOCHS", "value": "3"},
        {"name": "SWITCHYARD_JOB_ID", "value": str(UUID(int=2))},
        {"name": "SWITCHYARD_ATTEMPT", "value": "4"},
        {"name": "SWITCHYARD_ATTEMPT_ID", "value": str(UUID(int=3))},
        {"name": "SWITCHYARD_TENANT", "value": "acme/research"},
    ],
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    "volumeMounts": [
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "hosts", "mountPath": "/etc/switchyard", "readOnly": True},
    ],
}
HOSTS = {"path": "hosts", "fieldRef": {"fieldPath": "metadata.annotations['switchyard.dev/hosts']"}}


def stored(**changes):
    return spec_json(read_spec(make_spec(**changes), Rules(allow_simulation=True)))


def test_a_job_is_rendered_to_these_members_and_no_others():
    worker = {
        "name": "worker", "image": "registry.example/train:1", "count": 3, "cpu": "1500m", "memory": "2Gi",
        "command": ["python"], "args": ["-v"], "env": {"EPOCHS": "3"}, "gpu": {"count": 8},
    }  # fmt: skip
    spec = stored(name="train", pod_sets=[worker], deadline_seconds=90)
    amounts = {"cpu": "1500m", "memory": "2Gi", "nvidia.com/gpu": "8"}
    container = CONTAINER | {
        "resources": {
            "limits": {**amounts, "ephemeral-storage": "64Gi"},
            "requests": {**amounts, "ephemeral-storage": "0"},
        }
    }
    assert render_job(spec, 0, WHOSE, Devices("nvidia", "reserved", "nvidia.com/gpu", 8)) == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "swy-aaaaaaaaaaaaaaaaaaaaaaaaam",
            "namespace": "swy-research-00000001",
            "labels": LABELS,
        },
        "spec": {
            "suspend": True,
            "parallelism": 3,
            "completions": 3,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0]}},
                ]
            },
            "activeDeadlineSeconds": 90,
            "template": {
                "metadata": {
                    "labels": LABELS,
                    "annotations": {
                        "switchyard.dev/hosts": "".join(
                            f"{NAME}-{index}.{NAME}.swy-research-00000001.svc\n" for index in range(3)
                        )
                    },
                },
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": 30,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 1000,
                        "runAsGroup": 1000,
                        "fsGroup": 1000,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "tolerations": [
                        {"key": key, "operator": "Exists", "effect": "NoSchedule"}
                        for key in ("nvidia.com/gpu", "sku", "accelerator", "switchyard.dev/capacity-type")
                    ],
                    "containers": [container],
                    "subdomain": NAME,
                    "volumes": [
                        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
                        {"name": "hosts", "downwardAPI": {"items": [HOSTS]}},
                    ],
                },
            },
        },
    }


def test_each_pod_set_is_a_job_of_its_own_name_and_size():
    reader = {"name": "reader", "image": "registry.example/read:1", "count": 2, "cpu": "1", "memory": "1Gi"}
    spec = stored(pod_sets=[*make_spec()["pod_sets"], reader])
    job = render_job(spec, 1, WHOSE, Devices())
    assert job["metadata"]["name"] == "swy-aaaaaaaaaaaaaaaaaaaaaaaaam-1"
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (2, 2)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert (container["name"], container["image"]) == ("reader", "registry.example/read:1")
    assert {"command", "args"}.isdisjoint(container)
    assert container["env"][-1] == {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    assert "tolerations" not in render_job(spec, 1, WHOSE, Devices("nvidia"))["spec"]["template"]["spec"]


def test_simulated_runs_are_annotated_with_both_of_their_labels():
    simulated = {"sim.switchyard.dev/run-seconds": "5", "sim.switchyard.dev/exit-code": "1"}
    job = render_job(stored(labels={"team": "a", **simulated}), 0, WHOSE, Devices(), simulated=True)
    assert job["spec"]["template"]["metadata"] == {"labels": LABELS, "annotations": simulated}


def test_a_hash_of_a_spec_stays():
    assert spec_hash({"b": 1, "a": [1, 2]}) == spec_hash({"a": [1, 2], "b": 1}) == "c4da5af9ab5323b8a56c21ee608a3a7a"


def test_a_namespace_enforces_the_level_restricted_and_is_closed_but_for_names_and_what_is_allowed():
    assert namespace_labels("main", "acme") == {
        "switchyard.dev/install": "main",
        "switchyard.dev/tenant": "acme",
        "pod-security.kubernetes.io/enforce": "restricted",
    }
    (policy,) = namespace_policies("swy-a", "main", ("10.0.0.0/8",))
    assert policy == {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "switchyard", "namespace": "swy-a", "labels": {"switchyard.dev/install": "main"}},
        "spec": {
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            "egress": [
                {
                    "to": [
                        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}},
                        {"ipBlock": {"cidr": "169.254.20.10/32"}},
                    ],
                    "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
                },
                {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
            ],
        },
    }


H100, RACK = {"product": "H100"}, {"rack": "r1"}
IS_H100 = {"key": "product", "operator": "In", "values": ["H100"]}
IN_RACK = {"key": "rack", "operator": "In", "values": ["r1"]}


def named(operator, *names):
    return [{"key": "metadata.name", "operator": operator, "values": [name]} for name in names]


def hinted(*names):
    return {
        "weight": 100,
        "preference": {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [*names]}]},
    }


ROOMY = {"weight": 50, "preference": {"matchExpressions": [IN_RACK]}}


@pytest.mark.parametrize(
    ("given", "required", "preferred"),
    [
        ({"node_selector": H100}, [{"matchExpressions": [IS_H100]}], []),
        ({"node_selector": {}, "assumed_nodes": ["n1"]}, [], [hinted("n1")]),
        ({"node_selector": H100, "assumed_nodes": ["n1"], "domain": [RACK]}, [{"matchExpressions": [IS_H100]}], [hinted("n1"), ROOMY]),
        ({"node_selector": H100, "assumed_nodes": ["n1"], "domain": [RACK], "must_keep": True},
         [{"matchExpressions": [IS_H100, IN_RACK]}], [hinted("n1")]),
        ({"node_selector": H100, "assumed_nodes": ["n1", "n2"], "must_keep": True},
         [{"matchExpressions": [IS_H100], "matchFields": named("In", name)} for name in ("n1", "n2")], []),
        ({"node_selector": H100, "must_keep": True}, [{"matchExpressions": [IS_H100]}], []),
        ({"node_selector": H100, "assumed_nodes": ["n1"], "bounds": Bounds(never=("x", "y"))},
         [{"matchExpressions": [IS_H100], "matchFields": named("NotIn", "x", "y")}], [hinted("n1")]),
        ({"node_selector": {}, "bounds": Bounds(never=("x",))}, [{"matchFields": named("NotIn", "x")}], []),
        ({"node_selector": H100, "domain": [RACK], "must_keep": True, "bounds": Bounds(never=("x",))},
         [{"matchExpressions": [IS_H100, IN_RACK], "matchFields": named("NotIn", "x")}], []),
        ({"node_selector": H100, "assumed_nodes": ["n1"], "bounds": Bounds(only=("n1", "n2"))},
         [{"matchExpressions": [IS_H100], "matchFields": named("In", name)} for name in ("n1", "n2")], [hinted("n1")]),
        ({"node_selector": H100, "assumed_nodes": ["n1"], "domain": [RACK], "must_keep": True, "bounds": Bounds(only=("n1", "n2"))},
         [{"matchExpressions": [IS_H100], "matchFields": named("In", "n1")}], []),
    ],
)  # fmt: skip
def test_a_release_requires_the_flavor_and_the_bounds_and_prefers_the_chosen_nodes(given, required, preferred):
    affinity = template_patch(**given)["spec"]["affinity"]["nodeAffinity"]
    expected = {}
    if required:
        expected["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": required}
    if preferred:
        expected["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    assert affinity == expected


def test_at_most_a_thousand_nodes_are_named():
    def affinity(count, **more):
        patch = template_patch(H100, [f"n{number}" for number in range(count)], **more)
        return patch["spec"]["affinity"]["nodeAffinity"]

    assert affinity(1001)["preferredDuringSchedulingIgnoredDuringExecution"] == [
        hinted(*(f"n{n}" for n in range(1000)))
    ]
    most, more = affinity(1000, must_keep=True), affinity(1001, must_keep=True)
    assert len(most["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]) == 1000
    assert more["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [
        {"matchExpressions": [IS_H100]}
    ], "too many to name: they are only preferred"

"""Objects that tests of drivers write: Jobs, Secrets, wishes for nodes, and network policies."""

from typing import Any

from .worlds import INSTALL

WRONG_UID = "00000000-0000-4000-8000-000000000000"
GATE, OTHERS = "switchyard.dev/topology", "example.com/other"
PROFILE = {"seccompProfile": {"type": "RuntimeDefault"}}


def job(  # every fact of a Job that some test turns
    namespace: str,
    name: str,
    *,
    install: str | None = INSTALL,
    seconds: str = "1",
    exit_code: int = 0,
    ending: str = "",
    count: int = 1,
    gpus: int = 0,
    suspend: bool = True,
    deadline_seconds: int | None = None,
    template: str = "",
) -> dict[str, Any]:
    """A Job under pod security `restricted`, like those that the gateway renders; others are not let in."""
    whose = {f"switchyard.dev/{what}": "contract" for what in ("tenant", "job", "attempt", "spec-hash")}
    labels = whose | ({"switchyard.dev/install": install} if install else {})
    amounts = {"cpu": "500m", "memory": "64Mi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    annotations = {"sim.switchyard.dev/run-seconds": seconds, "sim.switchyard.dev/exit-code": str(exit_code)}
    annotations |= {"sim.switchyard.dev/ending": ending} if ending else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "suspend": suspend,
            "parallelism": count,
            "completions": count,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "activeDeadlineSeconds": deadline_seconds or 3600,
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    # a real first process ignores SIGTERM until it handles it: then its grace is what a deletion takes
                    "terminationGracePeriodSeconds": 5,
                    **({"resourceClaims": [{"name": "d", "resourceClaimTemplateName": template}]} if template else {}),
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 1000,
                        "runAsGroup": 1000,
                        "fsGroup": 1000,
                        **PROFILE,
                    },
                    "containers": [_container(amounts, has_claim=bool(template))],
                },
            },
        },
    }


def _container(amounts: dict[str, str], *, has_claim: bool) -> dict[str, Any]:
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True, **PROFILE}
    return {
        "name": "main",
        "image": "registry.example/main:1",
        "imagePullPolicy": "Always",
        "resources": {
            "requests": {**amounts, "ephemeral-storage": "0"},
            "limits": {**amounts, "ephemeral-storage": "64Gi"},
            **({"claims": [{"name": "d"}]} if has_claim else {}),
        },
        "securityContext": security,
    }


def secret(namespace: str, name: str, owner: tuple[str, str]) -> dict[str, Any]:
    """A Secret as the gateway renders one, owned by a Job (name and uid)."""
    whose = {f"switchyard.dev/{what}": "contract" for what in ("tenant", "job", "attempt", "spec-hash")}
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": owner[0], "uid": owner[1]}]
    labels = whose | {"switchyard.dev/install": INSTALL}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": owners},
        "type": "Opaque",
        "immutable": True,
        "data": {"s0": "Y2FuYXJ5"},
    }


def gated(namespace, *gates):
    """A Job of two pods that wait behind gates; the gateway itself renders none but its own."""
    made = job(namespace, "train", count=2, seconds="3600")
    made["spec"]["template"]["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
    return made


def wish(node, weight=100):
    return {"weight": weight, "preference": {"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}}  # fmt: skip


def wall(namespace: str, block: str = "1.0.0.0/8") -> dict:
    """The NetworkPolicy around a namespace, which lets every pod send to one block."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "switchyard", "namespace": namespace, "labels": {"switchyard.dev/install": INSTALL}},
        "spec": {
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            "egress": [{"to": [{"ipBlock": {"cidr": block}}]}],
        },
    }


def mates(namespace: str, name: str, owners: tuple[tuple[str, str], ...] = ()) -> dict:
    """The NetworkPolicy that lets the pods of one attempt talk to each other."""
    owned = [{"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": uid} for owner, uid in owners]
    found = wall(namespace)
    found["metadata"] |= {"name": name, **({"ownerReferences": owned} if owned else {})}
    ours = {"podSelector": {"matchLabels": {"switchyard.dev/attempt": name}}}
    found["spec"] |= {**ours, "ingress": [{"from": [ours]}], "egress": [{"to": [ours]}]}
    return found

"""Objects that tests of drivers write: gated Jobs, wishes for nodes, and network policies."""

from .worlds import INSTALL, job

WRONG_UID = "00000000-0000-4000-8000-000000000000"
GATE, OTHERS = "switchyard.dev/topology", "example.com/other"


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

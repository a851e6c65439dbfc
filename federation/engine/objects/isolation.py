"""The network policies of a tenant's namespace: every pod is alone with what the administrator lets it reach.

Nothing comes in. Out go names (DNS) and the allowed blocks, never link-local addresses or a cloud's metadata service, and
private blocks, where the cluster's other pods and nodes live, only where the administrator named them. A gang's own pods
may talk to each other, by a policy of their own that lives as long as its Jobs. Policies only add up, so there is no way
to take a thing back that another one allows.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from ipaddress import ip_network
from typing import Any

from clusters.engine.addresses import NEVER_REACHED, NOT_PUBLIC, Network
from federation.engine import names

from .rendering import Identity

POLICY_NAME = "switchyard"
NODE_LOCAL_DNS = "169.254.20.10/32"
"""Where Kubernetes' own add-on listens for names on each node: link-local, but no metadata service."""
_DNS = {
    "to": [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}},
        {"ipBlock": {"cidr": NODE_LOCAL_DNS}},
    ],
    "ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")],
}


def namespace_policies(namespace: str, install: str, allowed: Sequence[str]) -> tuple[dict[str, Any], ...]:
    """The policies that every pod of the namespace obeys; `allowed` are the CIDR blocks that may be reached."""
    metadata = {"name": POLICY_NAME, "namespace": namespace, "labels": {names.LABEL_INSTALL: install}}
    return (_policy(metadata, {"podSelector": {}, "egress": list(_egress(tuple(allowed)))}),)


def gang_policy(namespace: str, identity: Identity, owners: Mapping[str, str]) -> dict[str, Any]:
    """Lets the pods of one attempt talk to each other. It goes when the last of `owners` (its Jobs, name → uid) goes."""
    metadata = {
        "name": names.object_name(identity.attempt_id, 0),
        "namespace": namespace,
        "labels": identity.labels,
        "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid} for name, uid in owners.items()
        ],
    }
    mates = {"matchLabels": {names.LABEL_ATTEMPT: str(identity.attempt_id)}}
    peers = [{"podSelector": mates}]
    return _policy(metadata, {"podSelector": mates, "ingress": [{"from": peers}], "egress": [{"to": peers}]})


@cache
def _egress(allowed: tuple[str, ...]) -> tuple[Mapping[str, Any], ...]:
    """The rules of what may be reached; the same for every namespace of an installation."""
    blocks = [_block(ip_network(block)) for block in allowed]
    return (_DNS, {"to": blocks}) if blocks else (_DNS,)


def _policy(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Naming both types denies whatever no rule allows."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": {**spec, "policyTypes": ["Ingress", "Egress"]},
    }


def _block(allowed: Network) -> dict[str, Any]:
    """The allowed block without the closed ones inside it. A private block that is named itself is open."""
    closed: list[Network] = []
    for block in (*NEVER_REACHED, *NOT_PUBLIC):
        if block != allowed and _is_inside(block, allowed) and not any(_is_inside(block, wider) for wider in closed):
            closed = [narrower for narrower in closed if not _is_inside(narrower, block)] + [block]
    parts: dict[str, Any] = {"cidr": str(allowed)}
    if closed:
        parts["except"] = sorted(map(str, closed))
    return {"ipBlock": parts}


def _is_inside(block: Network, wider: Network) -> bool:
    """Whether every address of `block` is one of `wider`."""
    return block.version == wider.version and block.subnet_of(wider)  # type: ignore[arg-type]

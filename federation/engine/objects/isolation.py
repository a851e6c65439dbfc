"""The network policies of a tenant's namespace: every pod is isolated and reaches only what the administrator allows.

Ingress is denied. Egress is allowed to DNS and to the allowed blocks, never to link-local addresses or a cloud's
metadata service. Private blocks, which contain the cluster's other pods and nodes, are open only if the administrator
names them. The pods of a gang may talk to each other, through a separate policy that exists as long as the gang's Jobs.
Policies only add up, so one policy cannot revoke what another one allows.
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
"""The address of Kubernetes' own DNS add-on on each node: link-local, but not a metadata service."""
_DNS = {
    "to": [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}},
        {"ipBlock": {"cidr": NODE_LOCAL_DNS}},
    ],
    "ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")],
}


def namespace_policies(namespace: str, install: str, allowed: Sequence[str]) -> tuple[dict[str, Any], ...]:
    """The policies for every pod of the namespace; `allowed` are the CIDR blocks that pods may reach."""
    metadata = {"name": POLICY_NAME, "namespace": namespace, "labels": {names.LABEL_INSTALL: install}}
    return (_policy(metadata, {"podSelector": {}, "egress": list(_egress(tuple(allowed)))}),)


def gang_policy(namespace: str, identity: Identity, owners: Mapping[str, str]) -> dict[str, Any]:
    """Allows the pods of one attempt to talk to each other. Deleted with the last of `owners` (its
    Jobs, name → uid).
    """
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
    """The egress rules; the same for every namespace of an installation."""
    blocks = [_block(ip_network(block)) for block in allowed]
    return (_DNS, {"to": blocks}) if blocks else (_DNS,)


def _policy(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """A policy that names both types, which denies everything that no rule allows."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": {**spec, "policyTypes": ["Ingress", "Egress"]},
    }


def _block(allowed: Network) -> dict[str, Any]:
    """The allowed block without the closed blocks inside it. A private block is open if it is named itself."""
    closed: list[Network] = []
    for block in (*NEVER_REACHED, *NOT_PUBLIC):
        if block != allowed and _is_inside(block, allowed) and not any(_is_inside(block, wider) for wider in closed):
            closed = [narrower for narrower in closed if not _is_inside(narrower, block)] + [block]
    parts: dict[str, Any] = {"cidr": str(allowed)}
    if closed:
        parts["except"] = sorted(map(str, closed))
    return {"ipBlock": parts}


def _is_inside(block: Network, wider: Network) -> bool:
    """Whether every address of `block` is in `wider`."""
    return block.version == wider.version and block.subnet_of(wider)  # type: ignore[arg-type]

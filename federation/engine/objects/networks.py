"""The network attachments of a pod: what is promised to an attempt when it is placed, and the one annotation that asks for them.

Names and namespaces come from the network that an administrator declared; a user only chooses among them.
"""

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from clusters.engine.networks import KnownNetwork, attachment_of

ANNOTATION = "k8s.v1.cni.cncf.io/networks"


def promised_network(network: KnownNetwork) -> dict[str, Any]:
    """A network as it is when an attempt is placed."""
    return {"network": network.name, "namespace": network.namespace, "definition": network.definition}


def lay_networks(template: MutableMapping[str, Any], promised: Sequence[Mapping[str, Any]]) -> None:
    """Adds the promised networks to a rendered pod template, in their order. Without any, it does not change."""
    if promised:
        attached = [attachment_of(one["namespace"], one["definition"]) for one in promised]
        template["metadata"].setdefault("annotations", {})[ANNOTATION] = ",".join(attached)

"""Which labels of nodes are stored: those that select domains and flavors, and a few for users."""

import re
from collections.abc import Mapping, Sequence

from . import flavors, topology

_PLAIN_TEXT = re.compile(r"[!-~ ]{0,256}")
_KEPT = frozenset(
    {"kubernetes.io/hostname", "kubernetes.io/arch", "kubernetes.io/os", "node.kubernetes.io/instance-type"}
    | {"topology.kubernetes.io/region", "nvidia.com/gpu.product", "nvidia.com/gpu.count", "nvidia.com/gpu.memory"}
    | {topology.TPU_TOPOLOGY, "cloud.google.com/gke-accelerator-count"}
    | topology.DOMAIN_LABELS
)


def is_plain(text: str) -> bool:
    """Printable ASCII of moderate length, as is every label, taint and value that Kubernetes accepts."""
    return _PLAIN_TEXT.fullmatch(text) is not None


def kept_labels(labels: Mapping[str, str], offers: Sequence[flavors.FlavorOffer]) -> dict[str, str]:
    """The labels to store of a node with these offers."""
    selecting = {key for offer in offers for key in offer.node_selector}
    return {key: value for key, value in sorted(labels.items()) if key in _KEPT or key in selecting}

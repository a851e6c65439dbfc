"""The network attachments that a pod set names: read from untrusted JSON, and written in the normal form.

A user chooses among names that administrators have declared. Nothing else of an attachment comes from a user.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from clusters.engine.networks import MOST_NETWORKS
from federation.engine import names

from .reading import Fields
from .spec import DNS_LABEL


def read_networks(fields: Fields) -> tuple[str, ...]:
    """The names of networks, each once, in the order of the pods' interfaces; the caller checks that they exist."""
    found = fields.texts("networks", most=MOST_NETWORKS, most_bytes=names.MAX_LABEL)
    for index, name in enumerate(found):
        if not names.dns_label(name):
            fields.fault(f"networks[{index}]", "bad_format", DNS_LABEL)
        elif name in found[:index]:
            fields.fault(f"networks[{index}]", "duplicate", "the pod set names it twice")
    return found


def networks_json(networks: Sequence[str]) -> dict[str, Any]:
    """The normal form: no member without networks."""
    return {"networks": list(networks)} if networks else {}


def network_names(stored: Mapping[str, Any]) -> tuple[str, ...]:
    """The networks that a stored spec names, each once, by name."""
    return tuple(sorted({name for pod_set in stored["pod_sets"] for name in pod_set.get("networks", ())}))

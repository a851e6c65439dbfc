"""How pods claim devices: a ResourceClaimTemplate for each kind and number that pods of a tenant ask for.

A template is named after what it says, so jobs that ask for the same share it, and it is made once for a namespace.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2s
from typing import Any

from federation.engine import names
from federation.engine.intake.spec import encode

MOST_PER_CLAIM = 32
"""Kubernetes allocates no more devices to one claim."""
REQUEST = "devices"


@dataclass(frozen=True, slots=True)
class Claimable:
    """Devices that are claimed: by their DeviceClass, and an expression in CEL that tells them from others of it."""

    device_class: str
    cel: str


def resource_claims_of(devices: Claimable, units: int) -> list[tuple[str, int]]:
    """The claims of a pod for so many devices: the name of each one's template, and for how many it asks."""
    whole, rest = divmod(units, MOST_PER_CLAIM)
    counts = [MOST_PER_CLAIM] * whole + ([rest] if rest else [])
    return [(_template_name(devices, count), count) for count in counts]


def resource_claim_templates(namespace: str, install: str, devices: Claimable, units: int) -> list[dict[str, Any]]:
    """The templates that must stand in the namespace before such a pod does. Claims made from them bear our label."""
    labels = {names.LABEL_INSTALL: install}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {"metadata": {"labels": labels}, "spec": _claim(devices, count)},
        }
        for name, count in sorted(set(resource_claims_of(devices, units)))
    ]


def _claim(devices: Claimable, count: int) -> Mapping[str, Any]:
    exactly = {
        "deviceClassName": devices.device_class,
        "selectors": [{"cel": {"expression": devices.cel}}],
        "allocationMode": "ExactCount",
        "count": count,
    }
    return {"devices": {"requests": [{"name": REQUEST, "exactly": exactly}]}}


def _template_name(devices: Claimable, count: int) -> str:
    return f"{names.PREFIX}claim-{blake2s(encode(_claim(devices, count)), digest_size=10).hexdigest()}"

"""How pods claim devices: a ResourceClaimTemplate for each kind and number that pods of a tenant request.

A template is named after its content, so jobs with equal requests share it, and it is created once per namespace.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2s
from typing import Any

from federation.engine import names
from federation.engine.intake.normal_form import encode

MOST_PER_CLAIM = 32
"""The most devices that Kubernetes allocates to one claim."""
REQUEST = "devices"


@dataclass(frozen=True, slots=True)
class Claimable:
    """Claimed devices: their DeviceClass, and a CEL expression that selects them within the class."""

    device_class: str
    cel: str


def resource_claims_of(devices: Claimable, units: int) -> list[tuple[str, int]]:
    """The claims of a pod for `units` devices: the name of each claim's template, and the number it requests."""
    whole, rest = divmod(units, MOST_PER_CLAIM)
    counts = [MOST_PER_CLAIM] * whole + ([rest] if rest else [])
    return [(_template_name(devices, count), count) for count in counts]


def resource_claim_templates(namespace: str, install: str, devices: Claimable, units: int) -> list[dict[str, Any]]:
    """The templates that must exist in the namespace before such a pod. Claims made from them have our label."""
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

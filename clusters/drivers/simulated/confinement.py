"""How the published admission policies would respond to a rehearsed write, as far as rehearsals need it."""

from collections.abc import Callable, Mapping
from typing import Any

from clusters.engine.escapes import PREFIX, Rehearsal

_PLAIN_SECRETS = ("Opaque", "kubernetes.io/dockerconfigjson")
_OPENS_A_POD = ("hostPID", "hostNetwork", "volumes", "serviceAccountName", "tolerations")


def why_not(rehearsal: Rehearsal) -> str:
    """Why it is refused; empty if it is accepted."""
    if not (rehearsal.namespace or rehearsal.name).startswith(PREFIX):
        return "Switchyard writes only to namespaces whose names start with swy-."
    manifest = rehearsal.manifest
    refusal, accepts = _POLICIES.get(
        rehearsal.resource, ("Switchyard changes only pods of its own Jobs.", lambda _: False)
    )
    return "" if accepts(manifest) else refusal


def _is_restricted(manifest: Mapping[str, Any]) -> bool:
    return bool(manifest["metadata"]["labels"].get("pod-security.kubernetes.io/enforce") == "restricted")


def _is_closed_pod(manifest: Mapping[str, Any]) -> bool:
    return not any(key in manifest["spec"]["template"]["spec"] for key in _OPENS_A_POD)


def _names_its_own_pods(manifest: Mapping[str, Any]) -> bool:
    spec = manifest["spec"]
    return spec["type"] == "ClusterIP" and set(spec["selector"]) == {"switchyard.dev/attempt"}


def _claims_a_number(manifest: Mapping[str, Any]) -> bool:
    [request] = manifest["spec"]["spec"]["devices"]["requests"]
    return bool(request["exactly"]["allocationMode"] == "ExactCount")


_POLICIES: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], bool]]] = {
    "namespaces": ("Switchyard makes namespaces only under the pod security level restricted.", _is_restricted),
    "jobs": ("A Job says what is not rendered.", _is_closed_pod),
    "services": ("Switchyard makes Services that name its own pods.", _names_its_own_pods),
    "secrets": (
        "Switchyard creates no tokens of accounts.",
        lambda manifest: manifest["type"] in _PLAIN_SECRETS,
    ),
    "networkpolicies": (
        "Switchyard lets nothing into a namespace.",
        lambda manifest: "ingress" not in manifest["spec"],
    ),
    "resourceclaimtemplates": ("Switchyard claims a number of devices.", _claims_a_number),
}

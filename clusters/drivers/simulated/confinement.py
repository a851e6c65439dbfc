"""How the published admission policies would respond to a rehearsed write, as far as rehearsals need it."""

from collections.abc import Mapping
from typing import Any

from clusters.engine.escapes import PREFIX, Rehearsal

_OPENS_A_POD = ("hostPID", "hostNetwork", "volumes", "serviceAccountName", "tolerations")


def why_not(rehearsal: Rehearsal) -> str:
    """Why it is refused; empty if it is accepted."""
    if not (rehearsal.namespace or rehearsal.name).startswith(PREFIX):
        return "Switchyard writes only to namespaces whose names start with swy-."
    manifest = rehearsal.manifest
    match rehearsal.resource:
        case "namespaces":
            is_ours = manifest["metadata"]["labels"].get("pod-security.kubernetes.io/enforce") == "restricted"
            return "" if is_ours else "Switchyard makes namespaces only under the pod security level restricted."
        case "jobs":
            pod: Mapping[str, Any] = manifest["spec"]["template"]["spec"]
            return "A Job says what is not rendered." if any(key in pod for key in _OPENS_A_POD) else ""
        case "networkpolicies":
            return "Switchyard lets nothing into a namespace." if "ingress" in manifest["spec"] else ""
        case "resourceclaimtemplates":
            [request] = manifest["spec"]["spec"]["devices"]["requests"]
            is_counted = request["exactly"]["allocationMode"] == "ExactCount"
            return "" if is_counted else "Switchyard claims a number of devices."
    return "Switchyard changes only pods of its own Jobs."

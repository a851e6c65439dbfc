"""An independent reading of Kubernetes' pod security standard `restricted` (v1.36), used to judge what we render.

https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from collections.abc import Mapping
from typing import Any

VOLUMES = {
    *(
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    )
}
SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
}


def violations(pod: Mapping[str, Any]) -> list[str]:
    """What in a pod spec the level `restricted` (baseline included) forbids."""
    found = [name for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name)]
    context = pod.get("securityContext", {})
    containers = [*pod.get("initContainers", []), *pod["containers"], *pod.get("ephemeralContainers", [])]
    for volume in pod.get("volumes", []):
        found += [f"volume {kind}" for kind in set(volume) - {"name"} - VOLUMES]
    found += [f"sysctl {item['name']}" for item in context.get("sysctls", []) if item["name"] not in SYSCTLS]
    for container in containers:
        found += _in_container(container, context)
    return found


def _in_container(container: Mapping[str, Any], pod_context: Mapping[str, Any]) -> list[str]:
    own = container.get("securityContext", {})
    merged = {**pod_context, **own}
    seccomp = merged.get("seccompProfile", {}).get("type")
    capabilities = own.get("capabilities", {})
    rules = {
        "privileged": not own.get("privileged", False),
        "host ports": not any(port.get("hostPort") for port in container.get("ports", [])),
        "escalation": own.get("allowPrivilegeEscalation") is False,
        "capabilities dropped": "ALL" in capabilities.get("drop", []),
        "capabilities added": set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"},
        "runAsNonRoot": merged.get("runAsNonRoot") is True,
        "runAsUser": merged.get("runAsUser") != 0,
        "seccomp": seccomp in ("RuntimeDefault", "Localhost"),
        "procMount": own.get("procMount", "Default") == "Default",
        "apparmor": merged.get("appArmorProfile", {}).get("type") in (None, "RuntimeDefault", "Localhost"),
        "windows": not merged.get("windowsOptions", {}).get("hostProcess"),
        "selinux": not set(merged.get("seLinuxOptions", {})) & {"user", "role"},
    }
    return [f"{container['name']}: {rule}" for rule, holds in rules.items() if not holds]

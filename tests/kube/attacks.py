"""Jobs as a thief would write them, each differing in one thing from what the gateway renders."""

from copy import deepcopy
from typing import Any

from clusters.engine.escapes import duties

REMOVED, OURS = object(), "swy-theirs"
TOKEN = {"serviceAccountToken": {"path": "token"}}
SECRET = {"secretKeyRef": {"name": "s", "key": "k"}}
CLAIM = {"persistentVolumeClaim": {"claimName": "c"}}
PINNED = f"registry.example/data@sha256:{'a' * 64}"
WORKING = {rehearsal.resource: rehearsal.manifest for rehearsal in duties({"resource.k8s.io"}, "thief")}


def changed(manifest, path, value):
    """A copy of the manifest with one thing in it set, or REMOVED."""
    made = deepcopy(dict(manifest))
    *way, last = path.split("/")
    inner = made
    for step in way:
        inner = inner[int(step)] if step.isdigit() else inner.setdefault(step, {})
    last = int(last) if last.isdigit() else last
    if value is REMOVED:
        del inner[last]
    else:
        inner[last] = value
    return made


def folder(resource, namespace=OURS):
    roots = {
        "jobs": "/apis/batch/v1",
        "networkpolicies": "/apis/networking.k8s.io/v1",
        "pods": "/api/v1",
        "services": "/api/v1",
    }
    return f"{roots.get(resource, '/apis/resource.k8s.io/v1')}/namespaces/{namespace}/{resource}"


def job(name="thief", **changes):
    made = changed(WORKING["jobs"], "metadata/namespace", OURS)
    made["metadata"]["name"] = name
    for path, value in changes.items():
        made = changed(made, path, value)
    return made


def mounting(source, **mount):
    """A pod spec with one volume, under the name of a storage's, and one mount of it."""
    pod = deepcopy(job()["spec"]["template"]["spec"])
    pod["volumes"] = [{"name": "storage-0", **source}]
    pod["containers"][0]["volumeMounts"] = [{"name": "storage-0", "mountPath": "/data", **mount}]
    return pod


def fresh(storage_class="fast", size="1Gi", template=None, **spec):
    """A new volume, as the gateway asks for one of a storage class."""
    usual = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": size}},
    }
    return {"ephemeral": {"volumeClaimTemplate": {"spec": {**usual, **spec}, **(template or {})}}}


def asking(requests, limits=None):
    """The resources of a container that asks for these besides what the gateway asks for."""
    usual = deepcopy(job()["spec"]["template"]["spec"]["containers"][0]["resources"])
    return {
        "requests": {**usual["requests"], **requests},
        "limits": {**usual["limits"], **(requests if limits is None else limits)},
    }


def beside(disk="64Gi", **changes):
    """The init containers of a pod with a fair init step, some of its fields changed."""
    own = deepcopy(job()["spec"]["template"]["spec"]["containers"][0])
    kept = {key: own[key] for key in ("image", "imagePullPolicy", "securityContext")}
    return [{**kept, "name": "init-1", "resources": bounded(disk), **changes}]


def bounded(disk="64Gi", reserved="0", **more):
    """The resources of an init step, or of a sidecar with its disk."""
    amounts = {"cpu": "1", "memory": "1Mi", **more}
    return {
        "limits": {**amounts, "ephemeral-storage": disk},
        "requests": {**amounts, "ephemeral-storage": reserved},
    }


COMMAND = {"exec": {"command": ["true"]}}
BESIDE: dict[str, list[dict[str, Any]]] = {
    "is privileged": beside(securityContext={"privileged": True}),
    "has no security context": beside(securityContext={}),
    "has more CPU than the program": beside(resources=bounded(cpu="1001m")),
    "has no bounds": beside(resources={}),
    "has a GPU": beside(resources=bounded(**{"nvidia.com/gpu": "1"})),
    "reserves disk": beside(resources=bounded(reserved="1Gi")),
    "writes much on disk": beside(resources=bounded("65Gi")),
    "has a port": beside(ports=[{"containerPort": 80}]),
    "has variables of others": beside(envFrom=[{"secretRef": {"name": "s"}}]),
    "has a secret of others": beside(env=[{"name": "A", "valueFrom": SECRET}]),
    "has its node's address": beside(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}]),
    "pulls once": beside(imagePullPolicy="IfNotPresent"),
    "has a terminal": beside(tty=True),
    "is a sidecar with the disk of a step": beside(restartPolicy="Always"),
    "is a sidecar with a probe": beside("4Gi", restartPolicy="Always", startupProbe=COMMAND),
    "is a sidecar with a hook": beside("4Gi", restartPolicy="Always", lifecycle={"preStop": COMMAND}),
}
POD, CONTAINER = "spec/template/spec", "spec/template/spec/containers/0"
MARKS = "spec/template/metadata/annotations"
JOBS = {
    "runs at once": ("spec/suspend", False),
    "ten thousand and one pods": ("spec/parallelism", 10_001),
    "many completions": ("spec/completions", 100_001),
    "retries": ("spec/backoffLimit", 6),
    "no deadline": ("spec/activeDeadlineSeconds", REMOVED),
    "a deadline of years": ("spec/activeDeadlineSeconds", 10**8),
    "pods replaced": ("spec/podReplacementPolicy", "TerminatingOrFailed"),
    "goes away by itself": ("spec/ttlSecondsAfterFinished", 0),
    "managed by another": ("spec/managedBy", "evil.example/thief"),
    "no label of ours": ("metadata/labels", {}),
    "a label too few": ("metadata/labels/switchyard.dev~attempt", REMOVED),
    "no label on its pods": ("spec/template/metadata/labels", {}),
    "a label that webhooks heed": ("spec/template/metadata/labels/azure.workload.identity~use", "true"),
    "a label of its own": ("metadata/labels/example.com~x", "y"),
    "annotations": ("metadata/annotations", {"example.com/x": "y"}),
    "finalizers": ("metadata/finalizers", ["example.com/never"]),
    "owners": ("metadata/ownerReferences", [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]),
    "finalizers on its pods": ("spec/template/metadata/finalizers", ["example.com/never"]),
    "apparmor unconfined": (MARKS, {"container.apparmor.security.beta.kubernetes.io/probe": "unconfined"}),
    "devices by annotation": (MARKS, {"cdi.k8s.io/thief": "nvidia.com/gpu=all"}),
    "another network": (MARKS, {"k8s.v1.cni.cncf.io/networks": "default/storage"}),
    "a network as JSON": (MARKS, {"k8s.v1.cni.cncf.io/networks": '[{"name": "storage", "namespace": "default"}]'}),
    "no network": (MARKS, {"k8s.v1.cni.cncf.io/networks": ""}),
    "another default network": (MARKS, {"v1.multus-cni.io/default-network": "default/storage"}),
    "host pids": (f"{POD}/hostPID", True),
    "host ipc": (f"{POD}/hostIPC", True),
    "host network": (f"{POD}/hostNetwork", True),
    "one process namespace": (f"{POD}/shareProcessNamespace", True),
    "user namespaces off": (f"{POD}/hostUsers", True),
    "another account": (f"{POD}/serviceAccountName", "admin"),
    "the default account by name": (f"{POD}/serviceAccountName", "default"),
    "an account's token": (f"{POD}/automountServiceAccountToken", True),
    "an account's token by silence": (f"{POD}/automountServiceAccountToken", REMOVED),
    "a node by name": (f"{POD}/nodeName", "control-plane"),
    "a node by selector": (f"{POD}/nodeSelector", {"node-role.kubernetes.io/control-plane": ""}),
    "every taint": (f"{POD}/tolerations", [{"operator": "Exists"}]),
    "the taint of control planes": (
        f"{POD}/tolerations",
        [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}],
    ),
    "a taint by its value": (
        f"{POD}/tolerations",
        [{"key": "nvidia.com/gpu", "operator": "Equal", "value": "x", "effect": "NoSchedule"}],
    ),
    "a taint of every effect": (f"{POD}/tolerations", [{"key": "nvidia.com/gpu", "operator": "Exists"}]),
    "a taint of ill nodes": (
        f"{POD}/tolerations", [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}],
    ),
    "priority of the system": (f"{POD}/priorityClassName", "system-node-critical"),
    "another runtime": (f"{POD}/runtimeClassName", "bare"),
    "another scheduler": (f"{POD}/schedulerName", "thief"),
    "the node's names": (f"{POD}/dnsPolicy", "Default"),
    "names of its own": (f"{POD}/dnsConfig", {"nameservers": ["198.51.100.1"]}),
    "hosts of its own": (f"{POD}/hostAliases", [{"ip": "10.0.0.1", "hostnames": ["registry"]}]),
    "secrets to pull by": (f"{POD}/imagePullSecrets", [{"name": "theirs"}]),
    "restarts": (f"{POD}/restartPolicy", "OnFailure"),
    "addresses of services": (f"{POD}/enableServiceLinks", True),
    "long goodbyes": (f"{POD}/terminationGracePeriodSeconds", 10**6),
    "another gate": (f"{POD}/schedulingGates", [{"name": "example.com/x"}]),
    "pod affinity": (
        f"{POD}/affinity",
        {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "vault"}}}]}},
    ),
    "a claim by name": (f"{POD}/resourceClaims", [{"name": "d", "resourceClaimName": "theirs"}]),
    "another's claim template": (f"{POD}/resourceClaims", [{"name": "d", "resourceClaimTemplateName": "theirs"}]),
    "root": (f"{POD}/securityContext/runAsUser", 0),
    "no user": (f"{POD}/securityContext", {}),
    "no seccomp": (f"{POD}/securityContext/seccompProfile", {"type": "Unconfined"}),
    "sysctls": (f"{POD}/securityContext/sysctls", [{"name": "kernel.msgmax", "value": "1"}]),
    "groups of others": (f"{POD}/securityContext/supplementalGroups", [0]),
    "two containers": (f"{POD}/containers", [job()["spec"]["template"]["spec"]["containers"][0] | {"name": n} for n in "ab"]),
    "containers before it": (f"{POD}/initContainers", [{"name": "a", "image": "i"}]),
    "an init step that sees more of a volume": (
        POD, mounting(CLAIM, subPath="mine") | {"initContainers": beside(volumeMounts=[{"name": "storage-0", "mountPath": "/data"}])},
    ),
    "13 init steps": (f"{POD}/initContainers", [one | {"name": f"i{n}"} for n in range(13) for one in beside()]),
    **{f"an init step that {what}": (f"{POD}/initContainers", how) for what, how in BESIDE.items()},
    **{
        f"a volume of {next(iter(source))}": (f"{POD}/volumes", [{"name": "v", **source}])
        for source in (
            {"hostPath": {"path": "/"}}, {"secret": {"secretName": "s"}}, {"configMap": {"name": "c"}}, {"emptyDir": {"sizeLimit": "1Gi"}},
            {"projected": {"sources": [TOKEN]}}, {"csi": {"driver": "host.csi.example"}},
            {"persistentVolumeClaim": {"claimName": "c"}}, {"nfs": {"server": "s", "path": "/"}},
            {"image": {"reference": "i"}}, {"downwardAPI": {}},
            {"ephemeral": {"volumeClaimTemplate": {"spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "host",
                "resources": {"requests": {"storage": "1Gi"}}}}}},
        )
    },
    "shared memory without bounds": (f"{POD}/volumes", [{"name": "shm", "emptyDir": {"medium": "Memory"}}]),
    "memory as scratch": (f"{POD}/volumes", [{"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]),
    "huge pages": (f"{POD}/volumes", [{"name": "shm", "emptyDir": {"medium": "HugePages", "sizeLimit": "1Gi"}}]),
    "disk as shared memory": (f"{POD}/volumes", [{"name": "shm", "emptyDir": {"sizeLimit": "1Gi"}}]),
    "scratch without bounds": (f"{POD}/volumes", [{"name": "scratch", "emptyDir": {}}]),
    "scratch that is not reserved": (f"{POD}/volumes", [{"name": "scratch", "emptyDir": {"sizeLimit": "1Ti"}}]),
    "a disk by another name": (f"{POD}/volumes", [{"name": "hosts", "emptyDir": {"sizeLimit": "1Gi"}}]),
    "its labels as a file": (f"{POD}/volumes", [{"name": "hosts", "downwardAPI": {"items": [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]),
    "another's subdomain": (f"{POD}/subdomain", "vault"),
    "its node as a variable": (
        f"{CONTAINER}/env", [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
    ),
    "its address as a variable": (
        f"{CONTAINER}/env", [{"name": "NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}],
    ),
    "a port of an address of the node": (f"{CONTAINER}/ports", [{"containerPort": 80, "hostIP": "10.0.0.1"}]),
    **{
        f"a storage that is a {next(iter(source))}": (POD, mounting(source))
        for source in (
            {"hostPath": {"path": "/"}}, {"secret": {"secretName": "s"}}, {"configMap": {"name": "c"}}, {"emptyDir": {}},
            {"projected": {"sources": [TOKEN]}}, {"csi": {"driver": "host.csi.example"}}, {"nfs": {"server": "s", "path": "/"}},
            fresh(), {"image": {"reference": "registry.example/data:1", "pullPolicy": "Always"}},
        )
    },
    "an image that is pulled once": (POD, mounting({"image": {"reference": PINNED, "pullPolicy": "IfNotPresent"}})),
    "a storage's part by an expression": (POD, mounting(CLAIM, subPathExpr="$(SWITCHYARD_JOB_ID)")),
    "mounts of the node": (POD, mounting(CLAIM, mountPropagation="HostToContainer")),
    "privileged": (f"{CONTAINER}/securityContext", {"privileged": True}),
    "no security at all": (f"{CONTAINER}/securityContext", REMOVED),
    "escalation": (f"{CONTAINER}/securityContext/allowPrivilegeEscalation", REMOVED),
    "capabilities": (f"{CONTAINER}/securityContext/capabilities", {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
    "capabilities kept": (f"{CONTAINER}/securityContext/capabilities", {"drop": ["KILL"]}),
    "a container as root": (f"{CONTAINER}/securityContext/runAsUser", 0),
    "a container without seccomp": (f"{CONTAINER}/securityContext/seccompProfile", {"type": "Unconfined"}),
    "apparmor off": (f"{CONTAINER}/securityContext/appArmorProfile", {"type": "Unconfined"}),
    "another selinux domain": (f"{CONTAINER}/securityContext/seLinuxOptions", {"type": "spc_t"}),
    "a port of the node": (f"{CONTAINER}/ports", [{"containerPort": 80, "hostPort": 80}]),
    "another's secret as a volume": (POD, mounting({"secret": {"secretName": "theirs"}})),
    "a projected secret of ours": (POD, mounting({"projected": {"sources": [{"secret": {"name": "swy-s-x"}}]}})),
    "a field as variable": (f"{CONTAINER}/env", [{"name": "S", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}]),
    "a config map as variable": (f"{CONTAINER}/env", [{"name": "S", "valueFrom": {"configMapKeyRef": {"name": "swy-s-x", "key": "k"}}}]),
    "a secret as variable": (f"{CONTAINER}/env", [{"name": "S", "valueFrom": SECRET}]),
    "secrets as variables": (f"{CONTAINER}/envFrom", [{"secretRef": {"name": "s"}}]),
    "requests by the kubelet": (f"{CONTAINER}/lifecycle", {"preStop": {"httpGet": {"port": 80, "host": "169.254.169.254"}}}),
    "probes by the kubelet": (f"{CONTAINER}/livenessProbe", {"httpGet": {"port": 80, "host": "10.0.0.1"}}),
    "another's image from the node": (f"{CONTAINER}/imagePullPolicy", "IfNotPresent"),
    "no limits": (f"{CONTAINER}/resources", {}),
    "a device that is not on the list": (f"{CONTAINER}/resources", asking({"rdma/hca": "1"})),
    "a device of the host": (f"{CONTAINER}/resources", asking({"devices.kubevirt.io/kvm": "1"})),
    "a device that only begins like a slice": (f"{CONTAINER}/resources", asking({"nvidia.com/mig-1g.10gb_x": "1"})),
    "a device whose name contains a known one": (f"{CONTAINER}/resources", asking({"example.com/nvidia.com-mig-1g": "1"})),
    "huge pages of another size": (f"{CONTAINER}/resources", asking({"hugepages-4Mi": "4Mi"})),
    "less requested than limited": (f"{CONTAINER}/resources", asking({"cpu": "1m"}, {})),
    "memory that is not reserved": (f"{CONTAINER}/resources", asking({}, {"memory": "1Ti"})),
    "all of the disk": (f"{CONTAINER}/resources/limits/ephemeral-storage", "640Gi"),
    "a terminal": (f"{CONTAINER}/stdin", True),
    "raw devices": (f"{CONTAINER}/volumeDevices", []),
}  # fmt: skip
NEVER_VALID = {
    "half a device": job(**{f"{CONTAINER}/resources": asking({"nvidia.com/gpu": "500m"})}),
    "a device and a half": job(**{f"{CONTAINER}/resources": asking({"amd.com/gpu": "1.5"})}),
    "more devices than requested": job(
        **{f"{CONTAINER}/resources": asking({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "2"})}
    ),
    "huge pages beyond the request": job(
        **{f"{CONTAINER}/resources": asking({"hugepages-2Mi": "2Mi"}, {"hugepages-2Mi": "4Mi"})}
    ),
    "huge pages without a limit": job(**{f"{CONTAINER}/resources": asking({"hugepages-1Gi": "1Gi"}, {})}),
    "half a huge page": job(**{f"{CONTAINER}/resources": asking({"hugepages-2Mi": "1Mi"})}),
    "fewer than no devices": job(**{f"{CONTAINER}/resources": asking({"nvidia.com/gpu": "-1"})}),
}
"""Jobs with resources that Kubernetes itself refuses, whoever asks for them."""
DEVICES = {
    name: job("fair", **{f"{CONTAINER}/resources": asking({name: "8"})})
    for name in (
        "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-1g.10gb.me", "amd.com/gpu",
        "amd.com/cpx_nps4", "google.com/tpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi",
    )
}  # fmt: skip
"""A Job for each resource of a flavor."""


def key(path):
    return path.replace("~", "/")


def set_at(manifest, path, value):
    """As `changed`, where a tilde in the path stands for a slash in a key."""
    parent, _, last = path.rpartition("/")
    if "~" not in last:
        return changed(manifest, path, value)
    made = deepcopy(manifest)
    inner = made
    for step in parent.split("/"):
        inner = inner[step]
    if value is REMOVED:
        del inner[key(last)]
    else:
        inner[key(last)] = value
    return made

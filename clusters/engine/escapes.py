"""Writes that a stolen credential must not allow, as dry runs that a cluster evaluates but does not perform.

A role alone does not confine a thief: an account that may create namespaces and Jobs can run Jobs as anything,
anywhere. The admission policies of `docs/reference/cluster-access.yaml` confine it. Only the cluster's responses show
whether these policies exist, are current and apply to this credential.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .health import Reason
from .inventory import INSTALL_LABEL
from .versions import is_at_least

PREFIX = "swy-"
"""The prefix of our namespaces' names."""
PROBE_NAMESPACE = "swy-probe"
"""A namespace that the manifest creates and nothing runs in: the policies' response on Jobs shows only where Jobs are
allowed.
"""
FOREIGN_NAMESPACES = ("kube-system", "default")
DEVICES = "resource.k8s.io"
TENANT_LABEL = "switchyard.dev/tenant"
OLDEST_WITH_POLICIES = (1, 31)
APPLY = (
    "Download cluster-access.yaml from this gateway's page Register a cluster (/clusters/access.yaml), run "
    "`kubectl apply -f cluster-access.yaml` on the cluster, then use a token of its ServiceAccount"
)
_LABELS = {
    INSTALL_LABEL: "probe",
    TENANT_LABEL: "probe",
    "switchyard.dev/job": "probe",
    "switchyard.dev/attempt": "probe",
    "switchyard.dev/spec-hash": "probe",
}
_POD_SECURITY = "pod-security.kubernetes.io/enforce"
_MOST_TOLD = 300


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A write that a cluster evaluates in a dry run. `what` describes it, as text that follows `may`. `api` is the
    group and version of the manifest, whose name identifies the object. A `change` is a merge patch of an existing
    object. A `connect` is to a port of a pod that does not exist, so that nothing is reached where it is allowed.
    """

    what: str
    verb: Literal["create", "apply", "change", "connect"]
    api: str
    resource: str
    manifest: Mapping[str, Any]

    @property
    def namespace(self) -> str:
        """The namespace, empty if the object is a namespace."""
        return str(self.manifest["metadata"].get("namespace", ""))

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.manifest["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Answered:
    """A cluster's response to a rehearsal: it `would` do it, it would not, or (None) neither is clear. `reason` is its
    own message.
    """

    rehearsal: Rehearsal
    would: bool | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Confinement:
    """The results of the rehearsals, as text: escapes that are `open`, responses that are `unclear`, work that is
    `hindered`.
    """

    open: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()
    hindered: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether a thief is confined to our objects, and the gateway can work."""
        return not (self.open or self.unclear or self.hindered)


def escapes(groups: Collection[str], code: str, foreign_pods: Sequence[tuple[str, str]] = ()) -> list[Rehearsal]:
    """The writes that a cluster with these API groups must refuse. `code` makes names that do not exist; `foreign_pods`
    (namespace, name) are some that exist there.
    """
    name = f"{PREFIX}probe-{code}"
    found = [
        _namespace("create a namespace of privileged pods", name, {**_namespace_labels(), _POD_SECURITY: "privileged"}),
        _namespace("create a namespace without labels", name, {}),
        _namespace("create a namespace that is not named after it", f"probe-{code}", _namespace_labels()),
        *(_job(f"create Jobs in {where}", where, name) for where in FOREIGN_NAMESPACES),
        _job("create a Job of privileged pods that see the whole node", PROBE_NAMESPACE, name, pod=_privileged()),
        _job(
            "create a Job that runs as any ServiceAccount", PROBE_NAMESPACE, name, pod={"serviceAccountName": "probe"}
        ),
        _job(
            "create a Job on control-plane nodes", PROBE_NAMESPACE, name, pod={"tolerations": [{"operator": "Exists"}]}
        ),
        _policy("open other software's pods with a NetworkPolicy", FOREIGN_NAMESPACES[0], name, {"ingress": [{}]}),
        _policy("open a tenant's namespace with a NetworkPolicy", PROBE_NAMESPACE, "switchyard", {"ingress": [{}]}),
        _service("name other software's pods with a Service", FOREIGN_NAMESPACES[0], name),
        _service(
            "open a Service to the outside", PROBE_NAMESPACE, name, {"type": "LoadBalancer", "ports": [{"port": 1}]}
        ),
        _service("send a Service's clients to other pods", PROBE_NAMESPACE, name, {"selector": {"app": "probe"}}),
        _secret("create Secrets of other software", FOREIGN_NAMESPACES[0], f"{PREFIX}s-{code}"),
        _secret("make a ServiceAccount's token", PROBE_NAMESPACE, f"{PREFIX}s-{code}", account="default"),
        _reached("reach the ports of other software's pods", FOREIGN_NAMESPACES[0], name),
        *(_touched(where, pod) for where, pod in foreign_pods),
    ]
    if DEVICES in groups:
        found.append(_template("claim all devices of a class", PROBE_NAMESPACE, f"{PREFIX}claim-{code}", "All"))
    return found


def duties(groups: Collection[str], code: str, *, with_secrets: bool = False) -> list[Rehearsal]:
    """The writes that it must accept: each kind of object as the gateway writes it. Secrets only if the credential may
    create them at all.
    """
    name = f"{PREFIX}probe-{code}"
    found = [
        _namespace("create namespaces", name, _namespace_labels()),
        _job("create Jobs", PROBE_NAMESPACE, name),
        _policy("write NetworkPolicies", PROBE_NAMESPACE, "switchyard", {}),
        _service("create Services", PROBE_NAMESPACE, name),
    ]
    if with_secrets:
        found.append(_secret("create Secrets", PROBE_NAMESPACE, f"{PREFIX}s-{code}"))
    if DEVICES in groups:
        found.append(_template("write ResourceClaimTemplates", PROBE_NAMESPACE, f"{PREFIX}claim-{code}", "ExactCount"))
    return found


def judged(escaping: Sequence[Answered], working: Sequence[Answered]) -> Confinement:
    """The result of the responses. Only a plain refusal of an escape and a plain acceptance of a duty count as such."""
    return Confinement(
        open=tuple(answer.rehearsal.what for answer in escaping if answer.would),
        unclear=tuple(_told(answer) for answer in (*escaping, *working) if answer.would is None),
        hindered=tuple(_told(answer) for answer in working if answer.would is False),
    )


def confinement_findings(found: Confinement, kubernetes_version: str) -> list[Reason]:
    """The findings against a credential that is not confined, not provably confined, or confined too much to work."""
    if found.open:
        told = f"Someone who steals the credential can {', '.join(found.open)}. {_why_open(kubernetes_version)}"
        return [Reason("excess_permission", told)]
    reasons = []
    if found.unclear:
        told = (
            "The cluster gave no clear answer to dry runs, so a stolen credential may be able to do harm. Unclear: "
            f"{'; '.join(found.unclear)}. {APPLY}. Exclude namespaces of Switchyard from webhooks that do not support dry runs."
        )
        reasons.append(Reason("unproven_permission", told))
    if found.hindered:
        told = f"The cluster refuses actions that the gateway needs: {'; '.join(found.hindered)}. {APPLY}."
        reasons.append(Reason("missing_permission", told))
    return reasons


def has_policies(kubernetes_version: str) -> bool:
    """Whether this version of Kubernetes supports all of the manifest's admission policies; true if the version is
    unknown.
    """
    return is_at_least(kubernetes_version, OLDEST_WITH_POLICIES)


def _why_open(kubernetes_version: str) -> str:
    if not has_policies(kubernetes_version):
        needed = ".".join(map(str, OLDEST_WITH_POLICIES))
        return (
            f"Only ValidatingAdmissionPolicies prevent that, and this cluster runs Kubernetes {kubernetes_version}. "
            f"Upgrade it to {needed} or later. {APPLY}."
        )
    return (
        "The cluster has an older manifest without the admission policies that prevent that, or they do not cover this "
        f"account. {APPLY}; new policies take effect after some seconds."
    )


def _told(answer: Answered) -> str:
    reason = answer.reason[:_MOST_TOLD].rstrip(".")
    return f"{answer.rehearsal.what} ({reason})" if reason else answer.rehearsal.what


def _namespace_labels() -> dict[str, str]:
    return {
        INSTALL_LABEL: "probe",
        TENANT_LABEL: "probe",
        _POD_SECURITY: "restricted",
        f"{_POD_SECURITY}-version": "latest",
    }


def _namespace(what: str, name: str, labels: Mapping[str, str]) -> Rehearsal:
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels)}}
    return Rehearsal(what, "create", "v1", "namespaces", manifest)


def _job(what: str, namespace: str, name: str, *, pod: Mapping[str, Any] | None = None) -> Rehearsal:
    """A suspended Job as the gateway renders it (federation.engine.objects.rendering; a test compares the two)."""
    amounts = {"cpu": "1", "memory": "1Mi", "ephemeral-storage": "64Gi"}
    container = {
        "name": "probe",
        "image": "registry.example/probe:1",
        "imagePullPolicy": "Always",
        "env": [{"name": "SWITCHYARD_JOB_ID", "value": "probe"}],
        "resources": {"limits": amounts, "requests": {**amounts, "ephemeral-storage": "0"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "fsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        **(pod or {}),
    }
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": _LABELS},
        "spec": {
            "suspend": True,
            "parallelism": 1,
            "completions": 1,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "activeDeadlineSeconds": 60,
            "template": {"metadata": {"labels": _LABELS}, "spec": spec},
        },
    }
    return Rehearsal(what, "create", "batch/v1", "jobs", manifest)


def _privileged() -> dict[str, Any]:
    container = {
        "name": "probe",
        "image": "registry.example/probe:1",
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "node", "mountPath": "/node"}],
    }
    return {
        "hostPID": True,
        "hostNetwork": True,
        "containers": [container],
        "volumes": [{"name": "node", "hostPath": {"path": "/"}}],
    }


def _policy(what: str, namespace: str, name: str, opening: Mapping[str, Any]) -> Rehearsal:
    manifest = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace, "labels": {INSTALL_LABEL: "probe"}},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], **opening},
    }
    return Rehearsal(what, "apply", "networking.k8s.io/v1", "networkpolicies", manifest)


def _service(what: str, namespace: str, name: str, changes: Mapping[str, Any] | None = None) -> Rehearsal:
    """The Service of a gang as the gateway renders it (federation.engine.objects.meeting; a test compares the two)."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "probe", "uid": "probe"}
    spec = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"switchyard.dev/attempt": "probe"},
        **(changes or {}),
    }
    if spec["type"] != "ClusterIP":
        del spec["clusterIP"]
    metadata = {"name": name, "namespace": namespace, "labels": _LABELS, "ownerReferences": [owner]}
    manifest = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    return Rehearsal(what, "create", "v1", "services", manifest)


def _template(what: str, namespace: str, name: str, mode: str) -> Rehearsal:
    exactly = {"deviceClassName": "probe", "allocationMode": mode, **({"count": 1} if mode == "ExactCount" else {})}
    request = {"name": "devices", "exactly": exactly}
    labels = {INSTALL_LABEL: "probe"}
    manifest = {
        "apiVersion": f"{DEVICES}/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"metadata": {"labels": labels}, "spec": {"devices": {"requests": [request]}}},
    }
    return Rehearsal(what, "apply", f"{DEVICES}/v1", "resourceclaimtemplates", manifest)


def _secret(what: str, namespace: str, name: str, account: str = "") -> Rehearsal:
    """A Secret as the gateway renders it, owned by a Job; with an `account`, one that Kubernetes fills with its token."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": _LABELS}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "probe", "uid": "00000000-0000-4000-8000-000000000000"}
    metadata["ownerReferences"] = [owner]
    kind = "kubernetes.io/service-account-token" if account else "Opaque"
    if account:
        metadata["annotations"] = {"kubernetes.io/service-account.name": account}
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind, "immutable": True}
    return Rehearsal(what, "create", "v1", "secrets", {**manifest, "data": {} if account else {"s0": "cHJvYmU="}})


def _reached(what: str, namespace: str, name: str) -> Rehearsal:
    return Rehearsal(what, "connect", "v1", "pods", {"metadata": {"name": name, "namespace": namespace}})


def _touched(namespace: str, pod: str) -> Rehearsal:
    change = {"metadata": {"name": pod, "namespace": namespace, "annotations": {"switchyard.dev/probe": "1"}}}
    return Rehearsal(f"change pods in {namespace}", "change", "v1", "pods", change)

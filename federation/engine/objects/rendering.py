"""Renders a stored spec to batch/v1 Jobs: one suspended Job per pod set, under pod security `restricted`.

Everything in a manifest comes from validated values; no user input is copied unread. The cluster never reruns anything
silently: there are no retries and no restarts, and a disrupted pod fails its Job.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from typing import Any
from uuid import UUID

from clusters.engine.flavors import match_expressions
from clusters.engine.taints import tolerations_for
from federation.engine import names
from federation.engine.intake.init_and_sidecars import step_name
from federation.engine.intake.normal_form import encode
from placement.values.advance import Bounds
from placement.values.model import LEVELS, Topology

from .gpu_needs import ANY_NODE, NodeNeeds
from .meeting import Meeting, meeting_of
from .resource_claims import Claimable, resource_claims_of
from .volumes import Volumes, ephemeral_storage, scratch_mounts, volumes_of

EPHEMERAL_STORAGE_LIMIT = "64Gi"
STEP_STORAGE_LIMIT, SIDECAR_STORAGE_LIMIT = EPHEMERAL_STORAGE_LIMIT, "4Gi"
"""Of an init step, which runs alone, and of a sidecar, which adds to that of the program; neither reserves any."""
RUN_AS_USER = 1000
"""The user of images that name none: they would run as root, which `restricted` refuses."""
TERMINATION_SECONDS = 30
MOST_HINTED_NODES = 1000
MOST_TERMS = 2000
"""Of a required node affinity, so that an object stays far below the size that API servers accept."""
NODES_WEIGHT = 100
DOMAIN_WEIGHT = 50
"""The sum of the weights ranks: an assumed node of the domain, then any other node of the domain, then the rest."""
KUEUE_TOPOLOGY = {
    "required": "kueue.x-k8s.io/podset-required-topology",
    "preferred": "kueue.x-k8s.io/podset-preferred-topology",
}
CLAIM = "devices"
NO_BOUNDS = Bounds()
_HOSTNAME = "kubernetes.io/hostname"

_POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": RUN_AS_USER,
    "runAsGroup": RUN_AS_USER,
    "fsGroup": RUN_AS_USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "privileged": False,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_FAILURE_POLICY = {
    "rules": [
        {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0]}},
    ]
}


@dataclass(frozen=True, slots=True)
class Identity:
    """The owner of an object, as in its labels and environment."""

    install: str
    tenant_id: UUID
    tenant_path: str
    job_id: UUID
    attempt_id: UUID
    attempt_number: int
    spec_hash: str
    kept_namespace: str = ""
    """The tenant's namespace when the attempt was made: the tenant may have been renamed since. Empty for the present one."""
    earlier_runs: int = 0
    """The number of the job's earlier attempts that may have run."""
    checkpoint: str = ""
    """The newest checkpoint that they reported; empty without one."""

    @property
    def namespace(self) -> str:
        """The tenant's namespace."""
        return self.kept_namespace or names.namespace_of(self.tenant_path, self.tenant_id)

    @property
    def labels(self) -> dict[str, str]:
        """The five labels that identify an object as this attempt's (ids as written in the API)."""
        return {
            names.LABEL_INSTALL: self.install,
            names.LABEL_TENANT: str(self.tenant_id),
            names.LABEL_JOB: str(self.job_id),
            names.LABEL_ATTEMPT: str(self.attempt_id),
            names.LABEL_SPEC_HASH: self.spec_hash,
        }


@dataclass(frozen=True, slots=True)
class Devices:
    """What each pod of a set uses on its flavor: `units` of an extended resource, or of claimed devices."""

    vendor: str = ""
    capacity_type: str = "on_demand"
    resource_name: str = ""
    units: int = 0
    claimable: Claimable | None = None

    @property
    def are_given_by_nvidias_plugin(self) -> bool:
        """Whether NVIDIA's device plugin names the container's devices in an environment variable."""
        return self.vendor == "nvidia" and self.units > 0 and self.claimable is None

    @property
    def claims(self) -> list[tuple[str, str]]:
        """A pod's claims by name, each with its template."""
        asked = resource_claims_of(self.claimable, self.units) if self.claimable else []
        return [(f"{CLAIM}-{number}", template) for number, (template, _) in enumerate(asked)]


def namespace_labels(install: str, tenant_label: str) -> dict[str, str]:
    """The labels of a tenant's namespace, which enforces pod security `restricted`."""
    return {
        names.LABEL_INSTALL: install,
        names.LABEL_TENANT: tenant_label,
        "pod-security.kubernetes.io/enforce": "restricted",
    }


def spec_hash(stored: Mapping[str, Any]) -> str:
    """32 hex digits that are equal only for equal stored specs (the order of an object's members does not matter)."""
    return blake2s(encode(stored), digest_size=16).hexdigest()


def render_job(
    stored: Mapping[str, Any],
    position: int,
    identity: Identity,
    devices: Devices,
    *,
    kueue_label: str = "",
    simulated: bool = False,
) -> dict[str, Any]:
    """The suspended Job of the pod set at `position` of a stored spec.

    `kueue_label` is the node label of the requested topology level, for Kueue. `simulated` allows simulated run times.
    """
    pod_set = stored["pod_sets"][position]
    meeting = meeting_of(stored, identity.attempt_id, identity.namespace)
    labels = identity.labels
    annotations = _simulation(stored["labels"]) if simulated else {}
    if meeting:
        annotations |= meeting.annotations()
    if kueue_label:
        annotations[KUEUE_TOPOLOGY[stored["topology"]["mode"]]] = kueue_label
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names.object_name(identity.attempt_id, position),
            "namespace": identity.namespace,
            "labels": labels,
        },
        "spec": {
            "suspend": True,
            "parallelism": pod_set["count"],
            "completions": stored["completions"] or pod_set["count"],
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": _FAILURE_POLICY,
            "activeDeadlineSeconds": stored["deadline_seconds"],
            "template": {
                "metadata": {"labels": labels, **({"annotations": annotations} if annotations else {})},
                "spec": _pod_spec(pod_set, position, identity, devices, meeting),
            },
        },
    }


def _simulation(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: labels[key] for key in names.SIMULATED if key in labels}


def _pod_spec(
    pod_set: Mapping[str, Any], position: int, identity: Identity, devices: Devices, meeting: Meeting | None
) -> dict[str, Any]:
    volumes = volumes_of(pod_set) + (meeting.volumes() if meeting else Volumes())
    variables = meeting.environment(position) if meeting else []
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": TERMINATION_SECONDS,
        "securityContext": _POD_SECURITY,
        "containers": [_container(pod_set, identity, devices, variables) | volumes.container_members()],
        **volumes.pod_members(),
    }
    if beside := _init_and_sidecars(pod_set, identity):
        spec["initContainers"] = beside
    if meeting:
        spec["subdomain"] = meeting.service
    tolerations = tolerations_for(devices.vendor if devices.units else "", devices.capacity_type)
    if tolerations:
        spec["tolerations"] = list(tolerations)
    if devices.claims:
        spec["resourceClaims"] = [
            {"name": name, "resourceClaimTemplateName": template} for name, template in devices.claims
        ]
    return spec


def _init_and_sidecars(pod_set: Mapping[str, Any], identity: Identity) -> list[dict[str, Any]]:
    """The containers of init steps, in their order, then those of sidecars: Kubernetes starts these before the program,
    and stops them after it. They have no devices.
    """
    own = {"cpu": pod_set["cpu"], "memory": pod_set["memory"]}
    steps = [
        _beside(step_name(number), own | step, STEP_STORAGE_LIMIT, pod_set, identity)
        for number, step in enumerate(pod_set.get("init", ()), 1)
    ]
    sidecars = [
        {**_beside(one["name"], one, SIDECAR_STORAGE_LIMIT, pod_set, identity), "restartPolicy": "Always"}
        for one in pod_set.get("sidecars", ())
    ]
    return [*steps, *sidecars]


def _beside(
    name: str, program: Mapping[str, Any], storage_limit: str, pod_set: Mapping[str, Any], identity: Identity
) -> dict[str, Any]:
    amounts = {"cpu": program["cpu"], "memory": program["memory"]}
    container: dict[str, Any] = {
        "name": name,
        "image": program["image"],
        "imagePullPolicy": "Always",
        "env": _environment(program["env"], identity, leaves_it_to_plugin=False),
        "resources": {
            "limits": {**amounts, "ephemeral-storage": storage_limit},
            "requests": {**amounts, "ephemeral-storage": "0"},
        },
        "securityContext": _CONTAINER_SECURITY,
    }
    for field in ("command", "args"):
        if program[field]:
            container[field] = program[field]
    if mounts := scratch_mounts(pod_set):
        container["volumeMounts"] = mounts
    return container


def _container(
    pod_set: Mapping[str, Any], identity: Identity, devices: Devices, variables: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    amounts = {"cpu": pod_set["cpu"], "memory": pod_set["memory"]}
    if devices.units and not devices.claimable:
        amounts[devices.resource_name] = str(devices.units)
    amounts |= {name: str(amount) for name, amount in pod_set.get("resources", {}).items()}
    # without its own request, the container would request its whole limit
    disk_request, disk_limit = ephemeral_storage(pod_set, EPHEMERAL_STORAGE_LIMIT)
    environment = _environment(pod_set["env"], identity, leaves_it_to_plugin=devices.are_given_by_nvidias_plugin)
    container: dict[str, Any] = {
        "name": pod_set["name"],
        "image": pod_set["image"],
        # for digests too: only then does the kubelet check with the registry that this namespace may use a cached image
        "imagePullPolicy": "Always",
        "env": _merged(variables, environment),
        "resources": {
            "limits": {**amounts, "ephemeral-storage": disk_limit},
            "requests": {**amounts, "ephemeral-storage": disk_request},
            **({"claims": [{"name": name} for name, _ in devices.claims]} if devices.claims else {}),
        },
        "securityContext": _CONTAINER_SECURITY,
    }
    for field in ("command", "args"):
        if pod_set[field]:
            container[field] = pod_set[field]
    if ports := pod_set.get("ports"):
        container["ports"] = [{"name": port["name"], "containerPort": port["number"]} for port in ports]
    return container


def _merged(
    variables: Sequence[Mapping[str, Any]], environment: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The gang's variables first, so that the job's own can refer to them. The job's own replace those of the same name."""
    own = {variable["name"] for variable in environment}
    return [*(variable for variable in variables if variable["name"] not in own), *environment]


def _environment(given: Mapping[str, str], identity: Identity, *, leaves_it_to_plugin: bool) -> list[dict[str, str]]:
    ours = {
        "SWITCHYARD_JOB_ID": str(identity.job_id),
        "SWITCHYARD_ATTEMPT": str(identity.attempt_number),
        "SWITCHYARD_ATTEMPT_ID": str(identity.attempt_id),
        "SWITCHYARD_TENANT": identity.tenant_path,
    }
    if identity.earlier_runs:
        ours["SWITCHYARD_RESTART"] = str(identity.earlier_runs)
    if identity.checkpoint:
        # Kubernetes would replace `$(NAME)` in it by the value of another variable.
        ours["SWITCHYARD_CHECKPOINT"] = identity.checkpoint.replace("$(", "$$(")
    if not leaves_it_to_plugin:
        # Images may set it to `all`; NVIDIA's runtime would honour this in addition to claims, or without any request.
        # Claimed devices come through CDI, whatever its value; NVIDIA's own driver sets `void` for the same reason.
        ours["NVIDIA_VISIBLE_DEVICES"] = "void"
    return [{"name": name, "value": value} for name, value in {**given, **ours}.items()]


def kept_levels(topology: Topology, reached: str) -> tuple[str, ...]:
    """The levels of domain, wide to narrow; the cluster gets the first of them that has a label.

    `reached` is the level of the smallest domain that holds the pod set. It is used if no level is required, as far as
    nodes share it. A required level is used itself, so that pods may still move within it.
    """
    first = topology.level if topology.mode == "required" and topology.level != "cluster" else reached
    levels = LEVELS[LEVELS.index(first) : LEVELS.index(reached) + 1]
    return tuple(level for level in levels if level not in ("cluster", "node"))


def template_patch(
    node_selector: Mapping[str, str],
    assumed_nodes: Sequence[str] = (),
    *,
    domain: Sequence[Mapping[str, str]] = (),
    must_keep: bool = False,
    bounds: Bounds = NO_BOUNDS,
    devices: NodeNeeds = ANY_NODE,
) -> dict[str, Any]:
    """The patch of the pod template when the Job is released: where its pods may and should go.

    Pods must run on the flavor's nodes (`node_selector`, read by `clusters.engine.flavors.match_expressions` like every
    selector here) and within the `bounds` that reservations set. With `must_keep`, they must run in the domain that any
    of the selectors in `domain` picks, or, without a domain, exactly on the assumed nodes. Otherwise the cluster's
    scheduler is free: it only prefers the assumed nodes, then the domain. A suspended Job that never started accepts
    changes of node affinity, so this needs no separate request.

    Their node also meets what `devices` says. Only the coarse alternative counts if the others would make too many terms
    with nodes by name.
    """
    flavor, kinds = match_expressions(node_selector), devices.alternatives
    is_pinned = must_keep and (not domain or bool(bounds.only)) and 0 < len(assumed_nodes) <= MOST_HINTED_NODES
    never = [_on_node("NotIn", name) for name in bounds.never]
    if is_pinned or bounds.only:
        # by name, since a node's hostname label may differ
        named = assumed_nodes if is_pinned else bounds.only
        kinds = kinds if len(kinds) * len(named) <= MOST_TERMS else (devices.coarse,)
        terms = [_term([*flavor, *kind], _on_node("In", name)) for name in named for kind in kinds]
    elif must_keep and domain:
        terms = [_term([*flavor, *match_expressions(one), *kind], *never) for one in domain for kind in kinds]
    else:
        terms = [_term([*flavor, *kind], *never) for kind in kinds if flavor or kind or never]
    wishes = [] if must_keep else [(DOMAIN_WEIGHT, match_expressions(selector)) for selector in domain]
    if assumed_nodes and not is_pinned:
        names = list(assumed_nodes[:MOST_HINTED_NODES])
        wishes.insert(0, (NODES_WEIGHT, [{"key": _HOSTNAME, "operator": "In", "values": names}]))
    affinity: dict[str, Any] = {}
    if terms:
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if wishes:
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": weight, "preference": {"matchExpressions": expressions}} for weight, expressions in wishes
        ]
    return {"spec": {"affinity": {"nodeAffinity": affinity}}} if affinity else {}


def _on_node(operator: str, name: str) -> Mapping[str, object]:
    """One requirement: it accepts one name, and all requirements of a term must match."""
    return {"key": "metadata.name", "operator": operator, "values": [name]}


def _term(expressions: Sequence[Mapping[str, object]], *fields: Mapping[str, object]) -> dict[str, Any]:
    """A node selector term; all its members must match."""
    parts = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    return {name: members for name, members in parts.items() if members}

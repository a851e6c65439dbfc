"""Reads manifests of Kueue (v1beta1 and v1beta2): what has an equal here as values, the rest as warnings."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple, NoReturn

from clusters.engine.gpu_models import nvidia_model
from clusters.engine.quantities import Implausible, parse
from federation.engine.intake.reading import Fault, Refused
from foundation.plain_yaml import Document, read_documents
from quotas.engine.amounts import BadAmount, parse_amount

from .reading import LABEL_KEY, LABEL_VALUE

GROUP = "kueue.x-k8s.io/"
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
GPU = re.compile(r"[a-z0-9.-]+/(gpu|mig-[a-z0-9.-]+)|gpu\.intel\.com/(i915|xe)")
MODEL_LABEL = "nvidia.com/gpu.product"
PLAIN = {"cpu": "cpu", "memory": "memory"}
QUEUE_FIELDS = frozenset(["resourceGroups", "cohort", "cohortName", "fairSharing", "stopPolicy", "preemption"])
COHORT_FIELDS = frozenset(["resourceGroups", "parent", "parentName", "fairSharing"])
LOCAL_FIELDS = frozenset(["clusterQueue", "fairSharing", "stopPolicy"])
NOT_READ = frozenset(["apiVersion", "kind", "metadata", "status", "spec"])
WHY: Mapping[str, str] = {
    "namespaceSelector": "give people roles at the tenant instead",
    "queueingStrategy": "shares decide which tenant goes next, and a job that does not fit never blocks others",
    "flavorFungibility": "placement compares all flavors of all clusters",
    "admissionChecks": "a policy hook may refuse jobs",
    "admissionChecksStrategy": "a policy hook may refuse jobs",
    "reclaimWithinCohort": "what is lent returns when the borrower's work ends, unless you add `reclaims: true` to the limit",
    "borrowWithinCohort": "borrowed quota makes no job stop",
    "wallTimePolicy": "set a budget of GPU-hours",
}
HARMLESS: Mapping[str, Sequence[object]] = {
    "namespaceSelector": ({},), "queueingStrategy": ("BestEffortFIFO",), "flavorFungibility": ({},),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Amounts:
    """A quota in base units. `borrow` and `lend` are None without a bound."""

    nominal: int = 0
    borrow: int | None = None
    lend: int | None = None

    def plus(self, other: "Amounts") -> "Amounts":
        """Both together."""
        borrow = None if self.borrow is None or other.borrow is None else self.borrow + other.borrow
        both = None
        if self.lend is not None or other.lend is not None:
            both = sum(one.nominal if one.lend is None else min(one.lend, one.nominal) for one in (self, other))
        return Amounts(self.nominal + other.nominal, borrow, both)


@dataclass(frozen=True, slots=True)
class Node:
    """A Cohort, ClusterQueue or LocalQueue. `parent` is the name of its cohort, or of a local queue's cluster queue."""

    kind: str
    name: str
    parent: str = ""
    namespace: str = ""
    amounts: Mapping[str, Amounts] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    weight: Fraction = Fraction(1)
    stop: str = "None"
    preempts: str = "Never"
    where: str = ""

    @property
    def title(self) -> str:
        """Its kind and name."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class PriorityClassSeen(NamedTuple):
    """A WorkloadPriorityClass."""

    name: str
    value: int
    description: str
    where: str


@dataclass(slots=True)
class Manifest:
    """All objects of the files."""

    cohorts: dict[str, Node] = field(default_factory=dict)
    queues: list[Node] = field(default_factory=list)
    local_queues: list[Node] = field(default_factory=list)
    classes: list[PriorityClassSeen] = field(default_factory=list)
    models: dict[str, str] = field(default_factory=dict)
    """The resource that a flavor's GPUs are, by the name of the flavor."""
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Part:
    """A value in a document, with its place."""

    file: str
    document: Document
    path: str
    value: Any

    def at(self, name: str) -> "Part":
        """A field of it; its value is None if it is absent."""
        path = f"{self.path}.{name}" if self.path else name
        return replace(self, path=path, value=self.value.get(name) if isinstance(self.value, dict) else None)

    def items(self) -> list["Part"]:
        """The elements of a list; none if it is absent."""
        if self.value is None:
            return []
        if not isinstance(self.value, list):
            self.refuse("must be a list")
        return [replace(self, path=f"{self.path}[{index}]", value=value) for index, value in enumerate(self.value)]

    def mapping(self) -> Mapping[str, Any]:
        """A mapping; empty if it is absent."""
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            self.refuse("must be a mapping")
        return self.value

    def text(self, default: str | None = None) -> str:
        """A text; required without a default."""
        if self.value is None and default is not None:
            return default
        if not isinstance(self.value, str):
            self.refuse("must be a text")
        return self.value

    @property
    def where(self) -> str:
        """Its file, line and column."""
        return f"{self.file}, {self.document.mark(self.path)}"

    def refuse(self, told: str) -> NoReturn:
        """Raises Refused with its place."""
        raise Refused([Fault(self.path, "bad_manifest", f"{self.where}: {self.path or 'the document'} {told}")])


def read_manifests(files: Sequence[tuple[str, str]]) -> Manifest:
    """The objects of all files. Raises Refused with file, line and column."""
    found = Manifest()
    objects = [one for name, text in files for one in _objects(name, text)]
    for one in objects:
        if one.at("kind").value == "ResourceFlavor":
            _flavor(one, found)
    seen: set[tuple[str, str, str]] = set()
    for one in objects:
        kind = one.at("kind").text()
        name, namespace = one.at("metadata").at("name").text(), one.at("metadata").at("namespace").text("")
        if not NAME.fullmatch(name) or (namespace and not NAME.fullmatch(namespace)):
            one.at("metadata").refuse("must have a name that Kubernetes allows")
        if (kind, namespace, name) in seen:
            one.at("metadata").at("name").refuse(f"is that of another {kind} in these files")
        seen.add((kind, namespace, name))
        is_of_kueue = one.at("apiVersion").text("").startswith(GROUP)
        read = READERS.get(kind) if is_of_kueue else None
        if read is not None:
            read(one, found)
        elif kind != "ResourceFlavor" or not is_of_kueue:
            found.warnings.append(f"{_safe(kind)} {name}: there is no equal; it is left out")
    return found


def _objects(name: str, text: str) -> list[Part]:
    try:
        documents = read_documents(text)
    except Refused as refused:
        raise Refused([Fault(one.field, one.code, f"{name}, {one.detail}") for one in refused.faults]) from None
    found = []
    for document in documents:
        part = Part(name, document, "", document.value)
        if part.value is None:
            continue
        kind = part.at("kind").text() if part.mapping() else part.refuse("must be a mapping")
        found += part.at("items").items() if kind == "List" or kind.endswith("List") else [part]
    return found


def _flavor(one: Part, found: Manifest) -> None:
    name, spec = one.at("metadata").at("name").text(), one.at("spec")
    labels = spec.at("nodeLabels").mapping()
    product = labels.get(MODEL_LABEL)
    model = nvidia_model(product)[0] if isinstance(product, str) else ""
    if model:
        found.models[name] = f"gpu:{model}"
    left = sorted(f"nodeLabels.{label}" for label in labels if label != MODEL_LABEL)
    left += sorted(field_ for field_ in spec.mapping() if field_ != "nodeLabels")
    for field_ in left:
        found.warnings.append(
            f"ResourceFlavor {name}: {_safe(field_)} has no equal; placement reads the clusters' nodes, their taints and labels"
        )


def _queue(one: Part, found: Manifest) -> None:
    spec = one.at("spec")
    node = _node(one, "ClusterQueue", found)
    cohort = spec.at("cohortName").text("") or spec.at("cohort").text("")
    preemption = spec.at("preemption")
    policy = preemption.at("withinClusterQueue").text("Never")
    for name, value in preemption.mapping().items():
        if name != "withinClusterQueue" and value not in ("Never", {"policy": "Never"}):
            _warn(found, node.title, f"preemption.{name}", value)
    _rest(spec, node.title, QUEUE_FIELDS, found)
    found.queues.append(replace(node, parent=_named(cohort, spec), preempts=policy))


def _cohort(one: Part, found: Manifest) -> None:
    spec = one.at("spec")
    node = _node(one, "Cohort", found)
    _rest(spec, node.title, COHORT_FIELDS, found)
    parent = spec.at("parentName").text("") or spec.at("parent").text("")
    found.cohorts[node.name] = replace(node, parent=_named(parent, spec))


def _local(one: Part, found: Manifest) -> None:
    spec = one.at("spec")
    node = _node(one, "LocalQueue", found)
    _rest(spec, node.title, LOCAL_FIELDS, found)
    found.local_queues.append(
        replace(
            node, parent=spec.at("clusterQueue").text(), namespace=one.at("metadata").at("namespace").text("default")
        )
    )


def _class(one: Part, found: Manifest) -> None:
    value = one.at("value")
    if type(value.value) is not int:
        value.refuse("must be a whole number")
    name = one.at("metadata").at("name").text()
    _rest(one, f"WorkloadPriorityClass {name}", NOT_READ | {"value", "description"}, found)
    description = one.at("description").text("")
    found.classes.append(PriorityClassSeen(name, value.value, description, one.where))


READERS = {"ClusterQueue": _queue, "Cohort": _cohort, "LocalQueue": _local, "WorkloadPriorityClass": _class}


def _named(name: str, part: Part) -> str:
    if name and not NAME.fullmatch(name):
        part.refuse("must name a cohort as Kubernetes allows")
    return name


def _node(one: Part, kind: str, found: Manifest) -> Node:
    spec, name = one.at("spec"), one.at("metadata").at("name").text()
    labels = {}
    for key, value in one.at("metadata").at("labels").mapping().items():
        if isinstance(value, str) and LABEL_KEY.fullmatch(key) and LABEL_VALUE.fullmatch(value):
            labels[key] = value
        else:
            found.warnings.append(f"{kind} {name}: its label {_safe(key)} is not a label here; it is left out")
    for field_ in one.mapping():
        if field_ not in NOT_READ:
            _warn(found, f"{kind} {name}", field_, one.value[field_])
    weight = spec.at("fairSharing").at("weight")
    for field_ in spec.at("fairSharing").mapping():
        if field_ != "weight":
            _warn(found, f"{kind} {name}", f"fairSharing.{field_}", None)
    return Node(
        kind,
        name,
        amounts=_quotas(spec, f"{kind} {name}", found),
        labels=labels,
        weight=Fraction(1) if weight.value is None else _number(weight),
        stop=spec.at("stopPolicy").text("None"),
        where=one.where,
    )


def _quotas(spec: Part, title: str, found: Manifest) -> dict[str, Amounts]:
    """The quota of each resource of ours. Flavors that are the same resource here are counted together."""
    sums: dict[str, Amounts] = {}
    flavors: dict[str, list[str]] = {}
    for flavor in (one for group in spec.at("resourceGroups").items() for one in group.at("flavors").items()):
        name = flavor.at("name").text()
        for quota in flavor.at("resources").items():
            given = quota.at("name").text()
            is_gpu = GPU.fullmatch(given) is not None and "/mig-" not in given
            resource = found.models.get(name, "gpu") if is_gpu else PLAIN.get(given, "")
            if not resource:
                told = "`jobs` counts jobs, not pods" if given == "pods" else "limits count gpu, cpu, memory and jobs"
                found.warnings.append(f"{title}: the quota of {_safe(given)} is left out: {told}")
                continue
            amounts = Amounts(
                _amount(quota.at("nominalQuota"), resource) or 0,
                _amount(quota.at("borrowingLimit"), resource),
                _amount(quota.at("lendingLimit"), resource),
            )
            sums[resource] = sums[resource].plus(amounts) if resource in sums else amounts
            flavors.setdefault(resource, []).append(name)
    for resource, names in flavors.items():
        if len(set(names)) > 1:
            listed = ", ".join(_safe(name) for name in dict.fromkeys(names))
            found.warnings.append(f"{title}: the quotas of {resource} of the flavors {listed} become one limit")
    return sums


def _amount(part: Part, resource: str) -> int | None:
    if part.value is None:
        return None
    text = str(part.value) if type(part.value) is int else part.text()
    try:
        value = parse(text)
        exact = f"{value.numerator}" if value.denominator == 1 else text
        return parse_amount(resource, exact)
    except (BadAmount, Implausible) as error:
        part.refuse(f"is not an amount of {resource}: {error}")


def _number(part: Part) -> Fraction:
    try:
        found = parse(str(part.value) if type(part.value) is int else part.text())
    except Implausible as error:
        part.refuse(f"is not a number: {error}")
    if found < 0:
        part.refuse("must not be negative")
    return found


def _rest(part: Part, title: str, known: frozenset[str], found: Manifest) -> None:
    """A warning for each field that has no equal."""
    for name, value in part.mapping().items():
        if name not in known and value not in HARMLESS.get(name, ()):
            _warn(found, title, name, value)


def _warn(found: Manifest, title: str, name: str, value: object) -> None:
    shown = f" {_safe(value)}" if isinstance(value, str) else ""
    why = WHY.get(name.rpartition(".")[2])
    found.warnings.append(f"{title}: {_safe(name)}{shown} has no equal{f': {why}' if why else ''}")


def _safe(text: str) -> str:
    """A text of the manifest as one short line of ASCII."""
    return ascii(text[:80])[1:-1]

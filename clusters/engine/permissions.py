"""The least a credential must be allowed on a cluster, and the most it may be: the published role as data.

`docs/reference/cluster-access.yaml` holds the same role for `kubectl apply`; a test keeps the two equal.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

NAMESPACE = "switchyard-system"
SERVICE_ACCOUNT = "switchyard"
REVIEWED_NAMESPACES = (NAMESPACE, "default", "kube-system")
"""Where a credential's rules are asked for. The role is cluster-wide, so it must hold in each; a right that was granted
in one namespace only shows where it was granted, and kube-system is where it would hurt most."""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource; `group` is empty for Kubernetes' core group. `*` stands for all, `name` for one object."""

    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        where = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {where}" + (f" named {self.name}" if self.name else "")


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the credential lacks and what it has too much of, both sorted; both empty means it fits."""

    missing: tuple[Right, ...]
    excess: tuple[Right, ...]


def _rights(group: str, resource: str, verbs: str) -> frozenset[Right]:
    return frozenset(Right(group, resource, verb) for verb in verbs.split())


ROLE: frozenset[Right] = frozenset().union(
    _rights("", "nodes", "list watch"),
    _rights("", "namespaces", "get create"),
    _rights("", "pods", "list watch patch"),
    _rights("", "pods/log", "get"),
    _rights("batch", "jobs", "create get list watch patch delete"),
    _rights("networking.k8s.io", "networkpolicies", "create patch"),
    _rights("resource.k8s.io", "resourceslices", "list watch"),
    _rights("resource.k8s.io", "resourceclaims", "list watch"),
    _rights("resource.k8s.io", "deviceclasses", "list"),
    _rights("resource.k8s.io", "resourceclaimtemplates", "create patch"),
)
FORMERLY: frozenset[Right] = frozenset().union(
    _rights("", "nodes", "get"),
    _rights("", "namespaces", "list"),
    _rights("", "pods", "get"),
    _rights("", "events", "list"),
    _rights("resource.k8s.io", "resourceslices", "get"),
    _rights("resource.k8s.io", "resourceclaims", "get"),
)
"""What earlier manifests granted although nothing needs it; too much, and no reason to turn a renewed credential away."""
OPTIONAL_GROUPS = frozenset({"resource.k8s.io"})
"""API groups that many clusters do not serve; the role's rights on them are asked for only where they do."""
EVERY_ACCOUNT_HAS: frozenset[Right] = frozenset().union(
    _rights("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
    _rights("authorization.k8s.io", "selfsubjectrulesreviews", "create"),
    _rights("authentication.k8s.io", "selfsubjectreviews", "create"),
    _rights("certificates.k8s.io", "clustertrustbundles", "get list watch"),
)
"""What Kubernetes grants to every authenticated account (system:basic-user, cluster trust bundle discovery)."""


TELLTALES: frozenset[Right] = frozenset().union(
    _rights("*", "*", "*"),
    _rights("", "secrets", "get list create"),
    _rights("", "pods", "create delete"),
    _rights("", "pods/exec", "create"),
    _rights("", "serviceaccounts/token", "create"),
    _rights("", "nodes", "patch"),
    _rights("", "users", "impersonate"),
    _rights("rbac.authorization.k8s.io", "clusterroles", "bind escalate"),
    _rights("rbac.authorization.k8s.io", "clusterrolebindings", "create"),
)
"""Rights that our account must not have, asked for one by one where nobody can list what it has."""


def needed(groups: Collection[str]) -> frozenset[Right]:
    """What the role must have on a cluster that serves these API groups."""
    absent = OPTIONAL_GROUPS - frozenset(groups)
    return frozenset(right for right in ROLE if right.group not in absent)


def compare_asked(
    reviews: Iterable[Sequence[Mapping[str, Any]]], allowed: Collection[Right], needs: Collection[Right] = ROLE
) -> Comparison:
    """The published role against what a credential turned out to be `allowed` of the role and the telltales.

    For authorizers that cannot list their rules: the role counts as far as it was confirmed, whatever `reviews` say, and
    what they do list beyond it is too much all the same.
    """
    listed = compare(reviews)
    missing = frozenset(needs) - frozenset(allowed)
    excess = {*listed.excess, *(TELLTALES & frozenset(allowed))}
    return Comparison(tuple(sorted(missing)), tuple(sorted(excess)))


def compare(reviews: Iterable[Sequence[Mapping[str, Any]]], needs: Collection[Right] = ROLE) -> Comparison:
    """The published role against the resource rules that SelfSubjectRulesReview gave, one review a namespace. Only what it
    `needs` can be missing; all of the role may be there.
    """
    missing: set[Right] = set()
    excess: set[Right] = set()
    for rules in reviews:
        granted = {right for rule in rules for right in _granted(rule)}
        missing |= {right for right in needs if not _covers(granted, right)}
        excess |= granted - ROLE - EVERY_ACCOUNT_HAS
    return Comparison(tuple(sorted(missing)), tuple(sorted(excess)))


def _granted(rule: Mapping[str, Any]) -> Iterable[Right]:
    names = rule.get("resourceNames") or ("",)
    parts = (rule.get("apiGroups") or ("",), rule.get("resources") or (), rule.get("verbs") or (), names)
    return (Right(str(group), str(resource), str(verb), str(name)) for group, resource, verb, name in product(*parts))


def _covers(granted: set[Right], wanted: Right) -> bool:
    """Whether one of the rights, wildcards included, allows `wanted` on every object."""
    return any(
        Right(group, resource, verb) in granted
        for group, resource, verb in product((wanted.group, "*"), (wanted.resource, "*"), (wanted.verb, "*"))
    )

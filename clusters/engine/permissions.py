"""The minimum and maximum rights of a credential on a cluster: the published role as data.

`docs/reference/cluster-access.yaml` has the same role for `kubectl apply`; a test keeps the two equal.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import islice, product
from typing import Any

MOST_RULES = 1000
MOST_TERMS = 20_000
"""Groups, resources, verbs and names in the rules of one review. The published role has about fifty."""
LONGEST_TERM = 400
MOST_EXCESS = 200
NAMESPACE = "switchyard-system"
SERVICE_ACCOUNT = "switchyard"
REVIEWED_NAMESPACES = (NAMESPACE, "default", "kube-system")
"""The namespaces where a credential's rules are checked. The role is cluster-wide, so it must apply in each. A right
granted in one namespace shows only there, and in kube-system it would do the most harm.
"""


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
    """The rights that the credential lacks and those in excess, both sorted; all empty means it fits.

    Only the first `MOST_EXCESS` of the excess are named; `more_excess` counts the others. `unreadable` says why a list
    of rules was not evaluated; a credential with such a list counts as excessive.
    """

    missing: tuple[Right, ...]
    excess: tuple[Right, ...]
    more_excess: int = 0
    unreadable: str = ""


def _rights(group: str, resource: str, verbs: str) -> frozenset[Right]:
    return frozenset(Right(group, resource, verb) for verb in verbs.split())


ROLE: frozenset[Right] = frozenset().union(
    _rights("", "nodes", "list watch"),
    _rights("", "namespaces", "get create"),
    _rights("", "pods", "list watch patch"),
    _rights("", "pods/log", "get"),
    _rights("", "pods/portforward", "get create"),
    _rights("", "services", "create get"),
    _rights("", "secrets", "create"),
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
"""Rights that earlier manifests granted without need. They are an excess, but no reason to refuse a renewed
credential.
"""
OF_GANGS: frozenset[Right] = _rights("", "services", "create get")
"""Rights that earlier manifests did not grant, and that only gangs need. Without them a registered cluster continues to run
single pods: they are missing, but no reason to refuse a renewed credential.
"""
CREATE_SECRETS = Right("", "secrets", "create")
OF_SESSIONS: frozenset[Right] = _rights("", "pods/portforward", "get create")
"""Rights by which sessions are opened: `get` for a WebSocket, and in newer versions of Kubernetes `create` as well."""
OPTIONAL_RIGHTS = OF_SESSIONS | {CREATE_SECRETS}
"""Rights that earlier manifests did not grant, and without which a cluster serves all other jobs."""
OPTIONAL_GROUPS = frozenset({"resource.k8s.io"})
"""API groups that many clusters do not serve; the role's rights on them are required only if the cluster
serves them.
"""
EVERY_ACCOUNT_HAS: frozenset[Right] = frozenset().union(
    _rights("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
    _rights("authorization.k8s.io", "selfsubjectrulesreviews", "create"),
    _rights("authentication.k8s.io", "selfsubjectreviews", "create"),
    _rights("certificates.k8s.io", "clustertrustbundles", "get list watch"),
)
"""The rights that Kubernetes grants to every authenticated account (system:basic-user, cluster trust bundle
discovery).
"""


TELLTALES: frozenset[Right] = frozenset().union(
    _rights("*", "*", "*"),
    _rights("", "secrets", "get list watch delete"),
    _rights("", "pods", "create delete"),
    _rights("", "pods/exec", "create"),
    _rights("", "serviceaccounts/token", "create"),
    _rights("", "nodes", "patch"),
    _rights("", "users", "impersonate"),
    _rights("rbac.authorization.k8s.io", "clusterroles", "bind escalate"),
    _rights("rbac.authorization.k8s.io", "clusterrolebindings", "create"),
)
"""Rights that our account must not have, checked one by one if the authorizer cannot list its rights."""


def needed(groups: Collection[str]) -> frozenset[Right]:
    """The rights that a credential must have on a cluster that serves these API groups."""
    absent = OPTIONAL_GROUPS - frozenset(groups)
    return frozenset(right for right in ROLE - OPTIONAL_RIGHTS if right.group not in absent)


def compare_asked(
    reviews: Iterable[Sequence[Mapping[str, Any]]], allowed: Collection[Right], needs: Collection[Right] = ROLE
) -> Comparison:
    """Compares the published role with the rights that a credential was `allowed` of the role and the telltales.

    For authorizers that cannot list their rules. The role counts as far as it was confirmed, whatever `reviews` say;
    rights that they list beyond it are still in excess.
    """
    listed = compare(reviews)
    missing = frozenset(needs) - frozenset(allowed)
    excess = {*listed.excess, *(TELLTALES & frozenset(allowed))}
    return replace(listed, missing=tuple(sorted(missing)), excess=tuple(sorted(excess)))


def compare(reviews: Iterable[Sequence[Mapping[str, Any]]], needs: Collection[Right] = ROLE) -> Comparison:
    """Compares the published role with the resource rules from SelfSubjectRulesReview, one review per namespace. Only
    rights in `needs` can be missing; all of the role is allowed.

    A rule grants every combination of its terms, and a few kilobytes can mean billions of them: it is evaluated by its
    terms.
    """
    missing: set[Right] = set()
    excess: set[Right] = set()
    more = 0
    for rules in reviews:
        granted, unreadable = _read(rules)
        if unreadable:
            return Comparison((), (), unreadable=unreadable)
        missing |= {right for right in needs if not any(rule.covers(right) for rule in granted)}
        for rule in granted:
            named = list(islice(rule.beyond(_ALLOWED), MOST_EXCESS))
            more += rule.count_beyond(_ALLOWED) - len(named)
            excess.update(named)
    told = sorted(excess)
    return Comparison(tuple(sorted(missing)), tuple(told[:MOST_EXCESS]), more + len(told[MOST_EXCESS:]))


_ALLOWED = ROLE | EVERY_ACCOUNT_HAS


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule's terms. It grants all their combinations."""

    groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...]

    def covers(self, wanted: Right) -> bool:
        """Whether it allows `wanted` on every object, wildcards included."""
        return (
            "" in self.names
            and (wanted.group in self.groups or "*" in self.groups)
            and (wanted.resource in self.resources or "*" in self.resources)
            and (wanted.verb in self.verbs or "*" in self.verbs)
        )

    def beyond(self, allowed: Collection[Right]) -> Iterator[Right]:
        """The rights that it grants beyond `allowed`, one after the other."""
        parts = product(self.groups, self.resources, self.verbs, self.names)
        return (right for part in parts if (right := Right(*part)) not in allowed)

    def count_beyond(self, allowed: Collection[Right]) -> int:
        """The number of such rights, without enumerating them."""
        granted = len(self.groups) * len(self.resources) * len(self.verbs) * len(self.names)
        return granted - sum(
            right.group in self.groups
            and right.resource in self.resources
            and right.verb in self.verbs
            and right.name in self.names
            for right in allowed
        )


def _read(rules: Sequence[Mapping[str, Any]]) -> tuple[list[_Rule], str]:
    """The rules, or the reason why they cannot be evaluated."""
    if len(rules) > MOST_RULES:
        return [], f"the cluster lists {len(rules)} rules for it, and the gateway reads {MOST_RULES} at most"
    found = [_rule(rule) for rule in rules]
    terms = sum(len(rule.groups) + len(rule.resources) + len(rule.verbs) + len(rule.names) for rule in found)
    if terms > MOST_TERMS:
        return [], f"the cluster lists rules of {terms} terms for it, and the gateway reads {MOST_TERMS} at most"
    longest = max((len(term) for rule in found for part in astuple(rule) for term in part), default=0)
    if longest > LONGEST_TERM:
        return (
            [],
            f"the cluster lists a rule with a term of {longest} characters, which is longer than any rule of Kubernetes",
        )
    return found, ""


def _rule(rule: Mapping[str, Any]) -> _Rule:
    return _Rule(
        _terms(rule.get("apiGroups")) or ("",),
        _terms(rule.get("resources")),
        _terms(rule.get("verbs")),
        _terms(rule.get("resourceNames")) or ("",),
    )


def _terms(said: Any) -> tuple[str, ...]:
    """Each term once, in the order of the list."""
    return tuple(dict.fromkeys(str(term) for term in said)) if isinstance(said, list | tuple) else ()

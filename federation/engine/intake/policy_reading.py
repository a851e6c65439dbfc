"""A tenant's policy, read from untrusted JSON, and as JSON again. `read_policy(policy_json(policy)) == policy`."""

import re
from collections.abc import Mapping
from typing import Any

from federation.engine import names
from placement.values.consolidation import CONSOLIDATION
from placement.values.model import StrategyWeights, TenantPolicy
from placement.values.strategies import BOUNDS, STRATEGY_NAMES, TERMS

from .reading import Faults, Fields, child
from .spec import CAPACITY_TYPES, DNS_LABEL

POLICY_FIELDS = frozenset(
    [
        "default_strategy",
        "default_priority_class",
        "consolidation",
        "strategies",
        "clusters",
        "regions",
        "capacity_types",
        "flavors",
        "weights",
    ]
)
_CLUSTERS = re.compile(r"[a-z0-9*]([a-z0-9*-]{0,61}[a-z0-9*])?")
_FLAVORS = re.compile(r"[A-Za-z0-9*]([A-Za-z0-9*._:-]{0,118}[A-Za-z0-9*])?")
_WEIGHT = re.compile(r"-?[0-9]{1,4}(\.[0-9]{1,3})?")
_SAYS = "one of: "


def read_policy(value: object, tenant_path: str) -> TenantPolicy:
    """The policy in a JSON object. Raises Refused with every field at fault."""
    faults = Faults()
    fields = Fields(value, "", faults, POLICY_FIELDS)
    strategies = fields.names(
        "strategies",
        STRATEGY_NAMES.__contains__,
        _SAYS + ", ".join(STRATEGY_NAMES),
        most=len(STRATEGY_NAMES),
    )
    default = fields.choice("default_strategy", STRATEGY_NAMES, "")
    if default and strategies and default not in strategies:
        fields.fault("default_strategy", "not_allowed", "is not among the allowed strategies")
    policy = TenantPolicy(
        tenant_path=tenant_path,
        default_strategy=default,
        default_priority_class=_read_class_name(fields),
        consolidation=fields.choice("consolidation", CONSOLIDATION, ""),
        strategies=strategies,
        clusters=fields.names("clusters", _CLUSTERS.fullmatch, "a cluster's name; '*' matches anything"),
        regions=fields.names("regions", names.region_pattern, "a region; '*' matches anything"),
        capacity_types=fields.names(
            "capacity_types", CAPACITY_TYPES.__contains__, _SAYS + ", ".join(CAPACITY_TYPES), most=3
        ),
        flavors=fields.names("flavors", _FLAVORS.fullmatch, "a flavor's name; '*' matches anything"),
        weights=_read_weights(fields),
    )
    faults.refuse_if_any()
    return policy


def _read_class_name(fields: Fields) -> str:
    if not fields.values.get("default_priority_class"):
        return ""
    return fields.checked("default_priority_class", names.dns_label, DNS_LABEL, most_bytes=names.MAX_LABEL)


def _read_weights(fields: Fields) -> tuple[StrategyWeights, ...]:
    given = fields.mapping("weights")
    read = []
    for strategy in sorted(given):
        path = child(fields.at("weights"), strategy)
        if strategy not in STRATEGY_NAMES:
            fields.faults.add(path, "unknown_field", "there is no such strategy")
            continue
        own = Fields(given[strategy], path, fields.faults, frozenset(TERMS))
        said = {term: _read_weight(own, term) for term in TERMS if own.values.get(term) is not None}
        if said:
            read.append(StrategyWeights(strategy, **said))
    return tuple(read)


def _read_weight(own: Fields, term: str) -> float:
    text = own.text(term, most_bytes=16)
    if not _WEIGHT.fullmatch(text):
        own.fault(term, "bad_format", 'a number as text with up to three decimals, such as "0.25"')
        return 0.0
    least, most = BOUNDS[term]
    if not least <= float(text) <= most:
        own.fault(term, "out_of_range", f"must be between {least} and {most}")
    return float(text)


def policy_json(policy: TenantPolicy) -> dict[str, Any]:
    """The policy with every field, without its tenant."""
    return {
        "default_strategy": policy.default_strategy or None,
        "default_priority_class": policy.default_priority_class or None,
        "consolidation": policy.consolidation or None,
        "strategies": list(policy.strategies),
        "clusters": list(policy.clusters),
        "regions": list(policy.regions),
        "capacity_types": list(policy.capacity_types),
        "flavors": list(policy.flavors),
        "weights": {weights.strategy: weights_json(weights) for weights in policy.weights},
    }


def weights_json(weights: Any) -> Mapping[str, str]:
    """The terms that are set, as text."""
    said = {term: getattr(weights, term) for term in TERMS}
    return {term: weight_text(value) for term, value in said.items() if value is not None}


def weight_text(value: float) -> str:
    """Up to three decimals, without trailing zeros."""
    return f"{value:.3f}".rstrip("0").rstrip(".")

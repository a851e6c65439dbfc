"""How candidates are ranked: by a sum of five terms, with the weights of the job's strategy.

    price          how much dearer than the cheapest candidate, per hour of work (`work`): 0.25 = a quarter dearer
    free           the free part of the flavor's devices in the cluster: 0 none, 1 all (negative: the emptier the better)
    cluster_free   the same over all devices of the cluster
    stranding      the GPUs that would be unusable for the usual pods (`fragmentation`); for jobs of one pod set
    carbon         how much more an hour of work emits than on the candidate that emits least, as with the price

Where a gang would not keep to the domain that it prefers, `preference.WIDER` is added.

Candidates on which a job would miss its deadline (`deadlines`) rank after all others.

The lowest sum wins; of equal sums the shortest pull (`pulls`), then the order of cluster ids and flavor names. Candidates
with a price rank before all others, then those without a price for the place or the data's move, then pods without a GPU on
nodes with GPUs. Where carbon counts, candidates whose emissions are not known come after all of these.
"""

from dataclasses import replace

import numpy as np

from placement.fleet.policies import Policy
from placement.fleet.pools import Floats, Mask
from placement.values.strategies import STRATEGIES, TERMS, Weights

from .candidates import Ask
from .work import Work

_A_TIER = 1e9
"""More than any sum of terms: the largest weight of 1,000 times at most 4e5 for the price of 1e21 times the
cheapest."""
_LATE = 4
"""The tiers by which a candidate on which the job could be late ranks behind."""
_LINEAR = 1e4


def weights_of(strategy: str, policy: Policy) -> Weights:
    """The strategy's weights for a tenant with this policy."""
    weights, own = STRATEGIES[strategy], policy.own_weights(strategy)
    if own is None:
        return weights
    said = {name: value for name in TERMS if (value := getattr(own, name)) is not None}
    return replace(weights, **said)


def price_terms(weights: Weights, ask: Ask, is_allowed: Mask, work: Work | None) -> Floats:
    """The part of each candidate's score that does not change during a cycle."""
    cost = np.nan_to_num(ask.hourly_cost)
    is_unknown = np.isnan(ask.hourly_cost)
    if work is not None:
        cost = work.hourly(cost, ask)
        is_unknown |= work.is_unknown(ask)
    cheapest = _cheapest(cost, is_allowed & ~is_unknown, is_allowed)
    tier = is_unknown + 2 * ask.borrows_gpu_nodes
    if work is not None and work.late is not None:
        tier = tier + _LATE * work.late[ask.pools].max(axis=1)
    terms: Floats = weights.price * _bounded(cost / cheapest - 1.0) + _A_TIER * tier
    if weights.carbon:
        terms += _carbon_terms(weights.carbon, ask, is_allowed, work)
    return terms


def _carbon_terms(weight: float, ask: Ask, is_allowed: Mask, work: Work | None) -> Floats:
    emitted = ask.hourly_emissions if work is None else ask.hourly_emissions * work.hours(ask)
    is_unknown = np.isnan(emitted)
    emitted = np.nan_to_num(emitted)
    least = _cheapest(emitted, is_allowed & ~is_unknown, is_allowed)
    terms: Floats = weight * _bounded(emitted / least - 1.0) + 4 * _A_TIER * is_unknown
    return terms


def _bounded(times: Floats) -> Floats:
    """Grows with the cost without end, yet stays below the weight of a tier: beyond _LINEAR times the cheapest,
    logarithmically.
    """
    bounded: Floats = np.minimum(times, _LINEAR) + _LINEAR * np.log(np.maximum(times / _LINEAR, 1.0))
    return bounded


def _cheapest(cost: Floats, known: Mask, allowed: Mask) -> float:
    """The lowest known cost of the allowed candidates, else of any; 1 if nothing has a cost."""
    for some in (known, allowed):
        costs = cost[some & (cost > 0)]
        if costs.size:
            return float(costs.min())
    return 1.0

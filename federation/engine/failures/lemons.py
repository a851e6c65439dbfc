"""Nodes that make jobs fail ("lemons"), found by their rate of failures and not by what they say of themselves.

For each node we compare the failures that are blamed on it with what its runs would show anywhere else. A run's expected
failure is the rate of its tenant on all other nodes, drawn towards the fleet's rate by as many runs as PRIOR_RUNS has (the
mean of a Beta posterior): a tenant whose jobs fail everywhere makes no node look bad. Runs are independent, so the number
of failures is a sum of Bernoulli draws. By Hoeffding (1956) its upper tail beyond mean + 1 is at most the binomial one of
the same mean, and by Le Cam's comparison at most that of the Poisson distribution: P(X >= k) <= P(Poisson(mean) >= k),
which is what we compute. A node is a lemon if that probability times the number of nodes (Bonferroni) is below
FALSE_ALARM.

No program and no tenant alone can make a healthy node a lemon. Each job counts once per node, and each group of tenants
counts with at most half of a node's failures: a group is all that descends from one child of the cluster's owner, and only
the owner can make another child. Without the group that has the most failures there, those of the others must be improbable
as well (INDEPENDENT_CHANCE).
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, lgamma, log

PRIOR_RUNS = 20.0
LEAST_RATE = 0.002
"""No rate is taken as lower: a fleet without failures so far has some."""
LEAST_FAILURES = 4
LEAST_JOBS = 4
LEAST_GROUPS = 2
FALSE_ALARM = 0.01
INDEPENDENT_CHANCE = 0.01
"""The most that one group can do is to have this share of the healthy nodes avoided, by failing where others happened to."""
PRECISION = 1e-12
MOST_PERCENT = 10
"""The most nodes of a cluster that are avoided for this: if more look bad, the cluster is, and the brake is for that."""


@dataclass(frozen=True, slots=True)
class NodeRun:
    """One attempt on one node. `group` is that of its tenant; `is_blamed`: it failed, and the failure is the node's."""

    cluster: str
    node: str
    job: str
    group: str
    is_blamed: bool


@dataclass(frozen=True, slots=True)
class Lemon:
    """A node that failed more often than its runs explain: `failures` of `runs`, where `expected` were."""

    cluster: str
    node: str
    failures: int
    runs: int
    expected: float
    jobs: int
    groups: int
    chance: float
    """The probability of as many failures on a healthy node, times the number of nodes."""


def find_lemons(runs: Sequence[NodeRun], nodes_of: Mapping[str, int]) -> list[Lemon]:
    """The lemons among the nodes of these runs, the worst first. `nodes_of` has the number of nodes of each cluster."""
    by_node: dict[tuple[str, str], list[NodeRun]] = defaultdict(list)
    for run in _once_per_job(runs):
        by_node[run.cluster, run.node].append(run)
    nodes = max(sum(nodes_of.values()), len(by_node), 1)
    found: list[Lemon] = []
    while more := _worse_than_the_rest(by_node, nodes):
        # what lemons show is not what healthy nodes would show: without them, those that they outshone may stand out
        found += sorted(more, key=lambda lemon: (lemon.chance, lemon.cluster, lemon.node))
        for lemon in more:
            del by_node[lemon.cluster, lemon.node]
    return _few_enough(found, nodes_of)


def _worse_than_the_rest(by_node: Mapping[tuple[str, str], Sequence[NodeRun]], nodes: int) -> list[Lemon]:
    rates = _Rates([run for own in by_node.values() for run in own])
    return [lemon for place, own in by_node.items() if (lemon := _weighed(place, own, rates, nodes))]


def _once_per_job(runs: Sequence[NodeRun]) -> list[NodeRun]:
    """One run per job and node; it is blamed if one of them was."""
    found: dict[tuple[str, str, str], NodeRun] = {}
    for run in runs:
        key = run.cluster, run.node, run.job
        if key not in found or run.is_blamed:
            found[key] = run
    return list(found.values())


class _Rates:
    """The rate of blamed failures of each group, on the nodes other than one."""

    def __init__(self, runs: Sequence[NodeRun]) -> None:
        self.runs: Counter[str] = Counter(run.group for run in runs)
        self.failures: Counter[str] = Counter(run.group for run in runs if run.is_blamed)
        self.all_runs = len(runs)
        self.all_failures = sum(self.failures.values())

    def expected(self, own: Sequence[NodeRun]) -> Mapping[str, float]:
        """The number of failures to expect of a node's runs, by group: what the same tenants see on the other nodes."""
        runs, failures = Counter(run.group for run in own), Counter(run.group for run in own if run.is_blamed)
        others = self.all_runs - len(own)
        usual = max(LEAST_RATE, (self.all_failures - sum(failures.values())) / others if others else LEAST_RATE)
        return {
            group: count
            * (self.failures[group] - failures[group] + PRIOR_RUNS * usual)
            / (self.runs[group] - count + PRIOR_RUNS)
            for group, count in runs.items()
        }


def _weighed(place: tuple[str, str], own: Sequence[NodeRun], fleet: _Rates, nodes: int) -> Lemon | None:
    by_group = Counter(run.group for run in own if run.is_blamed)
    failures = _capped(by_group)
    jobs = len({run.job for run in own if run.is_blamed})
    if failures < LEAST_FAILURES or jobs < LEAST_JOBS or len(by_group) < LEAST_GROUPS:
        return None
    by_chance = fleet.expected(own)
    expected = sum(by_chance.values())
    worst = max(sorted(by_group), key=by_group.__getitem__)
    others = _chance(by_group.total() - by_group[worst], expected - by_chance[worst])
    chance = _chance(failures, expected) * nodes
    if chance >= FALSE_ALARM or others >= INDEPENDENT_CHANCE:
        return None
    return Lemon(*place, sum(by_group.values()), len(own), expected, jobs, len(by_group), chance)


def _chance(failures: int, expected: float) -> float:
    """The probability of at least this number of failures; the bound holds only beyond the mean."""
    return poisson_tail(failures, expected) if failures >= expected + 1 else 1.0


def _capped(by_group: Mapping[str, int]) -> int:
    """The failures that count: the largest group counts with no more than all others together."""
    total, largest = sum(by_group.values()), max(by_group.values(), default=0)
    return total - largest + min(largest, total - largest)


def poisson_tail(least: int, mean: float) -> float:
    """P(X >= least) of a Poisson distribution, summed from its largest term beyond the mean on."""
    if least <= 0:
        return 1.0
    if mean <= 0:
        return 0.0
    count, total = least, 0.0
    term = exp(least * log(mean) - mean - lgamma(least + 1))
    while count <= mean or term > total * PRECISION:
        total += term
        count += 1
        term *= mean / count
    return min(total, 1.0)


def _few_enough(found: Sequence[Lemon], nodes_of: Mapping[str, int]) -> list[Lemon]:
    """The worst of each cluster, as many as may be avoided there."""
    kept: Counter[str] = Counter()
    few = []
    for lemon in found:
        if kept[lemon.cluster] < max(1, nodes_of.get(lemon.cluster, 0) * MOST_PERCENT // 100):
            kept[lemon.cluster] += 1
            few.append(lemon)
    return few

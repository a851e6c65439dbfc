"""What it brings to state a minute for everything: 15 % of the users do so, beside the same trace in which all state the truth."""

from collections.abc import Sequence
from typing import Any

from benchmarks.report import percentile
from simulator.gateways import EngineGateway
from simulator.simulation import replay
from simulator.values import ClusterPlan, Conditions, TraceJob

from .world import is_liar, lied, of_users


def compare(plans: Sequence[ClusterPlan], jobs: Sequence[TraceJob]) -> list[dict[str, Any]]:
    """Rows of waits, of the honest and of the liars, with what changes by the lies in percent."""
    rows: list[dict[str, Any]] = []
    for in_one_tenant in (False, True):
        honest = of_users(jobs, in_one_tenant=in_one_tenant)
        before, after = _waits(plans, honest), _waits(plans, lied(honest))
        rows += [
            {
                "users": "in one tenant" if in_one_tenant else "a tenant each",
                "who": "liars" if who else "honest",
                **_figures("mean", _mean(before[who]), _mean(after[who])),
                **_figures("p95", percentile(before[who], 0.95), percentile(after[who], 0.95)),
            }
            for who in (False, True)
        ]
    return rows


def _waits(plans: Sequence[ClusterPlan], jobs: Sequence[TraceJob]) -> dict[bool, list[float]]:
    found = replay(plans, jobs, EngineGateway(), Conditions())
    waits: dict[bool, list[float]] = {False: [], True: []}
    for line in found.lines:
        if line.wait is not None:
            waits[is_liar(line.job)].append(line.wait)
    return waits


def _figures(name: str, before: float, after: float) -> dict[str, Any]:
    change = 100 * (after / before - 1) if before else 0.0
    return {f"{name}_truth_s": round(before), f"{name}_lies_s": round(after), f"{name}_change_pct": round(change, 2)}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))

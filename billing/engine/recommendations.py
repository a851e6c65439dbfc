"""What is recommended to a tenant, from what its jobs used in the last 30 days. Nothing here is charged.

Each rule is a function of measured facts, with its thresholds as constants. A finding says what the 30 days would have cost less
(`low` to `high`, money of one currency), and how far that is known (`confidence`, from 0 to 1).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_DOWN, Decimal
from enum import StrEnum
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any
from uuid import UUID

from clusters.engine.gpu_share import gpu_per_unit

WINDOW_DAYS = 30
LEAST = Fraction(1)
"""Of a finding's `high`, in its currency: less is not worth a person's time."""
LEAST_SHARE = Fraction(1, 10)
"""Of what the jobs cost: a smaller saving is within what run times vary by."""
MEASURED_FROM = Fraction(1, 2)
"""The part of the GPU-hours that must be measured before a smaller GPU is recommended."""
MEMORY_MARGIN = Fraction(5, 4)
"""Times the peak of the memory that was seen: the memory that a smaller GPU must have."""
ACTIVE_MARGIN = Fraction(5, 4)
"""Times the mean activity of the multiprocessors: the part of the GPU that a slice must be. Also how much longer jobs may take there."""
ACTIVE_BELOW = Fraction(3, 10)
"""The mean activity below which another model is recommended."""
OTHER_MODEL_TIMES = Fraction(2)
"""How much longer jobs may take on another model, of whose speed nothing is known."""
SLICE_SURE, MODEL_SURE, SAME_SURE = Fraction(9, 10), Fraction(1, 2), Fraction(4, 5)
"""The most that is known of a slice of the same model, of another model, and of the same GPU elsewhere."""
RATE_SURE, USUAL_RATE_SURE = Fraction(4, 5), Fraction(1, 2)
"""Of spot capacity whose interruptions its price states, and of that with the installation's usual rate."""
MOST_PLACES = 20
PLACES = Decimal("0.000001")
SPOT, ON_DEMAND = "spot", "on_demand"
WHOLE, SLICE = "whole", "mig:"


class Kind(StrEnum):
    """What is recommended."""

    IDLE = "idle"
    LATE_FAILURES = "late_failures"
    SMALLER = "smaller"
    CHEAPER = "cheaper"
    SPOT = "spot"
    UNUSED_COMMITMENT = "unused_commitment"
    MISSING_LABEL = "missing_label"


OF_JOBS = frozenset({Kind.IDLE, Kind.LATE_FAILURES, Kind.SMALLER, Kind.CHEAPER, Kind.SPOT})
"""Those whose subject begins with the name of jobs."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A recommendation of a day. Kind, tenant, subject and currency are the same from day to day."""

    kind: Kind
    tenant_id: UUID
    subject: str
    currency: str
    low: Decimal
    high: Decimal
    confidence: Decimal
    evidence: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Offer:
    """A flavor of a cluster that accepts jobs, at its price now. `most_units` is what its largest node has."""

    cluster_id: UUID
    cluster: str
    region: str
    flavor: str
    vendor: str
    gpu_model: str
    sharing: str
    memory_mib: int
    capacity_type: str
    currency: str
    unit_price: Decimal
    cpu_price: Decimal | None = None
    memory_price: Decimal | None = None
    most_units: int = 1
    interruptions_per_hour: Decimal | None = None
    """Of spot capacity, as its price states; None: not stated."""

    @property
    def share(self) -> Fraction:
        """The part of a GPU that a unit is."""
        return gpu_per_unit(self.sharing, self.gpu_model)


@dataclass(frozen=True, slots=True)
class Needs:
    """Where jobs may run. Empty: anywhere. `is_bound`: only in the cluster where they ran, which has what they mount."""

    clusters: frozenset[str] = frozenset()
    exclude_clusters: frozenset[str] = frozenset()
    regions: tuple[str, ...] = ()
    capacity_types: frozenset[str] = frozenset()
    is_bound: bool = False
    is_particular: bool = False
    """Whether they name facts of GPUs besides the model."""

    def allows(self, offer: Offer, home: UUID) -> bool:
        """Whether a job with these needs that ran in the cluster `home` may run there."""
        return (
            (offer.cluster_id == home or not self.is_bound)
            and (not self.clusters or offer.cluster in self.clusters)
            and offer.cluster not in self.exclude_clusters
            and (not self.regions or any(fnmatchcase(offer.region, one) for one in self.regions))
            and (not self.capacity_types or offer.capacity_type in self.capacity_types)
        )


@dataclass(frozen=True, slots=True)
class Use:
    """What the jobs of one name, in one tenant, used of a flavor of a cluster, in one currency, in the 30 days.

    Hours are of units, cores and GiB. `active` is `active_hours` times the mean activity of the multiprocessors.
    """

    tenant_id: UUID
    name: str
    cluster_id: UUID
    cluster: str
    flavor: str
    vendor: str
    gpu_model: str
    sharing: str
    memory_mib: int
    capacity_type: str
    currency: str
    cost: Fraction
    unit_hours: Fraction
    core_hours: Fraction = Fraction(0)
    gib_hours: Fraction = Fraction(0)
    measured_hours: Fraction = Fraction(0)
    active_hours: Fraction = Fraction(0)
    active: Fraction = Fraction(0)
    peak_mib: int | None = None
    units_per_pod: int = 1
    jobs: int = 1
    last_job: UUID | None = None
    checkpoint_seconds: int | None = None
    """The longest of them; None: not all write checkpoints."""
    needs: frozenset[Needs] = frozenset()

    @property
    def subject(self) -> str:
        """The name and the GPU, in whichever cluster."""
        kind = "" if self.sharing == WHOLE else f" {self.sharing}"
        return f"{self.name} on {self.gpu_model}{kind}, {self.capacity_type}"

    def cost_at(self, offer: Offer) -> Fraction:
        """What the same hours cost there."""
        return (
            self.unit_hours * Fraction(offer.unit_price)
            + self.core_hours * Fraction(offer.cpu_price or 0)
            + self.gib_hours * Fraction(offer.memory_price or 0)
        )

    def may_go(self, offer: Offer) -> bool:
        """Whether all of its jobs may run there and the currency compares; it is another place than its own."""
        return (
            (offer.cluster_id, offer.flavor) != (self.cluster_id, self.flavor)
            and offer.currency == self.currency
            and offer.vendor == self.vendor
            and offer.most_units >= self.units_per_pod
            and all(one.allows(offer, self.cluster_id) for one in self.needs)
        )


def cheaper(use: Use, offers: Iterable[Offer]) -> Finding | None:
    """The same GPU where it costs least now, by a tenth or more, of the kinds of capacity that are not stopped sooner."""
    if not use.gpu_model:
        return None
    kinds = {ON_DEMAND, "reserved"} | ({SPOT} if use.capacity_type == SPOT else set())
    best = _least(use, (one for one in offers if _is_same(use, one) and one.capacity_type in kinds))
    if best is None:
        return None
    saved = use.cost - use.cost_at(best)
    return _of_use(Kind.CHEAPER, use, best, saved, saved, SAME_SURE)


def spot(
    use: Use, offers: Iterable[Offer], slowdown: Callable[[Decimal, int], float], usual_rate: Decimal
) -> Finding | None:
    """The same GPU as spot capacity, for jobs that all write checkpoints. `low` pays for the work that interruptions repeat.

    `slowdown` gives the hours that an hour of work takes at a rate of interruptions, with these seconds between checkpoints.
    """
    if use.checkpoint_seconds is None or use.capacity_type == SPOT or not use.gpu_model:
        return None
    seconds = use.checkpoint_seconds
    places = [one for one in offers if _is_same(use, one) and one.capacity_type == SPOT and use.may_go(one)]

    def with_repeats(one: Offer) -> Fraction:
        rate = usual_rate if one.interruptions_per_hour is None else one.interruptions_per_hour
        return use.cost_at(one) * Fraction(str(slowdown(rate, seconds)))

    best = min(places, key=lambda one: (with_repeats(one), one.cluster, one.flavor), default=None)
    if best is None:
        return None
    is_stated = best.interruptions_per_hour is not None
    rate = best.interruptions_per_hour if is_stated else usual_rate
    low = use.cost - with_repeats(best)
    more = {"interruptions_per_hour": f"{rate:f}", "is_rate_stated": is_stated, "checkpoint_seconds": seconds}
    sure = RATE_SURE if is_stated else USUAL_RATE_SURE
    return _of_use(Kind.SPOT, use, best, low, use.cost - use.cost_at(best), sure, least=low, **more)


def smaller(use: Use, offers: Iterable[Offer]) -> Finding | None:
    """A smaller GPU or slice that has room for the peak of the memory, if at least half of the time was measured.

    Of the same model, a slice is enough if it is a quarter larger than what was active of the GPU; `low` is for jobs that take a quarter
    longer there. Another model is recommended for jobs that kept less than three tenths of the GPU active; `low` is for jobs that
    take twice as long.
    """
    measured = use.measured_hours / use.unit_hours if use.unit_hours else Fraction(0)
    if use.peak_mib is None or not use.active_hours or measured < MEASURED_FROM:
        return None
    active = use.active / use.active_hours
    need = use.peak_mib * MEMORY_MARGIN
    fitting = [one for one in offers if _is_smaller(use, one, active) and need <= one.memory_mib < use.memory_mib]
    best = _least(use, fitting)
    if best is None:
        return None
    is_slice = best.gpu_model == use.gpu_model
    times, sure = (ACTIVE_MARGIN, SLICE_SURE) if is_slice else (OTHER_MODEL_TIMES, MODEL_SURE)
    there = use.cost_at(best)
    more: dict[str, Any] = {
        "peak_memory_mib": use.peak_mib,
        "needed_memory_mib": -(-need.numerator // need.denominator),
        "memory_mib": use.memory_mib,
        "sm_active": f"{ratio(active):f}",
        "measured_share": f"{ratio(min(measured, Fraction(1))):f}",
    }
    low = max(use.cost - times * there, Fraction(0))
    return _of_use(Kind.SMALLER, use, best, low, use.cost - there, sure * min(measured, Fraction(1)), **more)


def _is_same(use: Use, offer: Offer) -> bool:
    return (offer.gpu_model, offer.sharing) == (use.gpu_model, use.sharing)


def _is_smaller(use: Use, offer: Offer, active: Fraction) -> bool:
    """Shares of one GPU are no smaller GPU: their memory and time are not each one's own."""
    if any(not (one == WHOLE or one.startswith(SLICE)) for one in (offer.sharing, use.sharing)):
        return False
    if (offer.capacity_type == SPOT) != (use.capacity_type == SPOT):
        return False
    if offer.gpu_model == use.gpu_model:
        own = gpu_per_unit(use.sharing, use.gpu_model)
        return offer.share < own and active * ACTIVE_MARGIN * own <= offer.share
    return (offer.sharing == use.sharing == WHOLE and active < ACTIVE_BELOW) and not any(
        one.is_particular for one in use.needs
    )


def _least(use: Use, offers: Iterable[Offer]) -> Offer | None:
    possible = (one for one in offers if use.may_go(one))
    return min(possible, key=lambda one: (use.cost_at(one), one.cluster, one.flavor), default=None)


def _of_use(  # noqa: PLR0913 - both ends of the range, and what each kind adds
    kind: Kind, use: Use, offer: Offer, low: Fraction, high: Fraction, sure: Fraction, *, least: Fraction | None = None,
    **more: Any,
) -> Finding | None:  # fmt: skip
    """None if it saves too little: `least`, by default `high`, must be a tenth of the cost."""
    if high < LEAST or (high if least is None else least) < LEAST_SHARE * use.cost:
        return None
    evidence = {
        "name": use.name, "jobs": use.jobs, "last_job": None if use.last_job is None else str(use.last_job),
        "cluster": use.cluster, "flavor": use.flavor, "capacity_type": use.capacity_type, "gpu_model": use.gpu_model,
        "sharing": use.sharing, "unit_hours": f"{money(use.unit_hours):f}", "cost": f"{money(use.cost):f}",
        "to_cluster": offer.cluster, "to_flavor": offer.flavor, "to_capacity_type": offer.capacity_type,
        "to_gpu_model": offer.gpu_model, "to_sharing": offer.sharing, "to_memory_mib": offer.memory_mib,
        "to_unit_price": f"{offer.unit_price:f}", "to_cost": f"{money(use.cost_at(offer)):f}",
    } | more  # fmt: skip
    return Finding(kind, use.tenant_id, use.subject, use.currency, money(low), money(high), ratio(sure), evidence)


def together(found: Iterable[Finding]) -> list[Finding]:
    """One finding of each subject: those of jobs that ran in several clusters are added up. The largest names the place to go."""
    groups: dict[tuple[Any, ...], list[Finding]] = defaultdict(list)
    for one in found:
        groups[one.kind, one.tenant_id, one.subject, one.currency].append(one)
    return [_added(sorted(its, key=lambda one: (-one.high, one.evidence["cluster"]))) for its in groups.values()]


def _added(parts: Sequence[Finding]) -> Finding:
    first = parts[0]
    low, high = (sum((getattr(one, name) for one in parts), Decimal(0)) for name in ("low", "high"))
    sure = sum((Fraction(one.confidence) * Fraction(one.high) for one in parts), Fraction(0)) / Fraction(high)
    sums = {
        name: f"{sum((Decimal(one.evidence[name]) for one in parts), Decimal(0)):f}"
        for name in ("unit_hours", "cost", "to_cost")
    }
    evidence = dict(first.evidence) | sums | {
        "jobs": sum(one.evidence["jobs"] for one in parts),
        "last_job": max((one.evidence["last_job"] for one in parts if one.evidence["last_job"]), default=None),
        "places": [
            {"cluster": one.evidence["cluster"], "flavor": one.evidence["flavor"], "cost": one.evidence["cost"],
             "to_cluster": one.evidence["to_cluster"], "to_flavor": one.evidence["to_flavor"]}
            for one in parts[:MOST_PLACES]
        ],
    }  # fmt: skip
    if "peak_memory_mib" in first.evidence:
        evidence["peak_memory_mib"] = max(one.evidence["peak_memory_mib"] for one in parts)
    return replace(first, low=low, high=high, confidence=ratio(sure), evidence=evidence)


def money(value: Fraction) -> Decimal:
    """Rounded down: a recommendation never promises more than the facts."""
    millionths = value.numerator * 1_000_000 // value.denominator
    return Decimal(millionths).scaleb(-6)


def ratio(value: Fraction) -> Decimal:
    """Likewise, with four decimals."""
    return (Decimal(value.numerator) / Decimal(value.denominator)).quantize(Decimal("0.0001"), ROUND_DOWN)

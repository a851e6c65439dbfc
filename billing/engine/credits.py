"""Credits for work that infrastructure lost: a pure function of segments, prices, losses, policies and what was posted.

The time of a run after its last checkpoint is lost if infrastructure ended the run. A policy names the causes whose lost time
is not charged. The tenant's expense is credited, and the organisation's account `infrastructure` debited: the cluster's cost
pool keeps what it provided.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import StrEnum
from uuid import UUID

from .ledger import Books, DayKey, Entry, Line, RatedSegment, corrected_cost, money
from .shared_entries import missing_entries, name_of

CREDIT = "credit"
INFRASTRUCTURE_CREDIT = "infrastructure credit"
"""What takes the place of a flavor on invoices. No flavor has such a name: it contains a space."""


class LossCause(StrEnum):
    """What ended a run whose work since its last checkpoint is lost."""

    NODE_LOST = "node_lost"
    EVICTED = "evicted"
    SPOT = "spot"
    PREEMPTED = "preempted"
    DEVICE = "device"
    INFRASTRUCTURE = "infrastructure"
    BAD_NODE = "bad_node"
    CLUSTER_LOST = "cluster_lost"
    MAINTENANCE = "maintenance"


CAUSE_MEANINGS: Mapping[LossCause, str] = {
    LossCause.NODE_LOST: "Its node is gone, was shut down or was given up.",
    LossCause.EVICTED: "Its node had too little left to continue it.",
    LossCause.SPOT: "Its spot capacity was reclaimed.",
    LossCause.PREEMPTED: "The cluster preempted its pods, or drained their node.",
    LossCause.DEVICE: "Its node reports a failed device.",
    LossCause.INFRASTRUCTURE: "The cluster stopped it and does not report why, or its pods vanished.",
    LossCause.BAD_NODE: "It failed early on a node that the gateway then found to make jobs fail.",
    LossCause.CLUSTER_LOST: "An administrator attested that its cluster is destroyed or that it is dead.",
    LossCause.MAINTENANCE: "Maintenance or a drain stopped it, or moved it away.",
}


@dataclass(frozen=True, slots=True)
class Loss:
    """The work of a run from `lost_from` to its end is lost."""

    cause: str
    lost_from: datetime


@dataclass(frozen=True, slots=True)
class CreditPolicy:
    """Whose lost time is not charged from a month on. `number` is its row; the later row of two for a month applies."""

    number: int
    effective_from: date
    causes: frozenset[str]


def policy_on(policies: Iterable[CreditPolicy], day: date) -> CreditPolicy | None:
    """The policy that applies to a day of use; None: all is charged."""
    begun = [one for one in policies if one.effective_from <= day]
    return max(begun, key=lambda one: (one.effective_from, one.number), default=None)


def lost_parts(segments: Iterable[RatedSegment], losses: Mapping[UUID, Loss]) -> Iterator[tuple[Loss, RatedSegment]]:
    """The parts of the segments that are lost, each with its loss. Their `cost` is not that of the part."""
    for segment in segments:
        loss = losses.get(segment.run_id) if segment.run_id else None
        if loss is not None and loss.lost_from < segment.until:
            yield loss, replace(segment, start=max(segment.start, loss.lost_from))


def credits_due(
    key: DayKey,
    segments: Sequence[RatedSegment],
    books: Books,
    losses: Mapping[UUID, Loss],
    policies: Collection[CreditPolicy],
) -> tuple[Entry, ...]:
    """The credits that a tenant's day should have: one for each cause, by the corrected prices, without ordinals."""
    policy = policy_on(policies, key.day)
    if policy is None or not policy.causes:
        return ()
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for loss, part in lost_parts(segments, losses):
        if loss.cause in policy.causes:
            costs, _ = corrected_cost(part, books)
            sums[loss.cause].update(costs)
    entries = (_credit(key, cause, amounts, policy) for cause, amounts in sorted(sums.items()))
    return tuple(entry for entry in entries if entry.lines)


def missing_credits(due: Sequence[Entry], posted: Sequence[Entry], reversed_keys: Collection[str]) -> tuple[Entry, ...]:
    """What to post so that exactly the due credits stand: reversals first. None if they do.

    `posted` are all credits of the day; `reversed_keys` the keys of those that were reversed.
    """
    standing = [entry for entry in posted if entry.key not in reversed_keys]
    return missing_entries(due, standing, Counter(name_of(entry) for entry in posted))


def _credit(key: DayKey, cause: str, amounts: Mapping[str, int], policy: CreditPolicy) -> Entry:
    lines = tuple(
        line
        for currency, amount in sorted(amounts.items())
        if amount
        for line in (
            Line(f"tenant_expense:{key.tenant_id}", currency, money(-amount)),
            Line("infrastructure", currency, money(amount)),
        )
    )
    reason = f"work lost, {cause}: policy {policy.number}"
    return Entry(f"{CREDIT}/{key.name}/{cause}", CREDIT, key.organisation_id, key.day, lines, key, reason=reason)

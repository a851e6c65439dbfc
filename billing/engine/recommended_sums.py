"""What is recommended from sums: jobs without use, what commitments left unused, and cost without a required label."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

from .recommendations import LEAST, WINDOW_DAYS, Finding, Kind, money, ratio

UNUSED_FROM = Fraction(1, 10)
"""The unused part of a commitment."""
LEAST_DAYS = 7
"""Split days of a commitment."""
UNLABELLED_FROM = Fraction(1, 20)
"""The part of a tenant's cost whose jobs lack a required label."""
LATE_FAILURES = 3
"""From this failure on, the cause could have been known."""
MOST_JOBS = 20


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job that cost money without use, the amount, and the measured part of its GPU-hours (1: it depends on no measurement)."""

    job_id: UUID
    amount: Decimal
    hours: Decimal
    measured: Decimal


def of_jobs(kind: Kind, tenant_id: UUID, name: str, currency: str, found: Sequence[FoundJob]) -> Finding | None:
    """Idle jobs, or jobs that failed late, of one name, the oldest first. `low` of failures leaves out those that were needed to see the
    cause: the first two.
    """
    high = sum((one.amount for one in found), Decimal(0))
    counted = found[LATE_FAILURES - 1 :] if kind is Kind.LATE_FAILURES else found
    hours = sum((one.hours for one in found), Decimal(0))
    if high < LEAST or not hours:
        return None
    measured = sum((Fraction(one.measured) for one in found), Fraction(0)) / Fraction(hours)
    evidence = {
        "name": name,
        "jobs": len(found),
        "last_job": str(found[-1].job_id),
        "gpu_hours": f"{hours:f}",
        "some": [{"id": str(one.job_id), "amount": f"{one.amount:f}"} for one in found[-MOST_JOBS:]],
    }
    low = sum((one.amount for one in counted), Decimal(0))
    return Finding(kind, tenant_id, name, currency, low, high, ratio(min(measured, Fraction(1))), evidence)


@dataclass(frozen=True, slots=True)
class CommittedDay:
    """A split day of a commitment: its quantity and the unused part, in its own unit, and what the unused part cost."""

    quantity: Fraction
    unused_quantity: Fraction
    unused: Fraction


def unused_commitment(
    organisation_id: UUID, commitment_id: UUID, name: str, currency: str, days: Sequence[CommittedDay]
) -> Finding | None:
    """A commitment of which a tenth or more was not used. `low` is what was unused on every single day: as much less would have been
    enough even on the busiest one.
    """
    quantity = sum((one.quantity for one in days), Fraction(0))
    unused = sum((one.unused_quantity for one in days), Fraction(0))
    high = sum((one.unused for one in days), Fraction(0))
    if len(days) < LEAST_DAYS or not quantity or unused < UNUSED_FROM * quantity or high < LEAST:
        return None
    low = min(one.unused for one in days) * len(days)
    evidence = {
        "commitment": name, "days": len(days), "unused_share": f"{ratio(unused / quantity):f}",
        "least_unused_of_a_day": f"{money(min(one.unused for one in days)):f}",
    }  # fmt: skip
    sure = Fraction(min(len(days), WINDOW_DAYS), WINDOW_DAYS)
    subject = str(commitment_id)
    return Finding(
        Kind.UNUSED_COMMITMENT, organisation_id, subject, currency, money(low), money(high), ratio(sure), evidence
    )


@dataclass(frozen=True, slots=True)
class Labelled:
    """What the jobs of a tenant cost in a currency, and what those of them cost that lack a label which its organisation requires."""

    tenant_id: UUID
    key: str
    currency: str
    cost: Fraction
    missing: Fraction
    jobs: int
    last_job: UUID | None = None


def missing_label(one: Labelled) -> Finding | None:
    """A label that a twentieth or more of a tenant's cost lacks. The amount is what cannot be attributed; nothing is saved by labels."""
    if one.missing < LEAST or one.missing < UNLABELLED_FROM * one.cost:
        return None
    evidence = {
        "key": one.key, "jobs": one.jobs, "share": f"{ratio(one.missing / one.cost):f}", "cost": f"{money(one.cost):f}",
        "last_job": None if one.last_job is None else str(one.last_job),
    }  # fmt: skip
    amount = money(one.missing)
    return Finding(Kind.MISSING_LABEL, one.tenant_id, one.key, one.currency, amount, amount, Decimal(1), evidence)

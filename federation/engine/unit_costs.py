"""What jobs cost each: the sums of jobs that ended, joined into rows whose displayed values add up."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

from billing.engine.shares import shown_parts

PLACES = 6
MILLISECONDS_AN_HOUR = 3_600_000
SUCCEEDED, FAILED, CANCELLED = OUTCOMES = ("succeeded", "failed", "cancelled")
"""The states in which jobs end."""
USUAL_CURRENCY = "USD"
"""The currency of a report without any price."""
LABELS_ONLY = frozenset({"user"})
"""Keys that another key of the row already identifies."""
ZERO = Fraction(0)

Keys: TypeAlias = Mapping[str, str | None]
"""The keys of a row. None: jobs without that label."""


@dataclass(frozen=True, slots=True)
class Part:
    """The jobs of the same keys that ended in one state, and what they used in one currency (empty: without a price).

    GPU time is in milliseconds of physical GPUs. `inside` is the part of the cost that the report of usage of the same tenant
    and days has. `unsettled`: how many of the jobs are not metered to their end.
    """

    keys: Keys
    state: str
    currency: str
    jobs: int
    gpu: Fraction
    unpriced: Fraction
    cost: Fraction
    inside: Fraction
    unsettled: int = 0


@dataclass(frozen=True, slots=True)
class UnitCostRow:
    """One line. Hours are of physical GPUs. Hours and costs have six decimals and add up to the totals of their currency; what is
    for each job is rounded to six decimals.

    A value for each successful job is all of the row divided by the jobs that succeeded. It is None if none did.
    `unsuccessful_share` is the part of the cost of jobs that failed or were cancelled, None if nothing was paid.
    """

    keys: Keys
    currency: str
    jobs: int
    succeeded: int
    failed: int
    cancelled: int
    cost: Decimal
    unsuccessful_cost: Decimal
    gpu_hours: Decimal
    unsuccessful_gpu_hours: Decimal
    unpriced_gpu_hours: Decimal
    cost_per_job: Decimal | None
    cost_per_successful_job: Decimal | None
    gpu_hours_per_job: Decimal | None
    gpu_hours_per_successful_job: Decimal | None
    unsuccessful_share: Decimal | None


@dataclass(frozen=True, slots=True)
class Bridge:
    """From the cost of the jobs that ended in a range to the cost in the report of usage of the same range, in one currency:
    `cost` = `outside` + `inside`, and `usage_cost` = `inside` + `others`.

    `outside` is what the jobs cost on other days, or under another path. `others` is the cost in the range of jobs
    that ended on other days or have not ended.
    """

    currency: str
    cost: Decimal
    outside: Decimal
    inside: Decimal
    others: Decimal
    usage_cost: Decimal


@dataclass(slots=True)
class _Sums:
    keys: Keys
    currency: str
    jobs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    cost: Fraction = ZERO
    unsuccessful_cost: Fraction = ZERO
    gpu: Fraction = ZERO
    unsuccessful_gpu: Fraction = ZERO
    unpriced: Fraction = ZERO

    def add(self, part: Part) -> None:
        self.jobs[part.state] += part.jobs
        self.cost += part.cost
        self.gpu += part.gpu
        self.unpriced += part.unpriced
        if part.state != SUCCEEDED:
            self.unsuccessful_cost += part.cost
            self.unsuccessful_gpu += part.gpu


SHOWN: Mapping[str, tuple[Callable[[_Sums], Fraction], int]] = {
    "cost": (lambda one: one.cost, 1),
    "unsuccessful_cost": (lambda one: one.unsuccessful_cost, 1),
    "gpu_hours": (lambda one: one.gpu, MILLISECONDS_AN_HOUR),
    "unsuccessful_gpu_hours": (lambda one: one.unsuccessful_gpu, MILLISECONDS_AN_HOUR),
    "unpriced_gpu_hours": (lambda one: one.unpriced, MILLISECONDS_AN_HOUR),
}
"""Exact sums that are shown with six decimals, and what they are divided by."""


def unit_cost_rows(parts: Iterable[Part]) -> tuple[tuple[UnitCostRow, ...], tuple[UnitCostRow, ...]]:
    """The rows by their keys, and the totals of each currency; without any part, one total of nothing."""
    merged: dict[tuple[str | None, ...], _Sums] = {}
    for part in _in_currencies(list(parts)):
        merged.setdefault((part.currency, *_key_of(part.keys)), _Sums(part.keys, part.currency)).add(part)
    ordered = sorted(merged.values(), key=lambda one: (*(value or "" for value in one.keys.values()), one.currency))
    shown: dict[int, UnitCostRow] = {}
    totals = []
    for currency in sorted({one.currency for one in ordered}) or [USUAL_CURRENCY]:
        numbers = [number for number, one in enumerate(ordered) if one.currency == currency]
        own, whole = _shown(currency, [ordered[number] for number in numbers])
        shown.update(zip(numbers, own, strict=True))
        totals.append(whole)
    return tuple(shown[number] for number in range(len(ordered))), tuple(totals)


def bridges(parts: Iterable[Part], usage: Mapping[str, Decimal]) -> tuple[Bridge, ...]:
    """What leads from these parts to the cost of usage by currency. All that is shown adds up exactly."""
    spent: dict[str, list[Fraction]] = defaultdict(lambda: [ZERO, ZERO])
    for part in parts:
        if part.currency:
            spent[part.currency][0] += part.cost - part.inside
            spent[part.currency][1] += part.inside
    found = []
    for currency in sorted(spent.keys() | {one for one, cost in usage.items() if cost}):
        (outside, inside), cost = shown_parts(spent[currency], PLACES)
        charged = usage.get(currency, Decimal("0.000000"))
        found.append(Bridge(currency, cost, outside, inside, charged - inside, charged))
    return tuple(found)


def _key_of(keys: Keys) -> tuple[str | None, ...]:
    return tuple(value for name, value in keys.items() if name not in LABELS_ONLY)


def _in_currencies(parts: Sequence[Part]) -> list[Part]:
    """The parts, each with a currency. What has no price joins a part of its keys, else the report's first currency."""
    of_keys: dict[tuple[str | None, ...], str] = {}
    for part in parts:
        key = _key_of(part.keys)
        if part.currency and part.currency < of_keys.get(key, "~"):
            of_keys[key] = part.currency
    usual = min(of_keys.values(), default=USUAL_CURRENCY)
    return [one if one.currency else replace(one, currency=of_keys.get(_key_of(one.keys), usual)) for one in parts]


def _shown(currency: str, found: Sequence[_Sums]) -> tuple[list[UnitCostRow], UnitCostRow]:
    shown = {name: shown_parts([of(one) for one in found], PLACES, per=per) for name, (of, per) in SHOWN.items()}
    rows = [_row(one, {name: parts[number] for name, (parts, _) in shown.items()}) for number, one in enumerate(found)]
    whole = _Sums({}, currency)
    for one in found:
        for state, jobs in one.jobs.items():
            whole.jobs[state] += jobs
        whole.cost += one.cost
        whole.unsuccessful_cost += one.unsuccessful_cost
        whole.gpu += one.gpu
    return rows, _row(whole, {name: total for name, (_, total) in shown.items()})


def _row(sums: _Sums, shown: Mapping[str, Decimal]) -> UnitCostRow:
    jobs, succeeded = sum(sums.jobs.values()), sums.jobs[SUCCEEDED]
    hours = sums.gpu / MILLISECONDS_AN_HOUR
    return UnitCostRow(
        keys=sums.keys,
        currency=sums.currency,
        jobs=jobs,
        succeeded=succeeded,
        failed=sums.jobs[FAILED],
        cancelled=sums.jobs[CANCELLED],
        cost_per_job=_ratio(sums.cost, jobs),
        cost_per_successful_job=_ratio(sums.cost, succeeded),
        gpu_hours_per_job=_ratio(hours, jobs),
        gpu_hours_per_successful_job=_ratio(hours, succeeded),
        unsuccessful_share=_ratio(sums.unsuccessful_cost, sums.cost),
        **shown,
    )


def _ratio(part: Fraction, whole: Fraction | int) -> Decimal | None:
    """Rounded half-even from exact values, not from displayed ones."""
    return shown_parts([part / whole], PLACES)[1] if whole else None

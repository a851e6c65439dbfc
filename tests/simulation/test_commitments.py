"""The judge of commitments counts each hour again, and objects to any other split, and to nothing else."""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

START = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
QUANTITY = Decimal(7_200_000_000)
QUARTER = QUANTITY / 4


def split(
    hour=0, *, name="early", quantity: Decimal | None = QUANTITY, used_quantity=QUARTER, amortised="1.5", used="0.375"
):
    """An hour of two GPUs for two hours, for three dollars."""
    said = (quantity, used_quantity, Decimal(amortised), Decimal(used))
    return (name, ["east"], "h100", "on_demand", 2, START, START + 2 * HOUR, Decimal(3), START + hour * HOUR, *said)


def unused(hour=1, **more):
    return split(hour, used_quantity=Decimal(0), used="0", **more)


@dataclass(frozen=True)
class Case:
    """`borne` is what tenants bear, `gpu_minutes` what one used of the first hour."""

    hours: list[Any] = field(default_factory=lambda: [split(), unused()])
    borne: str = "0.375"
    gpu_minutes: int = 30
    is_credited: bool = False
    says: str = ""


CASES = {
    "as it was used": Case(),
    "not split": Case([split(), unused(quantity=None)], says="is not split"),
    "too much of the hour": Case([split(used_quantity=QUARTER + 1000), unused()], says="counts 1800001000"),
    "too little of the hour": Case(gpu_minutes=31, says="counts 1800000000"),
    "lost work that is credited": Case(gpu_minutes=31, is_credited=True),
    "other work that is not there": Case(gpu_minutes=29, is_credited=True, says="counts 1800000000"),
    "for another amount": Case([split(used="0.376"), unused()], borne="0.376", says="cost 0.376 of 1.5"),
    "another part of the whole": Case([split(), unused(amortised="1.500000000001")], says="should cost 1.5"),
    "another number of units": Case([split(), unused(quantity=QUANTITY - 1)], says="has 7199999999"),
    "tenants bear something else": Case(borne="0.374", says="tenants bear 0.374"),
    "a second one takes what is left": Case([split(), unused(0, name="late")]),
    "two for one use": Case(
        [split(), split(name="late")], borne="0.75", says="of late counts 1800000000, and lacks -1800000000"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_hour_costs_its_part_and_tenants_bear_what_they_used(case):
    # Django must be set up before the gateway is imported, so this is not at the top.
    from devtools.simulation.accounts import committing as module  # noqa: PLC0415

    rows = {
        module.SPLIT: case.hours,
        module.USED: [("east", "h100", "on_demand", 1, START, START + timedelta(minutes=case.gpu_minutes))],
        module.BORNE: [("used commitment", Decimal(case.borne)), ("covered by commitment", Decimal(-9))],
        module.CREDITED: [()] if case.is_credited else [],
    }
    given: Any = SimpleNamespace(
        are_books_kept=True,
        faults=SimpleNamespace(rates={module.KIND: 1.0}, happened=defaultdict(int)),
        scheduler=SimpleNamespace(now_us=0),
        watch=SimpleNamespace(rows=lambda statement, *_: rows[statement]),
    )
    said = module.promise_16_commitments_cost_what_was_paid_and_used(given)
    assert [bool(case.says)] == [case.says in " ".join(said) and bool(said)], said
    given.are_books_kept = False
    assert module.promise_16_commitments_cost_what_was_paid_and_used(given) == []

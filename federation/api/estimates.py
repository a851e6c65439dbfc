"""Expected costs of runs as the API shows them: the total and its parts."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from rest_framework import serializers

from billing.api.shapes import MoneyShape
from clusters.engine.quantities import bytes_text
from federation.models import Attempt
from placement.answers.estimates import Estimate, estimate_in
from placement.values.datasets import Move

MONEY_STEP = Decimal("0.000001")


class CostPartsShape(serializers.Serializer[Any]):
    """The parts of an expected cost; null means unknown."""

    run_cost = MoneyShape(allow_null=True, help_text="For the time that it is expected to run there.")
    interruption_cost = MoneyShape(allow_null=True, help_text="For the work that interruptions are expected to lose.")
    egress_cost = MoneyShape(allow_null=True, help_text="For moving its data there, once.")


class MoveShape(serializers.Serializer[Any]):
    """A dataset that must be moved there, and the location from which this is cheapest."""

    dataset = serializers.CharField()
    from_region = serializers.CharField(help_text="Empty if unknown.")
    size = serializers.CharField(allow_null=True)
    cost = MoneyShape(allow_null=True, help_text="Null if no egress price is known.")


class EstimateShape(serializers.Serializer[Any]):
    """The expected duration and cost of an attempt when it was placed."""

    seconds = serializers.IntegerField(allow_null=True)
    cost = MoneyShape(allow_null=True)
    cost_parts = CostPartsShape()
    egress = MoveShape(many=True)


def estimate_json(attempt: Attempt) -> dict[str, Any] | None:
    """The expected cost of an attempt; None for attempts from before estimates were stored."""
    if not attempt.estimate:
        return None
    estimate, moves = estimate_in(attempt.estimate)
    return {
        "seconds": estimate.seconds,
        "cost": known_money(estimate.total, attempt.currency),
        "cost_parts": parts_json(estimate, attempt.currency),
        "egress": moves_json(moves, attempt.currency),
    }


def parts_json(estimate: Estimate, currency: str) -> dict[str, Any]:
    """Each part of an estimate."""
    return {
        "run_cost": known_money(estimate.run, currency),
        "interruption_cost": known_money(estimate.interruptions, currency),
        "egress_cost": known_money(estimate.egress, currency),
    }


def moves_json(moves: Iterable[Move], currency: str) -> list[dict[str, Any]]:
    """Which dataset is moved from where."""
    return [
        {
            "dataset": move.data,
            "from_region": move.from_region,
            "size": None if move.size_bytes is None else bytes_text(move.size_bytes),
            "cost": known_money(move.cost, currency),
        }
        for move in moves
    ]


def known_money(amount: Decimal | None, currency: str) -> dict[str, str] | None:
    """The amount, None while it is unknown."""
    return None if amount is None else money_json(amount, currency)


def money_json(amount: Decimal, currency: str) -> dict[str, str]:
    """An amount of money, to the millionth."""
    return {"amount": format(amount.quantize(MONEY_STEP), "f"), "currency": currency}

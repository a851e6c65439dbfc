"""The budgets that a cycle keeps to."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from billing.engine.budgets import Terms
from billing.queries.budget_rates import Pair, rates_now
from billing.queries.budgets import stopping_states
from placement.fleet.budgets import USUAL_SECONDS
from placement.values.budgets import BudgetState, BudgetWindow
from placement.values.model import FleetCluster, JobRequest


def load_budgets(
    now: datetime, queue: Sequence[JobRequest], fleet: Sequence[FleetCluster], seconds: int = 0
) -> tuple[BudgetState, ...]:
    """The budgets that stop admission, in each period from now to the last deadline of the queue, or of a run of
    `seconds`; with today's rates of exchange of the fleet's prices.
    """
    longest = max((request.deadline_seconds or USUAL_SECONDS for request in queue), default=0)
    until = now + timedelta(seconds=max(longest, seconds))
    windows: dict[tuple[UUID, str, Terms], list[BudgetWindow]] = defaultdict(list)
    for one in stopping_states(now, until):
        windows[one.budget_id, one.tenant_path, one.terms].append(
            BudgetWindow(*one.span, limit=one.limit, spent=one.spent, held=one.held)
        )
    priced = {
        flavor.currency
        for cluster in fleet
        for flavor in cluster.flavors.values()
        if flavor.unit_price is not None or flavor.guest_cpu_price is not None or flavor.price_changes
    }
    rates = _rates_today([(path, terms) for _, path, terms in windows], priced, now)
    return tuple(
        BudgetState(
            id_, path, terms.measure, terms.currency, terms.period, tuple(found), rates.get((path, terms.currency), ())
        )
        for (id_, path, terms), found in windows.items()
    )


def _rates_today(
    budgets: Iterable[tuple[str, Terms]], priced: Collection[str], now: datetime
) -> dict[tuple[str, str], tuple[tuple[str, Decimal], ...]]:
    """By path and currency of a budget of money, what other currencies of prices are worth in it. No query if there are none."""
    today = now.astimezone(UTC).date()
    wanted = {
        (path, terms.currency): [Pair(path.partition("/")[0], base, terms.currency, today) for base in priced]
        for path, terms in budgets
        if terms.measure == "money" and set(priced) - {terms.currency}
    }
    known = rates_now({pair for pairs in wanted.values() for pair in pairs if pair.base != pair.quote})
    return {
        key: tuple(sorted((pair.base, known[pair]) for pair in pairs if pair in known)) for key, pairs in wanted.items()
    }

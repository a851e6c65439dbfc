"""The only writers of holds against budgets: taken when an attempt is placed, adjusted while it runs, ended with it."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

import msgspec
from django.db import connection, transaction
from django.db.models import Sum
from django.db.models.functions import Now

from billing import locks
from billing.engine.budgets import (
    BudgetRefusal,
    BudgetRequest,
    Commitment,
    in_currency,
    missing_rate_message,
    periods_between,
    refusal_message,
    worst_case,
)
from billing.models import Budget, BudgetHold, BudgetMovement, BudgetPeriod
from billing.queries.budget_rates import Pair, pair_of, rates_now
from billing.queries.budgets import commitment_of, granted_now, standing_budgets, terms_of
from foundation.clock import database_now
from foundation.transactions import retried
from quotas.engine.borrowing import path_prefixes
from tenancy.locks import keep_tenants_in_place

from .budget_rates import kept_rates

ZERO = Decimal(0)
BATCH = 500
A_SECOND = timedelta(seconds=1)
SMALL = Decimal("0.05")
"""A hold is adjusted down only by more than this part of it, to keep the journal short."""


class _Take(NamedTuple):
    """One journal line."""

    run_id: UUID
    period_id: int
    kind: str
    held: Decimal


class Takers:
    """Requests that were decided in order under locks; `write` takes the holds of those that start after all."""

    def __init__(self, requests: Sequence[BudgetRequest]) -> None:
        self.refusals: dict[UUID, BudgetRefusal] = {}
        """Why some may not start."""
        self._takes: dict[UUID, list[_Take]] = {}
        paths = {prefix for request in requests for prefix in path_prefixes(request.tenant_path)}
        keep_tenants_in_place(paths)
        budgets = list(standing_budgets().filter(tenant__path__any_of=sorted(paths))) if _are_any() else []
        # Before periods are locked, as those who meter do.
        self._rates = _Rates.at_takes(requests, budgets)
        periods = _periods_of(budgets, [request.commitment for request in requests]) if budgets else []
        left = _left_in(periods)
        for request in requests:
            self._decide(request, periods, left)

    def _decide(self, request: BudgetRequest, periods: Sequence[BudgetPeriod], left: dict[int, Decimal]) -> None:
        takes, own = [], request.commitment
        if request.holder_id in self._rates.missing:
            self.refusals[request.holder_id] = self._rates.missing[request.holder_id]
            return
        prefixes = set(path_prefixes(request.tenant_path))
        for period in periods:
            budget, span = period.budget, (period.starts_at, period.ends_at)
            if budget.tenant.path not in prefixes or own.starts_at >= span[1] or own.ends_at < span[0]:
                continue
            terms = terms_of(budget)
            pair = pair_of(budget.tenant.path, terms, own, own.starts_at)
            needed = worst_case(terms, self._rates.counted(own, pair), span)
            if budget.stops_admission and needed and needed > left[period.id]:
                figures = needed, period.amount, period.spent, period.held
                message = refusal_message(budget.tenant.path, terms, span, figures)
                self.refusals[request.holder_id] = BudgetRefusal(budget.id, message)
                return
            takes.append(_Take(request.holder_id, period.id, BudgetMovement.Kind.TAKE, needed))
        for take in takes:
            left[take.period_id] -= take.held
        self._takes[request.holder_id] = takes

    def write(self, started: Sequence[BudgetRequest]) -> None:
        """Writes holds and takes in one statement. At its end, the database checks that each hold is counted."""
        if not started:
            return
        takes = [take for request in started for take in self._takes[request.holder_id]]
        with connection.cursor() as cursor:
            cursor.execute(WRITE, [_json_text(map(_hold, started)), _json_text(take._asdict() for take in takes)])


class _Rates:
    """What holds in other currencies are worth at budgets. `missing`: why stopping budgets cannot count some holders at all."""

    def __init__(self, pairs: Collection[Pair], missing: Mapping[UUID, BudgetRefusal] | None = None) -> None:
        self._kept = kept_rates(pairs)
        self.missing = missing or {}

    @classmethod
    def at_takes(cls, requests: Sequence[BudgetRequest], budgets: Sequence[Budget]) -> "_Rates":
        """Of holds that begin now. Keeps the rates of the day, which count for these holds until they end; but none for a request that
        is refused because one is missing, so that the day's rate can still come.
        """
        currencies = {one.commitment.currency for one in requests} | {budget.currency for budget in budgets}
        if len(currencies - {""}) <= 1:
            return cls(())
        needed = {request.holder_id: _pairs_of(request, budgets) for request in requests}
        counting = rates_now({pair for pairs in needed.values() for pair, _ in pairs})
        missing = {}
        for holder_id, pairs in needed.items():
            stops = next((one for one in pairs if one[1].stops_admission and one[0] not in counting), None)
            if stops is not None:
                pair, budget = stops
                message = missing_rate_message(budget.tenant.path, pair.base, terms_of(budget))
                missing[holder_id] = BudgetRefusal(budget.id, message)
        lawful = [pairs for holder_id, pairs in needed.items() if holder_id not in missing]
        return cls({pair for pairs in lawful for pair, _ in pairs}, missing)

    def counted(self, commitment: Commitment, pair: Pair | None) -> Commitment:
        """The commitment in the currency of a budget that needs this pair."""
        return commitment if pair is None else in_currency(commitment, pair.quote, self._kept[pair])


def _pairs_of(request: BudgetRequest, budgets: Sequence[Budget]) -> list[tuple[Pair, Budget]]:
    """The rates that the request needs at budgets on its path with a period that it touches, and the budget that needs each."""
    prefixes, own = set(path_prefixes(request.tenant_path)), request.commitment
    found = []
    for budget in budgets:
        terms = terms_of(budget)
        pair = pair_of(budget.tenant.path, terms, own, own.starts_at) if budget.tenant.path in prefixes else None
        if pair is not None and any(periods_between(terms, own.starts_at, own.ends_at)):
            found.append((pair, budget))
    return found


def _are_any() -> bool:
    """Whether there is any budget. In SQL, because each batch of placements runs it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM billing_budget WHERE removed_at IS NULL)")
        return bool(cursor.fetchone()[0])


WRITE = """
WITH held AS (
    INSERT INTO billing_budgethold (holder_id, tenant_id, money_an_hour, currency, gpus, starts_at, seconds, state)
    SELECT holder_id, tenant_id, money_an_hour, currency, gpus, starts_at, seconds, 'pending'
      FROM json_populate_recordset(NULL::billing_budgethold, %s::json))
INSERT INTO billing_budgetmovement (run_id, period_id, kind, held, spent)
SELECT run_id, period_id, kind, held, 0 FROM json_populate_recordset(NULL::billing_budgetmovement, %s::json)
"""


def _hold(request: BudgetRequest) -> dict[str, Any]:
    return {"holder_id": request.holder_id, "tenant_id": request.tenant_id, **request.commitment._asdict()}


def _json_text(rows: Iterable[Mapping[str, Any]]) -> str:
    return msgspec.json.encode(list(rows)).decode()


def _periods_of(budgets: Sequence[Budget], commitments: Collection[Commitment]) -> list[BudgetPeriod]:
    """The periods of the budgets that some of the commitments touch, made if need be, locked, root first."""
    spans = {(one.starts_at, one.ends_at) for one in commitments}
    wanted = {
        (budget.id, span[0]): BudgetPeriod(
            budget=budget, starts_at=span[0], ends_at=span[1], amount=budget.amount, cap=budget.amount
        )
        for budget in budgets
        for begins, ends in spans
        for span in periods_between(terms_of(budget), begins, ends)
    }
    known = {
        (row.budget_id, row.starts_at): row.id
        for row in BudgetPeriod.objects.filter(budget_id__any_of=[budget.id for budget in budgets])
    }
    missing = [wanted[key] for key in sorted(wanted.keys() - known.keys())]
    if missing:
        BudgetPeriod.objects.bulk_create(missing, ignore_conflicts=True)
        rows = BudgetPeriod.objects.filter(budget_id__any_of=[budget.id for budget in budgets])
        known = {(row.budget_id, row.starts_at): row.id for row in rows}
    return locks.lock_budget_periods([known[key] for key in wanted])


def _left_in(periods: Sequence[BudgetPeriod]) -> dict[int, Decimal]:
    granted = granted_now([period.id for period in periods])
    return {period.id: period.amount + granted.get(period.id, ZERO) - period.spent - period.held for period in periods}


def end_budget_holds(endings: Mapping[UUID, Literal["posted", "voided"]]) -> int:
    """The number of holds ended by this call: what they still hold is returned. A hold that has ended does not change;
    one that spent something is posted in any case.
    """
    with transaction.atomic():
        pending = locks.lock_budget_holds(endings.keys())
        lines = BudgetMovement.objects.filter(run_id__any_of=pending, spent__gt=0).order_by()
        spent = set(lines.values_list("run_id", flat=True).distinct())
        for state, kind in ((BudgetHold.State.POSTED, "post"), (BudgetHold.State.VOIDED, "void")):
            ended = [one for one in pending if (BudgetHold.State.POSTED if one in spent else endings[one]) == state]
            if ended:
                with connection.cursor() as cursor:
                    cursor.execute(GIVE_BACK, [kind, ended])
                BudgetHold.objects.filter(holder_id__any_of=ended).update(state=state, ended_at=Now())
    return len(pending)


GIVE_BACK = """
INSERT INTO billing_budgetmovement (run_id, period_id, kind, held, spent)
SELECT run_id, period_id, %s, -sum(held), 0 FROM billing_budgetmovement WHERE run_id = ANY(%s)
 GROUP BY run_id, period_id HAVING sum(held) > 0 ORDER BY run_id, period_id
"""


def adjust_budget_holds() -> int:
    """The number of journal lines written, so that each running hold is the worst case of the rest of its run.

    A run that began later than it was placed ends later, perhaps in another period. What was cheaper than its worst
    case returns the difference.
    """
    if not Budget.objects.filter(removed_at__isnull=True).exists():
        return 0
    pending = BudgetHold.objects.filter(state=BudgetHold.State.PENDING).order_by("holder_id")
    ids = list(pending.values_list("holder_id", flat=True))
    return sum(_adjust(ids[first : first + BATCH]) for first in range(0, len(ids), BATCH))


METERED = (
    "SELECT run_id, min(metered_from), max(metered_until) FROM billing_meter WHERE run_id = ANY(%s) GROUP BY run_id"
)


@retried
def _adjust(holder_ids: Sequence[UUID]) -> int:
    with transaction.atomic():
        locks.read_price_book()
        now = database_now()
        holds = list(
            BudgetHold.objects.select_related("tenant").filter(holder_id__any_of=locks.lock_budget_holds(holder_ids))
        )
        rest = {hold.holder_id: one for hold, one in _rest_of(holds, now)}
        budgets: dict[str, list[Budget]] = defaultdict(list)
        for budget in standing_budgets():
            budgets[budget.tenant.path].append(budget)
        held = _held_by(holder_ids)
        due = [
            (hold, budget, pair_of(path, terms_of(budget), rest[hold.holder_id], hold.starts_at))
            for hold in holds
            for path in path_prefixes(hold.tenant.path)
            for budget in budgets[path]
        ]
        rates = _Rates({pair for *_, pair in due if pair is not None})
        lines = []
        for hold, budget, pair in due:
            left = rates.counted(rest[hold.holder_id], pair)
            lines += _lines_of(hold.holder_id, left, budget, held[hold.holder_id])
        BudgetMovement.objects.bulk_create(lines)
    return len(lines)


Held: TypeAlias = dict[tuple[UUID, datetime], tuple[int | None, Decimal]]
"""By budget and start of the period: the period's id, and what a hold holds there."""


def _held_by(holder_ids: Sequence[UUID]) -> dict[UUID, Held]:
    found: dict[UUID, Held] = defaultdict(dict)
    lines = BudgetMovement.objects.filter(run_id__any_of=list(holder_ids)).order_by()
    rows = lines.values_list("run_id", "period__budget_id", "period__starts_at", "period_id").annotate(Sum("held"))
    for run_id, budget_id, starts_at, period_id, amount in rows:
        found[run_id][budget_id, starts_at] = period_id, amount
    return found


def _rest_of(holds: Sequence[BudgetHold], now: datetime) -> list[tuple[BudgetHold, Commitment]]:
    """What each run may still use: from the end of what is metered to its deadline, which counts from its start."""
    with connection.cursor() as cursor:
        cursor.execute(METERED, [[hold.holder_id for hold in holds]])
        metered = {run_id: (begun, until) for run_id, begun, until in cursor.fetchall()}
    found = []
    for hold in holds:
        begun, until = metered.get(hold.holder_id, (max(now, hold.starts_at), max(now, hold.starts_at)))
        whole = commitment_of(hold)._replace(starts_at=begun)
        seconds = max(0, -((until - whole.ends_at) // A_SECOND))
        found.append((hold, whole._replace(starts_at=until, seconds=seconds)))
    return found


def _lines_of(holder_id: UUID, rest: Commitment, budget: Budget, held: Held) -> list[BudgetMovement]:
    lines, terms = [], terms_of(budget)
    for span in periods_between(terms, rest.starts_at, rest.ends_at):
        period_id, now_held = held.get((budget.id, span[0]), (None, ZERO))
        due = worst_case(terms, rest, span)
        if due > now_held or now_held - due > SMALL * now_held:
            known = period_id or _period_id(budget, span)
            lines.append(
                BudgetMovement(run_id=holder_id, period_id=known, kind="adjust", held=due - now_held, spent=ZERO)
            )
    return lines


def _period_id(budget: Budget, span: tuple[datetime, datetime]) -> int:
    return BudgetPeriod.objects.get_or_create(
        budget=budget, starts_at=span[0], defaults={"ends_at": span[1], "amount": budget.amount, "cap": budget.amount}
    )[0].id

"""What must hold of money when accountants have worked: the bill is what ran at the agreed prices, what is shared adds up, and
what people decided stands.
"""

from collections import defaultdict
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from .promises import judging

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

MILLISECONDS_AN_HOUR = 3_600_000
MILLISECOND = timedelta(milliseconds=1)
ROUNDING = Decimal("1e-6")
"""More than the twelfth decimals of a world's segments add up to."""


class _Segment(NamedTuple):
    organisation: str
    rate: int
    units: int
    start: datetime
    until: datetime
    price: Decimal | None

    run_id: UUID
    month: date


class _Correction(NamedTuple):
    rate: int
    start: datetime
    until: datetime
    price: Decimal


@judging
def promise_16_the_bill_is_what_ran_at_the_agreed_prices(world: "World") -> list[str]:
    """What tenants are charged for usage is, to the last cent, the metered time at the prices in force then, or at those that
    were agreed later for it. Counted here from segments, prices and corrections alone.
    """
    if not world.are_books_kept:
        return []
    corrections = [_Correction(*row) for row in world.watch.rows(CORRECTIONS)]
    due: dict[str, Decimal] = defaultdict(Decimal)
    for segment in map(_Segment._make, world.watch.rows(SEGMENTS)):
        due[segment.organisation] += _cost(segment, corrections)
    charged = dict(world.watch.rows(CHARGED))
    return [
        f"{path} is charged {charged.get(path, 0)} for what costs {amount}"
        for path, amount in sorted(due.items())
        if abs(charged.get(path, 0) - amount) > ROUNDING
    ]


def _cost(segment: _Segment, corrections: list[_Correction]) -> Decimal:
    """The pieces of a segment between the bounds of corrections, each at the last price that was agreed for it."""
    own = [one for one in corrections if one.rate == segment.rate]
    bounds = {segment.start, segment.until, *(at for one in own for at in (one.start, one.until))}
    cost = Decimal(0)
    for start, until in pairwise(sorted(at for at in bounds if segment.start <= at <= segment.until)):
        agreed = [one.price for one in own if one.start <= start and until <= one.until]
        price = (agreed[-1] if agreed else segment.price) or Decimal(0)
        cost += price * segment.units * ((until - start) // MILLISECOND) / MILLISECONDS_AN_HOUR
    return cost


SEGMENTS = """
SELECT split_part(meter.tenant_path, '/', 1), rate.id, meter.gpu_units, lower(segment.period), upper(segment.period),
       price.unit_price, meter.run_id, date_trunc('month', lower(segment.period) AT TIME ZONE 'UTC')::date
  FROM billing_usagesegment AS segment JOIN billing_meter AS meter ON meter.id = segment.meter_id
  JOIN billing_rate AS rate ON (rate.cluster_id, rate.flavor, rate.capacity_type)
                             = (meter.cluster_id, meter.flavor, meter.capacity_type)
  LEFT JOIN billing_price AS price ON price.id = segment.price_id ORDER BY segment.id
"""
CORRECTIONS = """
SELECT rate_id, lower(span), upper(span), unit_price FROM billing_pricecorrection ORDER BY id
"""
CHARGED = """
SELECT organisation.path, sum(line.amount)
  FROM billing_ledgerentry AS entry JOIN billing_ledgerline AS line ON line.entry_id = entry.id
  JOIN billing_ledgeraccount AS account ON account.id = line.account_id AND account.kind = 'tenant_expense'
  JOIN tenancy_tenant AS organisation ON organisation.id = entry.organisation_id
  LEFT JOIN billing_ledgerentry AS undone ON undone.id = entry.reverses_id
 WHERE entry.tenant_id IS NOT NULL AND coalesce(undone.kind, entry.kind) NOT IN ('idle', 'platform', 'adjustment', 'credit', 'commitment') GROUP BY 1
"""


class _Ended(NamedTuple):
    attempt: UUID
    state: str
    reason: str
    own_class: str
    moved_for: str
    began: datetime
    ended: datetime
    on_their_own: bool
    written_at: datetime | None
    interval: int | None
    is_on_a_bad_node: bool


@judging
def promise_16_lost_work_is_charged_as_the_policies_say(world: "World") -> list[str]:
    """What is credited is, to the last cent, the lost time of runs that infrastructure ended, for the causes that the policy of its
    month names. Counted here from attempts, pods and checkpoints, and from segments, prices and corrections.
    """
    if not world.are_books_kept:
        return []
    ended = [_Ended(*row) for row in world.watch.rows(ENDED)]
    lost = {one.attempt: (cause, _lost_from(one)) for one in ended if (cause := _blamed(one))}
    policies = world.watch.rows(CREDIT_POLICIES)
    corrections = [_Correction(*row) for row in world.watch.rows(CORRECTIONS)]
    due: dict[str, Decimal] = defaultdict(Decimal)
    for segment in map(_Segment._make, world.watch.rows(SEGMENTS)):
        cause, since = lost.get(segment.run_id, ("", segment.until))
        causes = next(
            (named for path, month, named in policies if path == segment.organisation and month <= segment.month), ()
        )
        if cause in causes and since < segment.until:
            due[segment.organisation] += _cost(segment._replace(start=max(since, segment.start)), corrections)
    credited = dict(world.watch.rows(CREDITED))
    return [
        f"{path} is credited {credited.get(path, 0)} for lost work of {due.get(path, 0)}"
        for path in sorted({*due, *credited})
        if abs(credited.get(path, Decimal(0)) - due.get(path, Decimal(0))) > ROUNDING
    ]


def _blamed(one: _Ended) -> str:
    """What of infrastructure ended it; empty if nothing did."""
    if one.state == "lost" or (one.state in INTERRUPTED and one.reason == "pods_gone"):
        return "" if one.on_their_own else "cluster_lost" if one.state == "lost" else "infrastructure"
    if one.state not in INTERRUPTED:
        return ""
    if one.reason == "started_in_part":
        return "infrastructure"
    if one.reason == "migrated":
        return MOVED_FOR.get(one.moved_for, "")
    if one.reason == "infrastructure" and one.own_class == "node":
        return "evicted"
    early = "bad_node" if one.is_on_a_bad_node and one.own_class in {"program", "unknown"} else ""
    return BY_REASON.get(one.reason) or BY_CLASS.get(one.own_class) or early


def _lost_from(one: _Ended) -> datetime:
    if one.written_at is not None:
        at = max(one.began, min(one.ended, one.written_at))
    elif one.interval is None:
        at = one.began
    else:
        at = one.ended - timedelta(seconds=round((one.ended - one.began).total_seconds()) % one.interval)
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


INTERRUPTED = ("failed", "preempted")
MOVED_FOR = {"spot": "spot", "consolidation": "maintenance", "drain": "maintenance", "maintenance": "maintenance"}
BY_REASON = {
    "maintenance_began": "maintenance", "node_lost": "node_lost", "spot": "spot", "preempted": "preempted",
    "infrastructure": "infrastructure",
}  # fmt: skip
BY_CLASS = {"device": "device", "node": "node_lost", "infrastructure": "infrastructure"}
ENDED = """
SELECT attempt.id, attempt.state, attempt.end_reason, coalesce(diagnosis.own_class, ''), coalesce(moved.cause, ''),
       min(pod.started_at), max(greatest(pod.started_at, coalesce(pod.finished_at, pod.observed_at))),
       bool_and(pod.exit_code IS NOT NULL AND pod.disruption = ''),
       (SELECT saved.written_at FROM federation_checkpoint AS saved WHERE saved.attempt_id = attempt.id
         ORDER BY saved.sequence DESC LIMIT 1),
       (job.spec->>'checkpoint_seconds')::integer,
       attempt.finished_at - attempt.started_at < interval '2 minutes' AND EXISTS (
           SELECT 1 FROM clusters_avoidednode AS bad WHERE bad.cluster_id = attempt.cluster_id AND bad.node = diagnosis.node
              AND attempt.finished_at BETWEEN bad.began_at - interval '1 day' AND coalesce(bad.ended_at, bad.until_at))
  FROM federation_attempt AS attempt JOIN federation_job AS job ON job.id = attempt.job_id
  JOIN federation_podrun AS pod ON pod.attempt_id = attempt.id AND pod.started_at IS NOT NULL
  LEFT JOIN federation_diagnosis AS diagnosis ON diagnosis.attempt_id = attempt.id AND diagnosis.judged_at IS NOT NULL
  LEFT JOIN federation_move AS moved ON moved.attempt_id = attempt.id
 WHERE attempt.finished_at IS NOT NULL
 GROUP BY attempt.id, job.id, diagnosis.attempt_id, diagnosis.own_class, diagnosis.node, moved.cause ORDER BY attempt.id
"""
CREDIT_POLICIES = """
SELECT organisation.path, policy.effective_from, policy.causes FROM billing_creditpolicy AS policy
  JOIN tenancy_tenant AS organisation ON organisation.id = policy.organisation_id
 ORDER BY policy.effective_from DESC, policy.id DESC
"""
CREDITED = """
SELECT organisation.path, -sum(line.amount)
  FROM billing_ledgerentry AS entry JOIN billing_ledgerline AS line ON line.entry_id = entry.id
  JOIN billing_ledgeraccount AS account ON account.id = line.account_id AND account.kind = 'tenant_expense'
  JOIN tenancy_tenant AS organisation ON organisation.id = entry.organisation_id
  LEFT JOIN billing_ledgerentry AS undone ON undone.id = entry.reverses_id
 WHERE coalesce(undone.kind, entry.kind) = 'credit' GROUP BY 1
"""


@judging
def promise_16_every_day_is_posted(world: "World") -> list[str]:
    """When accountants have posted the rest, no day is left, also not one that could not be stored for a while."""
    if not world.are_books_kept:
        return []
    return [f"{day} of {path} on {flavor} is not posted" for path, day, flavor in world.watch.rows(NOT_POSTED)]


NOT_POSTED = "SELECT tenant_path, day, flavor FROM billing_tenantday WHERE is_due ORDER BY 1, 2, 3"


@judging
def promise_16_what_is_shared_adds_up(world: "World") -> list[str]:
    """Of a closed month, tenants bear what its pools share out, and all or nothing of the platform's cost, by the ledger's own
    lines; and people have decided on all negative idle.
    """
    borne = {row[:3]: row[3] for row in world.watch.rows(BORNE)}
    shared = {(month, "idle", currency): amount for month, currency, amount in world.watch.rows(SHARED)}
    platform = {(month, "platform", currency): cost for month, currency, cost in world.watch.rows(PLATFORM)}
    found = [
        f"{kind} of {month} is {due} {currency} to be borne, and tenants bear {borne.get((month, kind, currency), 0)}"
        for (month, kind, currency), due in sorted((shared | platform).items())
        if borne.get((month, kind, currency), 0) not in {due, 0 if kind == "platform" else due}
    ]
    found += [
        f"tenants bear {kind} of {month} that is not there"
        for month, kind, _ in borne.keys() - shared.keys() - platform.keys()
    ]
    return found + [
        f"negative idle of {day} in a closed month is {state}" for day, state in world.watch.rows(UNDECIDED)
    ]


BORNE = """
SELECT period.month, entry.kind, line.currency, sum(line.amount)
  FROM billing_ledgerentry AS entry JOIN billing_ledgerline AS line ON line.entry_id = entry.id
  JOIN billing_ledgeraccount AS account ON account.id = line.account_id AND account.kind = 'tenant_expense'
  JOIN billing_ledgerperiod AS period ON period.id = entry.period_id AND period.state = 'closed'
 WHERE entry.kind IN ('idle', 'platform')
   AND NOT EXISTS (SELECT FROM billing_ledgerentry AS back WHERE back.reverses_id = entry.id)
 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""
SHARED = """
SELECT period.month, pool.currency, sum(pool.shared) FROM billing_poolday AS pool
  JOIN billing_ledgerperiod AS period ON period.id = pool.period_id AND period.revision = pool.revision
 WHERE period.state = 'closed' GROUP BY 1, 2 ORDER BY 1, 2
"""
PLATFORM = """
SELECT period.month, policy.platform_currency, policy.platform_cost
  FROM billing_ledgerperiod AS period CROSS JOIN LATERAL (
       SELECT one.* FROM billing_sharingpolicy AS one
        WHERE one.organisation_id = period.organisation_id AND one.effective_from <= period.month
        ORDER BY one.effective_from DESC, one.id DESC LIMIT 1) AS policy
 WHERE period.state = 'closed' AND policy.platform_cost > 0 ORDER BY 1
"""
UNDECIDED = """
SELECT idle.day, idle.state FROM billing_negativeidle AS idle
  JOIN billing_ledgerperiod AS period ON period.id = idle.period_id
 WHERE period.state = 'closed' AND idle.state = 'open' ORDER BY 1
"""


@judging
def promise_16_a_closed_month_shows_what_its_pools_cost(world: "World") -> list[str]:
    """What no job paid of a pool stands in the ledger once, as the last close recorded it: also if the month closed before with
    other numbers.
    """
    booked = {row[:3]: row[3] for row in world.watch.rows(BOOKED)}
    recorded = {row[:3]: row[3] for row in world.watch.rows(RECORDED)}
    return [
        f"of the pools of {cluster} in {month}, {recorded.get((month, cluster, currency), 0)} {currency} were not charged,"
        f" and the ledger has {booked.get((month, cluster, currency), 0)}"
        for month, cluster, currency in sorted(booked.keys() | recorded.keys(), key=str)
        if booked.get((month, cluster, currency), 0) != recorded.get((month, cluster, currency), 0)
    ]


BOOKED = """
SELECT period.month, entry.cluster_id, line.currency, -sum(line.amount)
  FROM billing_ledgerentry AS entry JOIN billing_ledgerline AS line ON line.entry_id = entry.id
  JOIN billing_ledgeraccount AS account ON account.id = line.account_id AND account.kind = 'cluster_pool'
  JOIN billing_ledgerperiod AS period ON period.id = entry.period_id AND period.state = 'closed'
  LEFT JOIN billing_ledgerentry AS undone ON undone.id = entry.reverses_id
 WHERE coalesce(undone.kind, entry.kind) = 'idle' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""
RECORDED = """
SELECT period.month, pool.cluster_id, pool.currency, sum(pool.idle + pool.overhead) FROM billing_poolday AS pool
  JOIN billing_ledgerperiod AS period ON period.id = pool.period_id AND period.revision = pool.revision
 WHERE period.state = 'closed' GROUP BY 1, 2, 3 HAVING sum(pool.idle + pool.overhead) <> 0 ORDER BY 1, 2, 3
"""


@judging
def what_people_decided_of_unusual_days_stands(world: "World") -> list[str]:
    """The first acknowledged decision about a day is the last word, whatever the routine finds later."""
    states = {id_: (state, who) for id_, state, who in world.watch.rows(ANOMALIES)}
    found = [
        f"an unusual day was {outcome}, and is {states.get(id_)}"
        for id_, outcome in world.decided
        if states.get(id_, ("", ""))[0] != outcome
    ]
    times: dict[object, int] = defaultdict(int)
    for id_, _ in world.decided:
        times[id_] += 1
    return found + [f"an unusual day was decided {count} times" for count in times.values() if count > 1]


ANOMALIES = "SELECT id, state, decided_by_name FROM billing_spendanomaly ORDER BY id"


@judging
def forecasts_alert_of_thresholds_that_are_expected(world: "World") -> list[str]:
    """An alert is of a threshold of its budget that was not reached then, and is expected to be, on a day of the period."""
    return [
        f"an alert of {percent} % of {amount} expects {expected}"
        for percent, amount, expected in world.watch.rows(ALERTS)
    ]


ALERTS = """
SELECT alert.percent, alert.amount, alert.expected
  FROM billing_budgetforecastalert AS alert JOIN billing_budgetperiod AS period ON period.id = alert.period_id
 WHERE alert.expected < alert.amount * alert.percent / 100 OR alert.expected < alert.spent
    OR alert.reached_on NOT BETWEEN alert.at::date AND period.ends_at::date
 ORDER BY alert.id
"""


@judging
def two_people_raise_a_budget(world: "World") -> list[str]:
    """An override counts only if another person than the one who asked has approved it before it expired."""
    return [f"the override {id_} of {who} counts" for id_, who in world.watch.rows(OVERRIDES)]


OVERRIDES = """
SELECT id, requester_name FROM billing_budgetoverride
 WHERE approved_at IS NOT NULL AND (approved_by = requested_by OR approved_at >= expires_at) ORDER BY id
"""

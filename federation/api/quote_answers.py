"""Quotes, capacities and the quota that jobs wait for as the API writes them."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from federation.queries.lent_quota import quota_text, reclaimers_of
from federation.queries.quota_in_the_way import QuotaInTheWay
from federation.queries.quotes import JobQuote, RoomSeen
from foundation.plain_json import instant
from placement.answers.quota_rooms import FlavorRoom
from placement.answers.quotes import Offer
from placement.fleet.emissions import emissions_text
from placement.ranking.interruptions import risk_text
from placement.ranking.pulls import pull_text
from placement.values.decisions import InterruptionRisk
from placement.values.emissions import Emitted
from quotas.engine.amounts import format_amount
from quotas.engine.origin import Origin

from .answers import runtime_json, why_not_json
from .estimates import known_money, money_json, moves_json, parts_json


def quote_json(asked: JobQuote) -> dict[str, Any]:
    """What the next round would do with a job: its offers, best first, and why each other cluster has none."""
    quote, wait = asked.quote, asked.quote.wait
    return {
        "tenant": asked.tenant_path,
        "as_of": instant(asked.snapshot.now),
        "jobs_ahead": quote.ahead,
        "runtime": None if quote.runtime is None else runtime_json(quote.runtime),
        "reason": None if wait is None else {"code": wait.code, "message": wait.message},
        "offers": [_offer_json(offer, asked) for offer in quote.offers],
        "later": [_offer_json(offer, asked) for offer in quote.later],
        "why_not": [why_not_json(reason) for reason in quote.why_not],
    }


def _offer_json(offer: Offer, asked: JobQuote) -> dict[str, Any]:
    placed = offer.placement
    first = placed.pod_sets[0]
    return {
        "cluster": placed.cluster,
        "region": asked.regions[placed.cluster],
        "flavor": first.flavor,
        "domain": "/".join(first.domain),
        "pod_sets": [
            {
                "name": one.name,
                "count": sum(one.nodes.values()),
                "flavor": one.flavor,
                "domain": "/".join(one.domain),
                "level": one.level,
            }
            for one in placed.pod_sets
        ],
        "price_per_hour": known_money(placed.hourly_cost, placed.currency),
        "interruptions": None if placed.risk is None else _risk_json(placed.risk, placed.currency),
        "emissions": None if placed.emitted is None else _emissions_json(placed.emitted),
        "expected_start_at": instant(offer.expected_start),
        "pull": None if placed.pull is None else {**placed.pull._asdict(), "message": pull_text(placed.pull)},
        "estimated_seconds": offer.estimate.seconds,
        "estimated_cost": known_money(offer.estimated_cost, placed.currency),
        "cost_parts": parts_json(offer.estimate, placed.currency),
        "egress": moves_json(placed.egress.moves if placed.egress else (), placed.currency),
        "quota": None if offer.quota is None else _quota_json(offer, offer.quota, asked.seen),
        "protection": {
            "shielded_until": instant(asked.shield.until(offer.expected_start)),
            "by_priority": asked.shield.by_priority,
        },
    }


def _quota_json(offer: Offer, origins: Sequence[Origin], seen: frozenset[str]) -> dict[str, Any]:
    takers = reclaimers_of((name for one in origins for name in one.reclaimers), seen)
    return {
        "message": quota_text(offer, seen),
        "own": all(one.is_own for one in origins),
        "limits": [_origin_json(one) for one in origins],
        "reclaimed_by": list(takers.named),
        "others_reclaim": takers.others,
    }


def _origin_json(origin: Origin) -> dict[str, Any]:
    return {
        "tenant": origin.tenant_path,
        "resource": origin.resource,
        "clusters": list(origin.clusters),
        "amount": format_amount(origin.resource, origin.amount),
        "own": format_amount(origin.resource, origin.own),
        "borrowed": [
            {"tenant": one.tenant_path, "from": one.lender, "amount": format_amount(origin.resource, one.amount)}
            for one in origin.borrowed
        ],
    }


def _emissions_json(emitted: Emitted) -> dict[str, Any]:
    grams = emitted.grams
    return {"grams_per_hour": None if grams is None else f"{grams:f}", "message": emissions_text(grams)}


def _risk_json(risk: InterruptionRisk, currency: str) -> dict[str, Any]:
    return {
        "per_hour": f"{risk.per_hour:.6f}",
        "exposed_seconds": risk.exposed_seconds,
        "lost_share": f"{risk.lost_share:.6f}",
        "price_per_hour_of_work": None if risk.hourly_cost is None else money_json(risk.hourly_cost, currency),
        "message": risk_text(risk),
    }


def capacity_json(asked: RoomSeen) -> dict[str, Any]:
    """The number of further jobs of a shape that fit, in total and by cluster, and what quota leaves there."""
    found = asked.capacity
    return {
        "count": found.total,
        "at_least": found.is_at_least,
        "within_quota": found.within_quota,
        "clusters": [
            {
                "cluster": room.cluster,
                "count": room.count,
                "at_least": room.is_at_least,
                "within_quota": room.within_quota,
                "why_none": None if room.why_none is None else why_not_json(room.why_none),
                "flavors": [_flavor_json(one, asked.seen) for one in room.flavors],
            }
            for room in found.clusters
        ],
    }


def _flavor_json(room: FlavorRoom, seen: frozenset[str]) -> dict[str, Any]:
    takers, shown = reclaimers_of(room.reclaimers, seen), partial(_shown, room.resource)
    return {
        "flavor": room.flavor,
        "resource": room.resource,
        "own": shown(room.own),
        "guaranteed": shown(room.guaranteed),
        "borrowable": shown(room.borrowable),
        "may_be_taken_back": shown(room.owed),
        "reclaimed_by": list(takers.named),
        "others_reclaim": takers.others,
    }


def in_the_way_json(found: QuotaInTheWay) -> dict[str, Any]:
    """A limit that a job waits for, and who holds it."""
    limit, shown = found.limit, partial(_shown, found.limit.resource)
    return {
        "tenant": limit.tenant_path,
        "resource": limit.resource,
        "clusters": list(limit.clusters),
        "nominal": shown(limit.nominal),
        "held": shown(limit.held),
        "lacking": shown(found.lacking),
        "reserved": shown(found.reserved),
        "reserved_from": instant(found.reserved_from),
        "holders": [
            {
                "tenant": one.tenant_path or None,
                "own": one.is_own,
                "direct": one.is_direct,
                "held": shown(one.held),
                "kept": shown(one.kept),
                "borrowed": shown(one.borrowed),
                "nominal": shown(one.nominal),
            }
            for one in found.holders
        ],
    }


def _shown(resource: str, amount: int | None) -> str | None:
    return None if amount is None else format_amount(resource, amount)

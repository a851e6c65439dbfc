"""What the submit form shows while a user fills it in: where the job would run now, at which cost, and why not
elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from federation.queries.estimates import EstimateLine, estimate_line
from federation.queries.feasibility import NeverFits
from federation.queries.lent_quota import quota_text
from federation.queries.quotes import JobQuote, quote_of_draft
from federation.queries.why_not import WhyNot, WhyNotGroup, grouped, headline
from foundation.problems import Problem
from placement.answers.quotes import Offer
from placement.fleet.emissions import emissions_text
from placement.ranking.interruptions import risk_text
from placement.ranking.pulls import pull_text
from placement.values.reason_codes import meaning_of
from tenancy.queries import Actor

MOST_SHOWN = 8
MOST_FAULTS_SHOWN = 50
FITS_NOWHERE = "No cluster can run this job, even when empty."


@dataclass(frozen=True, slots=True)
class OfferLine:
    cluster: str
    region: str
    flavor: str
    domain: str
    size: str
    """How many of an elastic job's pods; empty for a job of one size."""
    hourly_cost: Decimal | None
    work_cost: Decimal | None
    """Of an hour of work that is not lost, where some is expected to be."""
    risk: str
    emissions: str
    pull: str
    estimate: EstimateLine
    currency: str
    quota: str
    """Whose quota it takes, and who may take it back."""
    shielded_until: datetime | None
    """If it may be stopped for another job after that."""


@dataclass(frozen=True, slots=True)
class Offers:
    """Screen readers read `summary` whenever it changes; `faults` are (field, fault) if there is no quote."""

    summary: str
    offers: tuple[OfferLine, ...] = ()
    more: int = 0
    why_not: tuple[WhyNotGroup, ...] = ()
    why_not_count: int = 0
    faults: Sequence[tuple[str, str]] = ()


def offers_for(actor: Actor, body: object) -> Offers:
    """The offers for a body that may lack a name and images, or why there are none."""
    try:
        return _shown(quote_of_draft(actor, _without_blanks(body)))
    except Problem as problem:
        return refused(problem)


def refused(problem: Problem) -> Offers:
    """The refusal instead of offers; for a job that fits nowhere, the reasons, each shown once."""
    if isinstance(problem, NeverFits):
        reasons = [WhyNot(one.field.removeprefix("clusters."), one.code, one.detail, True) for one in problem.errors]
        return Offers(FITS_NOWHERE, why_not=grouped(reasons), why_not_count=len(reasons))
    faults = tuple((error.field, error.detail) for error in problem.errors)[:MOST_FAULTS_SHOWN]
    return Offers(
        "No offers yet: the form is not complete." if _is_about_form(problem) else problem.detail, faults=faults
    )


def _is_about_form(problem: Problem) -> bool:
    return problem.code == "validation_failed"


def _shown(asked: JobQuote) -> Offers:
    quote = asked.quote
    lines = tuple(_line(offer, asked) for offer in quote.offers)
    why_not = grouped(WhyNot(one.cluster, one.code, one.message, one.is_for_good) for one in quote.why_not)
    count = len(quote.why_not)
    if quote.wait is not None:
        why = headline(quote.wait.message, why_not, meaning_of(quote.wait.code)).removesuffix(".")
        return Offers(f"It would wait: {why[:1].lower()}{why[1:]}.", why_not=why_not, why_not_count=count)
    clusters = len({line.cluster for line in lines})
    places = "one cluster" if clusters == 1 else f"{clusters} clusters"
    summary = f"It would start now on {lines[0].cluster}; there is room on {places}."
    return Offers(summary, lines[:MOST_SHOWN], max(0, len(lines) - MOST_SHOWN), why_not, count)


def _line(offer: Offer, asked: JobQuote) -> OfferLine:
    placed = offer.placement
    may_be_stopped = asked.shield.by_priority or any(one.reclaimers for one in offer.quota or ())
    return OfferLine(
        cluster=placed.cluster,
        region=asked.regions[placed.cluster],
        flavor=", ".join(dict.fromkeys(one.flavor for one in placed.pod_sets)),
        domain="/".join(filter(None, placed.pod_sets[0].domain)),
        size=offer.size,
        hourly_cost=placed.hourly_cost,
        work_cost=placed.risk.hourly_cost if placed.risk else None,
        risk=risk_text(placed.risk) if placed.risk else "",
        emissions=emissions_text(placed.emitted.grams) if placed.emitted else "",
        pull=pull_text(placed.pull) if placed.pull else "",
        estimate=estimate_line(offer.estimate, placed.egress.moves if placed.egress else (), placed.currency),
        currency=placed.currency,
        quota=quota_text(offer, asked.seen),
        shielded_until=asked.shield.until(offer.expected_start) if may_be_stopped else None,
    )


def _without_blanks(body: object) -> object:
    """The body without an empty name and empty images."""
    if not isinstance(body, dict):
        return body
    pod_sets = body.get("pod_sets")
    if isinstance(pod_sets, list):
        pod_sets = [_filled(item, "image") if isinstance(item, dict) else item for item in pod_sets]
    return {**_filled(body, "name"), "pod_sets": pod_sets} if "pod_sets" in body else body


def _filled(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name or value}

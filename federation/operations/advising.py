"""Finds, once a day, what is recommended to the tenants of each organisation. Nothing of it changes a charge."""

import logging
from datetime import UTC, date

from django.conf import settings
from django.db.models import Q

from billing.engine.recommendations import Finding, cheaper, smaller, spot, together
from billing.engine.recommended_sums import missing_label, of_jobs
from billing.operations.failures import FirstFailure
from billing.operations.recommendations import record_findings
from billing.queries.recommendations import (
    committed_places,
    organisations_with_usage,
    required_keys,
    unused_commitments,
    window_before,
)
from federation.queries.advice import labelled, offers_of, uses_of, wasteful_jobs
from foundation.clock import database_now
from foundation.problems import Invalid
from placement.ranking.interruptions import slowdown_of
from tenancy.models import Tenant

log = logging.getLogger(__name__)


def find_recommendations() -> None:
    """Of every organisation with usage. Errors of one keep no other from being advised; the first one is raised at the end."""
    today = database_now().astimezone(UTC).date()
    failure = FirstFailure()
    for organisation in organisations_with_usage():
        with failure.kept(f"recommendations for the organisation {organisation.id} were not found"):
            record_findings(organisation.id, findings_of(organisation, today), today)
    failure.raise_it()


def findings_of(organisation: Tenant, today: date) -> list[Finding]:
    """What is recommended today, from the last 30 whole days. Jobs on committed capacity get no other place: it is paid for anyway."""
    start, until = window_before(today)
    below = Q(path=organisation.path) | Q(path__startswith=f"{organisation.path}/")
    tenants = list(Tenant.objects.filter(below).values_list("id", flat=True))
    places: list[Finding | None] = []
    offers, committed = offers_of(organisation.path, database_now()), committed_places(organisation.id, today)
    for use in uses_of(tenants, start, until):
        if (use.cluster_id, use.flavor) in committed:
            continue
        places += [
            smaller(use, offers),
            cheaper(use, offers),
            spot(
                use,
                offers,
                lambda rate, seconds: slowdown_of(float(rate), seconds),
                settings.SPOT_INTERRUPTIONS_PER_HOUR,
            ),
        ]
    try:
        wasteful = wasteful_jobs(tenants, start, until)
    except Invalid:
        log.warning("organisation %s has too many jobs to find idle ones", organisation.id)
        wasteful = {}
    found: list[Finding | None] = [*together(one for one in places if one is not None)]
    found += [of_jobs(*key, jobs) for key, jobs in wasteful.items()]
    found += [missing_label(one) for one in labelled(tenants, required_keys(organisation.id, today), start, until)]
    found += unused_commitments(organisation.id, today)
    return [one for one in found if one is not None]

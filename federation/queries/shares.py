"""What turns are decided from: the weights of tenants, what they hold and what they used."""

from django.conf import settings

import quotas.queries
from clusters.queries import past_capacity
from foundation.caches import cached
from placement.values.shares import FairShare, PastCapacity, TenantShare
from quotas.queries import Use
from tenancy.queries import weights

NOTHING = Use({}, {})
PAST_SECONDS = 60
"""How long a process keeps what the fleet had in the past, of which a minute changes little."""


def load_fair_share() -> FairShare | None:
    """The shares now; None if SWITCHYARD_FAIR_SHARE is off."""
    return shares_now() if settings.FAIR_SHARE else None


def shares_now() -> FairShare:
    """Likewise, whether the setting is on or off."""
    uses, weighed = quotas.queries.uses(), weights()
    rows = []
    for path in sorted({*uses, *weighed}):
        held, used = uses.get(path, NOTHING)
        rows.append(TenantShare(path, weighed.get(path, 1.0), held, used))
    strength, cap = float(settings.FAIR_SHARE_STRENGTH), float(settings.FAIR_SHARE_CREDIT_CAP)
    return FairShare(tuple(rows), strength, cap, _past(settings.FAIR_SHARE_HALF_LIFE_SECONDS) if strength else ())


@cached(most=1, seconds=PAST_SECONDS)
def _past(half_life_seconds: int) -> tuple[PastCapacity, ...]:
    """What each cluster had in the past, as past use counts time."""
    return tuple(PastCapacity(one[0], one[1:]) for one in past_capacity(half_life_seconds))

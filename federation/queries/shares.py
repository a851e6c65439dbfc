"""What turns are decided from: the weights of tenants, what they hold and what they used."""

from django.conf import settings

import quotas.queries
from placement.values.shares import FairShare, TenantShare
from quotas.queries import Use
from tenancy.queries import weights

NOTHING = Use({}, {})


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
    return FairShare(tuple(rows), float(settings.FAIR_SHARE_STRENGTH), float(settings.FAIR_SHARE_CREDIT_CAP))

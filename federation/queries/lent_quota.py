"""Whose quota a job would take and who may take it back, in the words of users who see only some tenants."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from placement.answers.quotes import Capacity, Offer, Quote
from quotas.engine.amounts import format_amount
from quotas.engine.origin import Origin
from tenancy.queries import Actor, visible_tenants

ANOTHER = "another tenant"
OWN = "within the tenant's own quota"
UNLIMITED = "no limit counts it"


@dataclass(frozen=True, slots=True)
class Reclaimers:
    """Tenants whose jobs may take quota back: those that the asker may see by name, and whether there are others."""

    named: tuple[str, ...]
    others: bool

    @property
    def text(self) -> str:
        """Their names, as the subject of a sentence; empty without any."""
        names = [*self.named, *[ANOTHER] * self.others]
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}" if names else ""


@dataclass(frozen=True, slots=True)
class Shield:
    """What protects a job from being stopped for another one: `seconds` from its start. `by_priority`: a class exists whose
    waiting jobs replace jobs of its priority.
    """

    seconds: int
    by_priority: bool

    def until(self, start: datetime) -> datetime:
        """When it may be stopped at the earliest, if it starts then."""
        return start + timedelta(seconds=self.seconds)


UNSHIELDED = Shield(0, by_priority=False)
"""Of a job whose class is not known."""


def reclaimers_of(tenants: Iterable[str], seen: frozenset[str]) -> Reclaimers:
    """Who may take back; a tenant that the asker does not see is not named."""
    found = sorted(set(tenants))
    named = tuple(one for one in found if one in seen)
    return Reclaimers(named, len(named) < len(found))


def seen_among(actor: Actor, tenants: Iterable[str]) -> frozenset[str]:
    """The tenants that the actor may see. No query without any."""
    paths = sorted(set(tenants))
    return (
        frozenset(visible_tenants(actor).filter(path__in=paths).values_list("path", flat=True))
        if paths
        else frozenset()
    )


def reclaimers_in(quote: Quote) -> list[str]:
    """All tenants that a quote names as such."""
    return [name for offer in quote.offers for origin in offer.quota or () for name in origin.reclaimers]


def reclaimers_in_capacity(capacity: Capacity) -> list[str]:
    """Likewise, of a capacity."""
    return [name for room in capacity.clusters for flavor in room.flavors for name in flavor.reclaimers]


def quota_text(offer: Offer, seen: frozenset[str]) -> str:
    """Whose quota an offer takes, in a few words; empty if it is not known."""
    if offer.quota is None:
        return ""
    borrowing = [_borrowed_text(one) for one in offer.quota if not one.is_own]
    told = "; ".join(dict.fromkeys(borrowing)) if borrowing else OWN if offer.quota else UNLIMITED
    takers = reclaimers_of((name for one in offer.quota for name in one.reclaimers), seen).text
    return f"{told}; {takers} may take it back" if takers else told


def _borrowed_text(origin: Origin) -> str:
    """What is borrowed, and from where it comes: the highest limit that lends."""
    most = max(origin.borrowed, key=lambda one: one.amount)
    of = format_amount(origin.resource, origin.amount)
    where = f" on {', '.join(origin.clusters)}" if origin.clusters else ""
    amount = format_amount(origin.resource, most.amount)
    return f"{amount} of {of} {origin.resource}{where} borrowed from {most.lender}"

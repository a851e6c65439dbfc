"""Prices of moving data between regions: what may be named, and which of several prices holds."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fnmatch import fnmatchcase

REGION_PATTERN = r"^[A-Za-z0-9*]([A-Za-z0-9*._-]{0,62})\Z"
REGION = "letters, digits and `._-`, at most 63; `*` matches anything"
MOST_EGRESS_PRICE = 1_000_000
"""A GiB."""


@dataclass(frozen=True, slots=True)
class EgressRate:
    """What a GiB costs that leaves a region of one name for one of another, from `since` until `until` (None: open).

    `owner_path` is the organisation whose fleet it is for; regions may hold `*`, which stands for anything.
    """

    owner_path: str
    from_region: str
    to_region: str
    price_per_gib: Decimal
    currency: str
    since: datetime
    until: datetime | None = None


def is_region(text: str) -> bool:
    """Whether a price may name a region so."""
    return re.match(REGION_PATTERN, text) is not None


def rate_between(rates: Iterable[EgressRate], from_region: str, to_region: str, at: datetime) -> EgressRate | None:
    """The price that holds at an instant: of those that match the one that names most; None if none does."""
    holding = [
        rate
        for rate in rates
        if rate.since <= at
        and (rate.until is None or at < rate.until)
        and fnmatchcase(from_region, rate.from_region)
        and fnmatchcase(to_region, rate.to_region)
    ]
    return min(holding, key=_vagueness, default=None)


def _vagueness(rate: EgressRate) -> tuple[int, int, int, str, str]:
    """Less for what names more: regions without a `*` first, then more letters, then more of them where the data is."""
    names = (rate.from_region, rate.to_region)
    stars = sum("*" in name for name in names)
    said, said_from = (-sum(len(name.replace("*", "")) for name in some) for some in (names, names[:1]))
    return stars, said, said_from, *names

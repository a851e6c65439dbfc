"""Prices of moving data between regions: which regions a price may name, and which of several prices applies."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fnmatch import fnmatchcase

REGION_PATTERN = r"^[A-Za-z0-9*]([A-Za-z0-9*._-]{0,62})\Z"
REGION = "letters, digits and `._-`, at most 63; `*` matches anything"
MOST_EGRESS_PRICE = 1_000_000
"""The highest price per GiB."""


@dataclass(frozen=True, slots=True)
class EgressRate:
    """The price per GiB of data that leaves region `from_region` for `to_region`, from `since` until `until` (None:
    open).

    `owner_path` is the organisation whose fleet it applies to. A region may contain `*`, which matches any text.
    """

    owner_path: str
    from_region: str
    to_region: str
    price_per_gib: Decimal
    currency: str
    since: datetime
    until: datetime | None = None


def is_region(text: str) -> bool:
    """Whether a price may name a region this way."""
    return re.match(REGION_PATTERN, text) is not None


def rate_between(rates: Iterable[EgressRate], from_region: str, to_region: str, at: datetime) -> EgressRate | None:
    """The price in force at `at`: the most specific of those that match; None if none matches."""
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
    """Sort key, lower for more specific prices: regions without `*` first, then more letters, then more letters in the
    source region.
    """
    names = (rate.from_region, rate.to_region)
    stars = sum("*" in name for name in names)
    said, said_from = (-sum(len(name.replace("*", "")) for name in some) for some in (names, names[:1]))
    return stars, said, said_from, *names

"""Reads and writes a price book file: prices by cluster, flavor and capacity type, each from a time on.

Every fault has its line and column. Amounts are read as texts, so none passes through a float.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple, get_args

import yaml

from clusters.engine.flavors import CapacityType
from foundation.plain_json import instant
from foundation.plain_yaml import Document, Mark, read_documents
from foundation.reading import Faults, Fields, Refused

from .price_book import BookPrice, Values

VERSION = "switchyard/v1"
FILE_KIND = "PriceBook"
MOST_PRICES = 5000
MOST_REASON = 500
WIDTH = 120
TOP = frozenset(["apiVersion", "kind", "reason", "prices"])
AMOUNTS = ("unit_price", "cpu_price", "memory_price", "interruptions_per_hour")
PRICE = frozenset(["owner", "cluster", "flavor", "capacity_type", "from", "until", "currency", *AMOUNTS])
AMOUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
"""Below 10**9, as the API and the page take prices."""
MOST_INTERRUPTIONS = Decimal(100)
CAPACITY_TYPES = get_args(CapacityType)
CURRENCY = re.compile(r"[A-Z]{3}")
YEARS = range(1970, 3000)
DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class RateName(NamedTuple):
    """What a price is for, by names. `owner` is the path of the cluster's owner; empty if its name is enough."""

    cluster: str
    flavor: str
    capacity_type: str
    owner: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.owner, self.cluster, self.flavor, self.capacity_type) if part)


@dataclass(frozen=True, slots=True)
class WantedPrice:
    """A price as a file has it, with its place there."""

    rate: RateName
    price: BookPrice
    mark: Mark
    field: str
    """Its path, such as `prices[0]`."""


@dataclass(frozen=True, slots=True)
class WantedBook:
    """A file. `reason` is kept with corrections; empty if the file does not give one."""

    prices: tuple[WantedPrice, ...]
    reason: str

    @property
    def by_rate(self) -> dict[RateName, tuple[WantedPrice, ...]]:
        """Its prices by what they are for, each with its prices by their start."""
        found: dict[RateName, tuple[WantedPrice, ...]] = {}
        for one in sorted(self.prices, key=lambda one: (one.rate, one.price.start)):
            found[one.rate] = (*found.get(one.rate, ()), one)
        return found


def read_price_file(text: str) -> WantedBook:
    """The prices of a file. Raises Refused with every fault, each with its line and column in front of its text."""
    documents = read_documents(text, most=1) or [Document(None, {})]
    try:
        return _read(documents[0])
    except Refused as refused:
        raise Refused(documents[0].placed(refused.faults)) from None


def _read(document: Document) -> WantedBook:
    faults = Faults()
    top = Fields(document.value, "", faults, TOP)
    top.choice("apiVersion", [VERSION], "")
    top.choice("kind", [FILE_KIND], "")
    for name in ("apiVersion", "kind"):
        top.text(name)
    reason = top.text("reason", default="", most_bytes=4 * MOST_REASON).strip()
    if len(reason) > MOST_REASON or not reason.isprintable():
        top.fault("reason", "bad_format", f"a text of one line, at most {MOST_REASON} characters")
    prices: dict[str, WantedPrice] = {}
    for index, value in enumerate(top.array("prices", most=MOST_PRICES)):
        where = f"prices[{index}]"
        before = len(faults.found)
        found = _price(Fields(value, where, faults, PRICE), document.mark(where))
        if len(faults.found) == before:
            prices[where] = found
    _refuse_two_at_once(prices, faults)
    faults.refuse_if_any()
    return WantedBook(tuple(prices.values()), reason)


def _price(fields: Fields, mark: Mark) -> WantedPrice:
    rate = RateName(
        _name(fields, "cluster", 63),
        _name(fields, "flavor", 120),
        _capacity_type(fields),
        "" if fields.values.get("owner") is None else _name(fields, "owner", 1100),
    )
    start, until = _time(fields, "from"), _time(fields, "until")
    if start is None and fields.values.get("from") is None:
        fields.fault("from", "required", "when the price begins: a day such as 2026-12-01, or a time in UTC")
    if start is not None and until is not None and until <= start:
        fields.fault("until", "empty_period", "the price ends before it begins")
    unit_price = _amount(fields, "unit_price")
    if unit_price is None and fields.values.get("unit_price") is None:
        fields.fault("unit_price", "required", "this field is required")
    often = _amount(fields, "interruptions_per_hour")
    if often is not None and often > MOST_INTERRUPTIONS:
        fields.fault("interruptions_per_hour", "out_of_range", f"at most {MOST_INTERRUPTIONS}")
    currency = fields.checked("currency", CURRENCY.fullmatch, "three letters such as EUR", most_bytes=3)
    values = Values(
        unit_price or Decimal(0), currency, _amount(fields, "cpu_price"), _amount(fields, "memory_price"), often
    )
    return WantedPrice(rate, BookPrice(start or datetime.min.replace(tzinfo=UTC), until, values), mark, fields.path)


def _capacity_type(fields: Fields) -> str:
    if fields.values.get("capacity_type") is None:
        fields.fault("capacity_type", "required", f"one of: {', '.join(CAPACITY_TYPES)}")
    return fields.choice("capacity_type", CAPACITY_TYPES, "")


def _name(fields: Fields, name: str, most: int) -> str:
    text = fields.text(name, most_bytes=most)
    if not text.isprintable():
        fields.fault(name, "out_of_range", "control characters are not allowed here")
    return text


def _time(fields: Fields, name: str) -> datetime | None:
    """A day, at midnight in UTC, or a time with its offset; in whole milliseconds."""
    value = fields.values.get(name)
    if not (isinstance(value, str) and DAY.fullmatch(value)):
        at = fields.instant(name)
    else:
        try:
            at = datetime.fromisoformat(f"{value}T00:00:00+00:00")
        except ValueError:
            fields.fault(name, "bad_format", "there is no such day")
            return None
    if at is not None and (at.microsecond % 1000 or at.year not in YEARS):
        fields.fault(name, "out_of_range", f"whole milliseconds in a year from {YEARS[0]} to {YEARS[-1]}")
        return None
    return at


def _amount(fields: Fields, name: str) -> Decimal | None:
    """An amount with up to six decimals; None if it is absent or no such amount, which is a fault."""
    if fields.values.get(name) is None:
        return None
    value = fields.values[name]
    text = str(value) if type(value) is int else value
    if not isinstance(text, str) or not AMOUNT.fullmatch(text):
        fields.fault(name, "not_money", "an amount such as 2.50, not negative, below 10^9, with at most six decimals")
        return None
    return Decimal(text)


def _refuse_two_at_once(prices: Mapping[str, WantedPrice], faults: Faults) -> None:
    """A rate has one price at a time: `until` is no later than the next price's `from`."""
    ordered = sorted(prices.items(), key=lambda item: (item[1].rate, item[1].price.start))
    for (_, one), (where, after) in pairwise(ordered):
        if one.rate != after.rate:
            continue
        if one.price.start == after.price.start:
            faults.add(f"{where}.from", "given_twice", f"the price on {one.mark} begins then too")
        elif one.price.end > after.price.start and one.price.until is not None:
            faults.add(f"{where}.from", "two_at_once", f"the price on {one.mark} ends later than this one begins")


def price_file_text(prices: Iterable[tuple[RateName, BookPrice]], *, comments: Iterable[str] = ()) -> str:
    """The file that reads back as these prices."""
    body = {"apiVersion": VERSION, "kind": FILE_KIND, "prices": [_entry(rate, price) for rate, price in prices]}
    text = yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=WIDTH)
    return "".join(f"# {' '.join(comment.split())}\n" for comment in comments) + text


def _entry(rate: RateName, price: BookPrice) -> dict[str, Any]:
    amounts = {name: getattr(price.values, name) for name in AMOUNTS}
    return {
        **({"owner": rate.owner} if rate.owner else {}),
        "cluster": rate.cluster,
        "flavor": rate.flavor,
        "capacity_type": rate.capacity_type,
        "from": instant(price.start),
        **({} if price.until is None else {"until": instant(price.until)}),
        "currency": price.values.currency,
        **{name: plain(amount) for name, amount in amounts.items() if amount is not None},
    }


def plain(amount: Decimal) -> str:
    """A number without trailing zeros or an exponent."""
    return f"{amount.normalize():f}"

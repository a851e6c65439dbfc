"""Reads commitments from a YAML file. Every value is text there, so no number is read as a float.

A file has a list `commitments`; each has a name and what `FIELDS` says. A commitment that the file does not have is left as it
is; one with `withdrawn: true` is taken back from its beginning.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import yaml

from .commitments import count_of_payments

MOST_CHARACTERS = 200_000
MOST_COMMITMENTS = 1_000
MOST_CLUSTERS = 200
MOST_UNITS = 1_000_000
MOST_YEARS = 20
YEARS = range(1970, 3000)
"""In which a term begins. Far enough from the ends of the calendar to count its payments."""
PLAN = "savings_plan"
KINDS = ("reserved_instance", "own_purchase", PLAN)
ALWAYS = ("name", "kind", "clusters", "start", "until", "currency")
REQUIRED = (*ALWAYS, "flavor", "capacity_type", "units")
FIELDS = (*REQUIRED, "upfront", "recurring", "withdrawn")
REQUIRED_OF_PLANS = (*ALWAYS, "hourly", "rates")
FIELDS_OF_PLANS = (*REQUIRED_OF_PLANS, "upfront", "withdrawn")
RATE = ("flavor", "capacity_type", "rate")
MOST_RATES = 200
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")
UNITS = re.compile(r"[1-9][0-9]{0,6}")
HOUR = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:00(:00)?Z")
TEXT = re.compile(r"[!-~][ -~]{0,119}")


@dataclass(frozen=True, slots=True)
class WantedRate:
    """What an hour of a unit of a flavor costs under a savings plan."""

    flavor: str
    capacity_type: str
    rate: Decimal


@dataclass(frozen=True, slots=True)
class Wanted:
    """A commitment as a file has it; `clusters` by name. A savings plan has `hourly` and `rates`, and no flavor or units."""

    name: str
    kind: str
    clusters: tuple[str, ...]
    flavor: str
    capacity_type: str
    units: int
    start: datetime
    until: datetime
    currency: str
    upfront: Decimal = Decimal(0)
    recurring: Decimal = Decimal(0)
    is_withdrawn: bool = False
    hourly: Decimal = Decimal(0)
    rates: tuple[WantedRate, ...] = ()

    @property
    def kinds(self) -> tuple[tuple[str, str], ...]:
        """The flavors and capacity types that it covers."""
        return tuple((one.flavor, one.capacity_type) for one in self.rates) or ((self.flavor, self.capacity_type),)

    @property
    def total(self) -> Decimal:
        """All that is paid over the term."""
        if self.kind == PLAN:
            return self.hourly * ((self.until - self.start) // timedelta(hours=1))
        return self.upfront + self.recurring * count_of_payments(self.start, self.until)


class NotCommitments(ValueError):
    """The file is wrong at `field`; `code` and the text say how."""

    def __init__(self, field: str, code: str, detail: str) -> None:
        super().__init__(detail)
        self.field, self.code = field, code


class _Loader(yaml.BaseLoader):
    """Texts, lists and mappings: no aliases, no key twice."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise NotCommitments("file", "yaml_alias", "anchors and aliases are not accepted: write the value out")
        return super().compose_node(parent, index)

    def construct_scalar(self, node: Any) -> str:
        # Escapes such as "\uD800" and "\0" in quotes give characters that neither JSON nor the database can hold.
        text = str(super().construct_scalar(node))
        if not text.isprintable():
            raise NotCommitments("file", "bad_yaml", "a text has a character that cannot be printed")
        return text

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - of the library
        keys = [key.value for key, _ in node.value]
        if len({str(key) for key in keys}) < len(keys):
            raise NotCommitments("file", "given_twice", "a key appears twice in one mapping")
        return super().construct_mapping(node, deep=deep)


def read_commitments(text: str) -> tuple[Wanted, ...]:
    """The commitments of a file, in its order. Raises NotCommitments."""
    if len(text) > MOST_CHARACTERS:
        raise NotCommitments("file", "too_long", f"a file has at most {MOST_CHARACTERS} characters")
    try:
        body = _Loader(text).get_single_data()
    except NotCommitments:
        raise
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:  # an escape may name no character
        raise NotCommitments("file", "bad_yaml", "this is not YAML") from error
    rows = body.get("commitments") if isinstance(body, Mapping) and set(body) == {"commitments"} else None
    if not isinstance(rows, list) or len(rows) > MOST_COMMITMENTS:
        raise NotCommitments("commitments", "required", f"give a list with this name, of at most {MOST_COMMITMENTS}")
    found = tuple(_wanted(row, f"commitments[{number}]") for number, row in enumerate(rows))
    names = [one.name for one in found]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise NotCommitments(f"commitments[{number}].name", "given_twice", f"{name} appears twice")
    return found


def _wanted(row: Any, where: str) -> Wanted:
    if not isinstance(row, Mapping):
        raise NotCommitments(where, "not_an_object", "give a mapping")
    is_plan = row.get("kind") == PLAN
    _refuse_other_fields(row, where, *((REQUIRED_OF_PLANS, FIELDS_OF_PLANS) if is_plan else (REQUIRED, FIELDS)))
    name = _text(row, where, "name", NAME, "lower-case letters, digits and hyphens, up to 63")
    kind = _text(row, where, "kind", re.compile("|".join(KINDS)), f"one of {', '.join(KINDS)}")
    start, until = _hour(row, where, "start"), _hour(row, where, "until")
    if not start < until <= _years_after(start):
        raise NotCommitments(f"{where}.until", "empty_period", "an hour after `start`, at most 20 years")
    clusters = _clusters(row["clusters"], where)
    flavor, capacity_type, units = ("", "", 0) if is_plan else _capacity(row, where)
    hourly, upfront, recurring = (_amount(row, where, key) for key in ("hourly", "upfront", "recurring"))
    found = Wanted(
        name, kind, clusters, flavor, capacity_type, units, start, until,
        _text(row, where, "currency", re.compile("[A-Z]{3}"), "three letters"), upfront, recurring,
        _text(row, where, "withdrawn", re.compile("true|false"), "true or false", "false") == "true",
        hourly, _rates(row["rates"], where) if is_plan else (),
    )  # fmt: skip
    _refuse_what_is_not_paid(found, where)
    return found


def _refuse_other_fields(
    row: Mapping[Any, Any], where: str, required: tuple[str, ...], fields: tuple[str, ...]
) -> None:
    for key in row:
        if key not in fields:
            raise NotCommitments(f"{where}.{key}"[:200], "unknown_field", f"the fields are {', '.join(fields)}")
    for key in required:
        if key not in row:
            raise NotCommitments(f"{where}.{key}", "required", "it is missing")


def _refuse_what_is_not_paid(one: Wanted, where: str) -> None:
    if one.kind != PLAN and not one.upfront + one.recurring:
        raise NotCommitments(f"{where}.upfront", "required", "give what is paid: `upfront`, `recurring` or both")
    if one.kind == PLAN and not one.hourly:
        raise NotCommitments(f"{where}.hourly", "out_of_range", "an amount above 0")
    if one.kind == PLAN and one.upfront > one.total:
        raise NotCommitments(f"{where}.upfront", "out_of_range", f"at most {one.total:f}, what all hours cost")


def _capacity(row: Mapping[str, Any], where: str) -> tuple[str, str, int]:
    units = int(_text(row, where, "units", UNITS, "a whole number above 0"))
    if units > MOST_UNITS:
        raise NotCommitments(f"{where}.units", "out_of_range", f"at most {MOST_UNITS}")
    return *_flavor(row, where), units


def _flavor(row: Mapping[str, Any], where: str) -> tuple[str, str]:
    flavor = _text(row, where, "flavor", TEXT, "the name of a flavor")
    return flavor, _text(row, where, "capacity_type", TEXT, "such as on_demand or reserved")


def _rates(value: Any, where: str) -> tuple[WantedRate, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= MOST_RATES:
        raise NotCommitments(f"{where}.rates", "out_of_range", f"a list of 1 to {MOST_RATES} rates")
    found = []
    for number, row in enumerate(value):
        at = f"{where}.rates[{number}]"
        if not isinstance(row, Mapping):
            raise NotCommitments(at, "not_an_object", "give a mapping")
        _refuse_other_fields(row, at, RATE, RATE)
        found.append(WantedRate(*_flavor(row, at), _amount(row, at, "rate")))
        if not found[-1].rate:
            raise NotCommitments(f"{at}.rate", "out_of_range", "an amount above 0")
    if len({(one.flavor, one.capacity_type) for one in found}) < len(found):
        raise NotCommitments(f"{where}.rates", "given_twice", "a flavor appears twice")
    return tuple(sorted(found, key=lambda one: (one.flavor, one.capacity_type)))


def _text(row: Mapping[str, Any], where: str, key: str, form: re.Pattern[str], told: str, default: str = "") -> str:
    value = row.get(key, default)
    if not isinstance(value, str) or not form.fullmatch(value):
        raise NotCommitments(f"{where}.{key}", "out_of_range", told)
    return value


def _amount(row: Mapping[str, Any], where: str, key: str) -> Decimal:
    return Decimal(_text(row, where, key, AMOUNT, "an amount with up to six decimals, not negative", "0"))


def _hour(row: Mapping[str, Any], where: str, key: str) -> datetime:
    text = _text(row, where, key, HOUR, "a whole hour in UTC, such as 2026-01-01T00:00:00Z")
    try:
        at = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise NotCommitments(f"{where}.{key}", "out_of_range", "there is no such day") from error
    if at.year not in YEARS:
        raise NotCommitments(f"{where}.{key}", "out_of_range", f"a year from {YEARS[0]} to {YEARS[-1]}")
    return at


def _years_after(start: datetime) -> datetime:
    """The end of the longest term, as the database counts it: of a 29th of February it is the 28th where the year has no other."""
    try:
        return start.replace(year=start.year + MOST_YEARS)
    except ValueError:
        return start.replace(year=start.year + MOST_YEARS, day=28)


def _clusters(value: Any, where: str) -> tuple[str, ...]:
    if (
        not isinstance(value, list)
        or not 0 < len(value) <= MOST_CLUSTERS
        or not all(isinstance(one, str) for one in value)
    ):
        raise NotCommitments(f"{where}.clusters", "out_of_range", f"a list of 1 to {MOST_CLUSTERS} names of clusters")
    if len(set(value)) < len(value):
        raise NotCommitments(f"{where}.clusters", "given_twice", "a cluster appears twice")
    return tuple(sorted(value))

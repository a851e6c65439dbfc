"""Reads a tree file: every fault with its field, line and column. Amounts and times are stored in one normal form."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date
from decimal import Decimal, InvalidOperation
from typing import Any

from federation.engine import names
from federation.engine.intake.priority_classes import WantedClass, class_json, read_class
from federation.engine.intake.reading import Faults, Fields, Refused
from federation.engine.intake.spec import DNS_LABEL
from foundation.plain_yaml import Document, Mark, read_documents
from quotas.engine.amounts import KINDS as RESOURCES
from quotas.engine.amounts import BadAmount, format_amount, is_resource, parse_amount
from tenancy.engine.roles import Role

from .items import Key, Kind, Wanted

VERSION = "switchyard/v1"
FILE_KIND = "TenantTree"
MOST_TENANTS = 5000
MOST_ENTRIES = 500
MOST_LEVELS = 16
MOST_LABELS = 64
TENANT_KINDS = ("organisation", "department", "team", "project")
PERIODS = ("month", "quarter", "year", "dates")
USUAL_THRESHOLDS = (50, 80, 100)
LEAST_WEIGHT, MOST_WEIGHT = Decimal("0.01"), Decimal(1000)
MOST_MONEY = Decimal(10) ** 12
MOST_WAITING, MOST_PER_MINUTE, MOST_RECLAIM_SECONDS = 10_000_000, 1_000_000, 30 * 24 * 3600
LENGTHS_OF_TERMS = {"issuer": 200, "tax_name": 40, "cost_centre": 200, "gl_account": 200, "remark": 500}
TOP = frozenset(["apiVersion", "kind", "tenants", "priority_classes"])
OF_TENANT = frozenset(
    [
        "path",
        "kind",
        "labels",
        "weight",
        "limits",
        "user_limits",
        "class_limits",
        "submission_limit",
        "roles",
        "budgets",
        "invoice_terms",
    ]
)
LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
NUMBER = re.compile(r"[0-9]{1,13}(\.[0-9]{1,6})?")
DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
Entry = tuple[str, Mapping[str, Any]]
"""The name of an item among those of its kind, and its value."""


def read_tree(text: str) -> Wanted:
    """The file's items. Raises Refused with every fault, each with its line and column in front of its text."""
    documents = read_documents(text, most=1)
    if not documents:
        documents = [Document(None, {})]
    reader = _Tree(documents[0])
    try:
        return reader.read()
    except Refused as refused:
        raise Refused(documents[0].placed(refused.faults)) from None


class _Tree:
    """Collects the items of one document."""

    def __init__(self, document: Document) -> None:
        self._document, self._faults = document, Faults()
        self._items: dict[Key, Mapping[str, Any]] = {}
        self._marks: dict[Key, Mark] = {}
        self._sections: set[tuple[Kind, str]] = set()

    def read(self) -> Wanted:
        top = Fields(self._document.value, "", self._faults, TOP)
        top.choice("apiVersion", [VERSION], "")
        top.choice("kind", [FILE_KIND], "")
        for name in ("apiVersion", "kind"):
            top.text(name)
        for index, value in enumerate(top.array("tenants", most=MOST_TENANTS)):
            self._tenant(Fields(value, f"tenants[{index}]", self._faults, OF_TENANT))
        for index, value in enumerate(top.array("priority_classes", most=MOST_ENTRIES)):
            self._class(value, f"priority_classes[{index}]")
        self._faults.refuse_if_any()
        return Wanted(self._items, self._marks, frozenset(self._sections))

    def _tenant(self, fields: Fields) -> None:
        path = fields.text("path", most_bytes=1100)
        parts = path.split("/")
        if path and not (len(parts) <= MOST_LEVELS and all(map(names.dns_label, parts))):
            told = f"names in lower-case letters, digits and inner hyphens, joined by slashes; at most {MOST_LEVELS}"
            fields.fault("path", "bad_format", told)
        kind = fields.choice("kind", TENANT_KINDS, "" if "/" in path else TENANT_KINDS[0])
        if not kind:
            fields.fault("kind", "required", "this field is required")
        elif ("/" in path) == (kind == TENANT_KINDS[0]):
            fields.fault("kind", "wrong_kind", "an organisation has no parent; every other tenant has one")
        self._add(Key(Kind.TENANT, path), {"kind": kind}, fields.path, "path", fields)
        self._labels(fields, path)
        self._weight(fields, path)
        for name, kind_, read in LISTS:
            self._list(fields, path, name, kind_, read)
        for name, kind_, read in SINGLE:
            self._single(fields, path, name, kind_, read)

    def _list(self, fields: Fields, path: str, name: str, kind: Kind, read: Callable[[Fields], Entry]) -> None:
        if fields.values.get(name) is None:
            return
        self._sections.add((kind, path))
        for index, value in enumerate(fields.array(name, most=MOST_ENTRIES)):
            where = f"{fields.at(name)}[{index}]"
            own, before = Fields(value, where, self._faults, KNOWN[kind]), len(self._faults.found)
            if not isinstance(value, dict):
                continue
            name_, item = read(own)
            if len(self._faults.found) == before:
                self._add(Key(kind, path, name_), item, where, "", own)

    def _single(self, fields: Fields, path: str, name: str, kind: Kind, read: Callable[[Fields], Entry]) -> None:
        if name not in fields.values:
            return
        if kind is not Kind.INVOICE_TERMS:  # which can be set, and not removed
            self._sections.add((kind, path))
        if fields.values[name] is not None:
            where = fields.at(name)
            own = Fields(fields.values[name], where, self._faults, KNOWN[kind])
            self._add(Key(kind, path), read(own)[1], where, "", own)

    def _labels(self, fields: Fields, path: str) -> None:
        if "labels" not in fields.values:
            return
        self._sections.add((Kind.LABELS, path))
        labels = fields.mapping("labels")
        if len(labels) > MOST_LABELS:
            fields.fault("labels", "too_many", f"at most {MOST_LABELS} labels")
        for key, value in labels.items():
            if not (LABEL_KEY.fullmatch(key) and isinstance(value, str) and LABEL_VALUE.fullmatch(value)):
                told = "a Kubernetes label, and its value as text: write numbers, true and null in quotes"
                fields.fault(f"labels.{ascii(key[:40])[1:-1]}", "invalid_label", told)
        if labels:
            self._add(Key(Kind.LABELS, path), {"labels": labels}, fields.at("labels"), "", fields)

    def _weight(self, fields: Fields, path: str) -> None:
        if fields.values.get("weight") is None:
            return
        self._sections.add((Kind.WEIGHT, path))
        weight = _decimal(fields, "weight")
        if weight is None:
            return
        if not LEAST_WEIGHT <= weight <= MOST_WEIGHT or weight != round(weight, 2):
            told = f"{LEAST_WEIGHT} to {MOST_WEIGHT} with at most two digits after the point"
            fields.fault("weight", "out_of_range", told)
        elif weight != 1:
            self._add(Key(Kind.WEIGHT, path), {"weight": plain(weight)}, fields.at("weight"), "", fields)

    def _class(self, value: object, where: str) -> None:
        try:
            wanted = read_class(value)
        except Refused as refused:
            for fault in refused.faults:
                self._faults.add(f"{where}.{fault.field}" if fault.field else where, fault.code, fault.detail)
            return
        fields = Fields(value, where, self._faults, frozenset(value) if isinstance(value, dict) else frozenset())
        self._add(Key(Kind.PRIORITY_CLASS, "", wanted.name), class_item(wanted), where, "name", fields)

    def _add(self, key: Key, value: Mapping[str, Any], where: str, name: str, fields: Fields) -> None:
        if key in self._items:
            self._faults.add(fields.at(name) if name else where, "given_twice", "the file has this twice")
        self._items[key], self._marks[key] = value, self._document.mark(where)


def class_item(wanted: WantedClass) -> dict[str, Any]:
    """A priority class as a file has it. Null for `is_default`: it is the default if it is now."""
    return {**class_json(wanted, is_default=False), "is_default": wanted.is_default}


def _limit(fields: Fields) -> Entry:
    resource = _resource(fields)
    clusters = list(fields.names("clusters", names.dns_label, "the name of a cluster"))
    value: dict[str, Any] = {
        "resource": resource,
        "clusters": clusters,
        "nominal": _amount(fields, "nominal", resource),
    }
    nothing = format_amount(resource, 0)
    for name, default in (("borrowing_limit", nothing), ("lending_limit", None)):
        if fields.values.get(name) is not None:
            value[name] = _amount(fields, name, resource)
        else:
            value[name] = None if name in fields.values else default
    value["reclaims"] = fields.flag("reclaims", default=False)
    value["reclaim_after"] = fields.whole("reclaim_after", 0, MOST_RECLAIM_SECONDS)
    return limit_name(resource, clusters), value


def _user_limit(fields: Fields) -> Entry:
    resource = _resource(fields)
    return resource, {"resource": resource, "most": _amount(fields, "most", resource)}


def _class_limit(fields: Fields) -> Entry:
    name = fields.checked("priority_class", names.dns_label, DNS_LABEL, most_bytes=names.MAX_LABEL)
    resource = _resource(fields)
    value = {"priority_class": name, "resource": resource, "most": _amount(fields, "most", resource)}
    return class_limit_name(name, resource), value


def _submission_limit(fields: Fields) -> Entry:
    waiting = fields.whole("most_waiting", 0, MOST_WAITING)
    rate = fields.whole("jobs_per_minute", 1, MOST_PER_MINUTE)
    if waiting is None and rate is None:
        fields.fault("jobs_per_minute", "required", "set this, or most_waiting, or both")
    return "", {"most_waiting": waiting, "jobs_per_minute": rate}


def _role(fields: Fields) -> Entry:
    user, group = (_line(fields, name, 254) for name in ("user", "group"))
    if user and "@" not in user:
        fields.fault("user", "bad_format", "the email of a member")
    if bool(user) == bool(group):
        fields.fault("user", "user_or_group", "name a user or a group")
    role = fields.choice("role", [role.value for role in Role], "")
    if not role:
        fields.fault("role", "required", "this field is required")
    end = fields.instant("expires_at")
    until = None if end is None else end.astimezone(UTC).isoformat()
    return role_item(role, user=user.lower(), group=group, expires_at=until)


def _budget(fields: Fields) -> Entry:
    given = [name for name in ("amount", "gpu_hours") if fields.values.get(name) is not None]
    if len(given) != 1:
        code = "given_twice" if given else "required"
        fields.fault("amount", code, "give either amount with currency, or gpu_hours")
        return "", {}
    number = _decimal(fields, given[0], most_bytes=20) or Decimal(0)
    currency = fields.text("currency", default="", most_bytes=3)
    if (given == ["amount"]) != bool(re.fullmatch(r"[A-Z]{3}", currency)):
        fields.fault("currency", "bad_format", "three letters such as EUR beside amount, and none beside gpu_hours")
    period = fields.choice("period", PERIODS, "")
    if not period:
        fields.fault("period", "required", "this field is required")
    days = [_day(fields, name) for name in ("starts_on", "ends_on")]
    if (period == "dates") != all(days) or (period != "dates" and any(days)):
        fields.fault("starts_on", "not_for_this_period", "the first and the last day, with the period dates only")
    notify = fields.array("notify_at", most=10) if "notify_at" in fields.values else [*USUAL_THRESHOLDS]
    if not all(type(one) is int and 1 <= one <= 1000 for one in notify):  # noqa: PLR2004 - as the API of budgets has it
        fields.fault("notify_at", "out_of_range", "percentages from 1 to 1000")
        notify = []
    return budget_item(
        given[0],
        plain(number),
        currency=currency,
        period=period,
        days=(days[0], days[1]),
        notify_at=sorted(set(notify)),
        stops_admission=fields.flag("stops_admission", default=False),
    )


def _invoice_terms(fields: Fields) -> Entry:
    texts = {name: _line(fields, name, most) for name, most in LENGTHS_OF_TERMS.items()}
    rate = None if fields.values.get("tax_rate") is None else _decimal(fields, "tax_rate")
    days = fields.whole("payment_days", 0, 365, 30)
    return "", {**texts, "tax_rate": None if rate is None else plain(rate), "payment_days": days}


LISTS: tuple[tuple[str, Kind, Callable[[Fields], Entry]], ...] = (
    ("limits", Kind.LIMIT, _limit),
    ("user_limits", Kind.USER_LIMIT, _user_limit),
    ("class_limits", Kind.CLASS_LIMIT, _class_limit),
    ("roles", Kind.ROLE, _role),
    ("budgets", Kind.BUDGET, _budget),
)
SINGLE: tuple[tuple[str, Kind, Callable[[Fields], Entry]], ...] = (
    ("submission_limit", Kind.SUBMISSION_LIMIT, _submission_limit),
    ("invoice_terms", Kind.INVOICE_TERMS, _invoice_terms),
)
KNOWN: Mapping[Kind, frozenset[str]] = {
    Kind.LIMIT: frozenset(
        ["resource", "clusters", "nominal", "borrowing_limit", "lending_limit", "reclaims", "reclaim_after"]
    ),
    Kind.USER_LIMIT: frozenset(["resource", "most"]),
    Kind.CLASS_LIMIT: frozenset(["priority_class", "resource", "most"]),
    Kind.SUBMISSION_LIMIT: frozenset(["most_waiting", "jobs_per_minute"]),
    Kind.ROLE: frozenset(["user", "group", "role", "expires_at"]),
    Kind.BUDGET: frozenset(
        ["amount", "currency", "gpu_hours", "period", "starts_on", "ends_on", "notify_at", "stops_admission"]
    ),
    Kind.INVOICE_TERMS: frozenset(
        ["issuer", "tax_rate", "tax_name", "payment_days", "cost_centre", "gl_account", "remark"]
    ),
}


def class_limit_name(class_name: str, resource: str) -> str:
    """The name of a limit of a class among those of its tenant."""
    return f"{resource} of the class {class_name}"


def limit_name(resource: str, clusters: list[str]) -> str:
    """A limit's name among those of its tenant."""
    return f"{resource} on {', '.join(clusters)}" if clusters else resource


def role_item(role: str, *, user: str, group: str, expires_at: str | None) -> Entry:
    """A role as a file has it."""
    holder = {"user": user} if user else {"group": group}
    return f"{role} of {user or f'the group {group}'}", {**holder, "role": role, "expires_at": expires_at}


def budget_item(  # noqa: PLR0913 - the fields of a budget
    measure: str,
    number: str,
    *,
    currency: str,
    period: str,
    days: tuple[str | None, str | None],
    notify_at: list[int],
    stops_admission: bool,
) -> Entry:
    """A budget as a file has it."""
    of_money = {"currency": currency} if measure == "amount" else {}
    dates = {"starts_on": days[0], "ends_on": days[1]} if period == "dates" else {}
    name = f"{measure} per {period}" if period != "dates" else f"{measure} from {days[0]} to {days[1]}"
    item = {measure: number, **of_money, "period": period, **dates}
    return name, {**item, "notify_at": notify_at, "stops_admission": stops_admission}


def plain(number: Decimal) -> str:
    """A number without trailing zeros or an exponent."""
    return f"{number.normalize():f}"


def _line(fields: Fields, name: str, most: int) -> str:
    """A text of one line; empty if it is absent."""
    text = fields.text(name, default="", most_bytes=4 * most)
    if len(text) > most:
        fields.fault(name, "too_long", f"must be at most {most} characters")
    elif not text.isprintable():
        fields.fault(name, "out_of_range", "control characters are not allowed here")
    return text


def _resource(fields: Fields) -> str:
    return fields.checked("resource", is_resource, RESOURCES, most_bytes=80)


def _amount(fields: Fields, name: str, resource: str) -> str:
    text = _quantity(fields, name, most_bytes=40)
    if text is None or not is_resource(resource):
        return "0"
    try:
        return format_amount(resource, parse_amount(resource, text))
    except BadAmount as error:
        fields.faults.add(fields.at(name), error.code, str(error))
        return "0"


def _decimal(fields: Fields, name: str, *, most_bytes: int = 32) -> Decimal | None:
    text = _quantity(fields, name, most_bytes=most_bytes)
    if text is None:
        return None
    try:
        if NUMBER.fullmatch(text) and Decimal(text) <= MOST_MONEY:
            return Decimal(text)
    except InvalidOperation:
        pass
    fields.fault(name, "bad_format", "a number such as 500 or 2.50, with up to 6 decimals")
    return None


def _quantity(fields: Fields, name: str, *, most_bytes: int) -> str | None:
    """The text of an amount, which may be empty; None after a fault."""
    before = len(fields.faults.found)
    text = fields.quantity(name, most_bytes=most_bytes)
    return text if len(fields.faults.found) == before else None


def _day(fields: Fields, name: str) -> str | None:
    text = fields.text(name, default="", most_bytes=10)
    if not text:
        return None
    try:
        if DAY.fullmatch(text):
            return date.fromisoformat(text).isoformat()
    except ValueError:
        pass
    fields.fault(name, "bad_format", "a day such as 2026-12-01")
    return None

"""Recommendations: the list, one with its evidence and what it saved, where people decide, and the labels that are required."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect

from billing.engine.recommendations import OF_JOBS, Kind
from billing.models import Recommendation, RequiredLabels
from billing.models.periods import REASON_LENGTH
from billing.operations.recommendations import accept, dismiss, reopen
from billing.queries.recommendations import (
    decidable,
    recommendation_by_id,
    visible_recommendations,
    visible_required_labels,
)
from billing.queries.sharing import visible_whole_organisations
from federation.engine.advice_words import NOT_MEASURED, TITLES, summary_of
from federation.operations.required_labels import set_required_labels
from federation.queries.realised import Measured, realised_of
from foundation.clock import now
from foundation.pages import Form, asked, show, typed
from foundation.problems import Invalid, Problem
from foundation.templatetags.display import money
from tenancy.queries import Actor, TenantMatch, match_tenants, path_suggestions
from tenancy.web import page

MOST_SHOWN = 200
ANY = ""
STATES: Sequence[tuple[str, str]] = (
    ("open", "open"), ("accepted", "accepted"), ("dismissed", "dismissed"), ("done", "done"), ("expired", "expired"),
)  # fmt: skip
KINDS: Sequence[tuple[str, str]] = ((ANY, "all kinds"), *((kind.value, TITLES[kind]) for kind in Kind))
CONTROLS = {name: name for name in ("reason", "until", "outcome")}
LABEL_CONTROLS = {name: name for name in ("organisation", "effective_from", "keys")}
MONEY, PERCENT, PLAIN = "money", "percent", "plain"
FACTS: Mapping[str, tuple[str, str]] = {
    "jobs": ("Jobs", PLAIN), "gpu_hours": ("GPU-hours", PLAIN), "unit_hours": ("Hours of GPUs or slices", PLAIN),
    "cost": ("Cost", MONEY), "to_cost": ("The same hours there cost", MONEY), "to_unit_price": ("Price of an hour there", MONEY),
    "capacity_type": ("Capacity", PLAIN), "to_capacity_type": ("Recommended capacity", PLAIN), "gpu_model": ("GPU", PLAIN),
    "to_gpu_model": ("Recommended GPU", PLAIN), "to_sharing": ("As", PLAIN), "memory_mib": ("Memory, MiB", PLAIN),
    "peak_memory_mib": ("Peak memory, MiB", PLAIN), "needed_memory_mib": ("Needed with a margin, MiB", PLAIN),
    "to_memory_mib": ("Memory there, MiB", PLAIN), "sm_active": ("Active part of the GPU", PERCENT),
    "measured_share": ("Measured part of the time", PERCENT), "checkpoint_seconds": ("Seconds between checkpoints", PLAIN),
    "interruptions_per_hour": ("Interruptions an hour", PLAIN), "days": ("Days", PLAIN), "unused_share": ("Unused part", PERCENT),
    "least_unused_of_a_day": ("Unused on the busiest day", MONEY), "key": ("Label", PLAIN), "share": ("Part of the cost without it", PERCENT),
}  # fmt: skip
"""The evidence that the page shows, with its title and how it is written."""
SIX_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Line:
    """A recommendation with its sentence, and what it saved if it was accepted."""

    row: Recommendation
    title: str
    summary: str
    measured: Measured | None
    may_decide: bool

    @property
    def why_not(self) -> str:
        """Why nothing is claimed; empty if something is."""
        result = None if self.measured is None else self.measured.result
        return "" if result is None or result.why_not is None else NOT_MEASURED[result.why_not]

    @property
    def is_a_range(self) -> bool:
        """Whether both ends differ."""
        return self.row.low != self.row.high

    @property
    def percent(self) -> Decimal:
        """Its confidence."""
        return self.row.confidence * 100

    @property
    def saves(self) -> bool:
        """Whether its amount is a saving."""
        return self.row.kind != Kind.MISSING_LABEL

    @property
    def runs_called(self) -> str:
        """What is counted before and after."""
        return "jobs" if self.row.kind in OF_JOBS else "days"


@dataclass(frozen=True, slots=True)
class Sum:
    """What the shown ones save in a currency, at least and at most. Kinds overlap, so it is no promise."""

    currency: str
    count: int
    low: Decimal
    high: Decimal


@dataclass(frozen=True, slots=True)
class RecommendationsPage:
    lines: tuple[Line, ...]
    sums: tuple[Sum, ...]
    hidden: int
    state: str
    states: Sequence[tuple[str, str]]
    kinds: Sequence[tuple[str, str]]
    match: TenantMatch
    form: Form
    tenants: Sequence[tuple[str, str]]
    csv_query: str
    """Empty if several tenants match the input: the API takes only whole paths."""


@dataclass(frozen=True, slots=True)
class RecommendationPage:
    line: Line
    facts: tuple[tuple[str, str], ...]
    places: tuple[tuple[Mapping[str, str], Decimal], ...]
    some: tuple[tuple[Mapping[str, str], Decimal], ...]
    form: Form


@dataclass(frozen=True, slots=True)
class LabelsPage:
    rows: tuple[RequiredLabels, ...]
    organisations: tuple[tuple[str, str], ...]
    form: Form


@page(takes=("state", "kind", "tenant"))
def recommendations(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Those in a state, by default the open ones, with the largest amounts first."""
    given = asked(request)
    state = given.get("state", "") if given.get("state", "") in dict(STATES) else "open"
    kind = given.get("kind", "") if given.get("kind", "") in dict(KINDS) else ANY
    match = match_tenants(actor, given.get("tenant", ""))
    is_one = match.is_exact or bool(match.path)
    rows = visible_recommendations(actor, tenant_path=match.path, state=state, kind=kind)
    if not is_one and match.typed:
        rows = rows.filter(tenant__in=match.tenants)
    found = list(rows.order_by("-high", "id")[:MOST_SHOWN])
    query = QueryDict(mutable=True)
    query.update({"format": "csv", "state": state} | ({"kind": kind} if kind else {}))
    if match.path:
        query.update({"tenant": match.path})
    lines = _lines(actor, found)
    return show(
        request,
        "federation/recommendations.html",
        RecommendationsPage(
            lines=lines,
            sums=_sums(lines),
            hidden=rows.count() - len(found) if len(found) == MOST_SHOWN else 0,
            state=state,
            states=STATES,
            kinds=KINDS,
            match=match,
            form=Form(values={"tenant": match.typed, "state": state, "kind": kind}),
            tenants=path_suggestions(actor),
            csv_query=query.urlencode() if is_one or not match.typed else "",
        ),
    )


@page(takes=())
def recommendation(request: HttpRequest, actor: Actor, recommendation_id: UUID) -> HttpResponse:
    """One with its evidence; users who may dispute charges there accept it, dismiss it or open it again here."""
    if request.method != "POST":
        return _one(request, actor, recommendation_id, Form())
    values = typed(request)
    try:
        said = _decide(actor, recommendation_id, values)
    except Problem as problem:
        form = Form.refused(values, problem, CONTROLS)
        return _one(request, actor, recommendation_id, form, status=problem.status)
    messages.success(request, said)
    return redirect("recommendation", recommendation_id)


@page(takes=())
def labels(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The labels that organisations require; users who may close months set them here."""
    if request.method != "POST":
        return _labels(request, actor, Form({"effective_from": f"{now():%Y-%m-%d}"}))
    values = typed(request)
    try:
        keys = values.get("keys", "").replace(",", " ").split()
        day = _day("effective_from", values.get("effective_from", ""))
        set_required_labels(actor, values.get("organisation", ""), day, keys)
    except Problem as problem:
        return _labels(request, actor, Form.refused(values, problem, LABEL_CONTROLS), status=problem.status)
    messages.success(request, "Done.")
    return redirect("required-labels")


def _decide(actor: Actor, id_: UUID, values: Mapping[str, str]) -> str:
    outcome = values.get("outcome")
    if outcome == "accept":
        accept(actor, id_, _reason(values, is_required=False))
        return "Accepted. What it saves is measured from tomorrow on."
    if outcome == "dismiss":
        until = values.get("until", "")
        dismiss(actor, id_, _reason(values, is_required=True), _day("until", until) if until else None)
        return "Dismissed."
    if outcome == "reopen":
        reopen(actor, id_)
        return "Open again."
    raise Invalid.field("outcome", "required", "accept, dismiss or reopen")


def _reason(values: Mapping[str, str], *, is_required: bool) -> str:
    text = values.get("reason", "").strip()
    if not is_required <= len(text) <= REASON_LENGTH or not (text.isprintable() or not text):
        raise Invalid.field("reason", "required", f"1 to {REASON_LENGTH} characters in one line")
    return text


def _day(name: str, text: str) -> date:
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        raise Invalid.field(name, "bad_format", "a day as YYYY-MM-DD") from None


def _one(request: HttpRequest, actor: Actor, id_: UUID, form: Form, *, status: int = 200) -> HttpResponse:
    [line] = _lines(actor, [recommendation_by_id(actor, id_)])
    evidence: Mapping[str, Any] = line.row.evidence
    facts = tuple(
        (title, _written(evidence[name], how, line.row.currency))
        for name, (title, how) in FACTS.items()
        if evidence.get(name) not in {None, ""}
    )
    places = tuple((one, Decimal(one["cost"])) for one in evidence.get("places", ()))
    some = tuple((one, Decimal(one["amount"])) for one in evidence.get("some", ()))
    shown = RecommendationPage(line, facts, places, some, form)
    return show(request, "federation/recommendation.html", shown, status=status)


def _written(value: object, how: str, currency: str) -> str:
    if how == MONEY:
        return money(Decimal(str(value)), currency)
    if how == PERCENT:
        return f"{Decimal(str(value)) * 100:.0f} %"
    text = str(value)
    return f"{Decimal(text):,.2f}" if len(text.partition(".")[2]) == SIX_DECIMALS else text


def _labels(request: HttpRequest, actor: Actor, form: Form, *, status: int = 200) -> HttpResponse:
    rows = tuple(visible_required_labels(actor).order_by("-effective_from", "-id")[:MOST_SHOWN])
    organisations = tuple((path, path) for path in visible_whole_organisations(actor))
    return show(request, "federation/required_labels.html", LabelsPage(rows, organisations, form), status=status)


def _lines(actor: Actor, rows: Sequence[Recommendation]) -> tuple[Line, ...]:
    measured, may = realised_of(rows), decidable(actor, rows)
    return tuple(
        Line(row, TITLES[row.kind], summary_of(row.kind, row.evidence), measured.get(row.id), row.id in may)
        for row in rows
    )


def _sums(lines: Sequence[Line]) -> tuple[Sum, ...]:
    by_currency: dict[str, list[Recommendation]] = defaultdict(list)
    for line in lines:
        if line.saves:
            by_currency[line.row.currency].append(line.row)
    return tuple(
        Sum(
            currency, len(rows), sum((row.low for row in rows), Decimal(0)), sum((row.high for row in rows), Decimal(0))
        )
        for currency, rows in sorted(by_currency.items())
    )

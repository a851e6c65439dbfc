"""The page of sharing policies: who bears idle capacity and the platform, a preview of a new policy, and setting it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from billing.engine.currencies import CURRENCIES
from billing.engine.ledger import SCALE
from billing.engine.shares import shown_parts
from billing.models import SharingPolicy
from billing.operations.sharing import MOST_WEIGHT, MOST_WEIGHTS, NewPolicy, preview_policy, set_policy
from billing.queries.sharing import visible_policies, visible_whole_organisations
from billing.queries.sharing_report import SharingReport, TenantShare
from foundation.clock import database_now
from foundation.pages import Form, asked, show, typed
from foundation.problems import FieldError, Invalid, Problem
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.queries import Actor, visible_tenants
from tenancy.web import page

from .typing_in import decimal_of
from .typing_in import month_of as typed_month

PLACES = 2
MOST_COST = 10**12
SHOWN = 100
IDLE = (
    ("central", "The organisation"),
    ("proportional", "Tenants, in proportion"),
    ("reservations", "Unused reservations first"),
)
PLATFORM = (
    ("proportional", "In proportion to charges"),
    ("even", "In even parts"),
    ("fixed", "By fixed weights"),
)
FIELDS = ("effective_from", "idle", "platform", "platform_cost", "platform_currency", "platform_weights")
CONTROLS = {name: name for name in FIELDS}


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A policy as the page shows it. `weights`: each tenant's, by path."""

    row: SharingPolicy
    idle: str
    platform: str
    weights: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """What a tenant bears of a month as it is, and by the policy that is previewed."""

    tenant: str
    currency: str
    before: Decimal
    after: Decimal

    @property
    def difference(self) -> Decimal:
        """Of the figures that are shown."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class SharingPage:
    organisation: str
    organisations: Sequence[tuple[str, str]]
    policies: tuple[PolicyRow, ...]
    form: Form
    idle: tuple[tuple[str, str], ...]
    platform: tuple[tuple[str, str], ...]
    may_set: bool
    previewed: date | None = None
    """The month of the preview."""
    changes: tuple[ChangeLine, ...] = ()


@page(takes=("organisation",))
def policies(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The policies of an organisation; users who may close months preview and set one here."""
    if request.method != "POST":
        return _page(request, actor, asked(request).get("organisation", ""), Form())
    values = typed(request)
    path = values.get("organisation", "")
    try:
        wanted = _wanted(values)
        if values.get("what") != "set":
            month = min(wanted.effective_from, database_now().date().replace(day=1))
            return _page(request, actor, path, Form(values), (month, _changes(*preview_policy(actor, wanted, month))))
        policy = set_policy(actor, wanted)
    except Problem as problem:
        return _page(request, actor, path, Form.refused(values, problem, CONTROLS), status=problem.status)
    messages.success(
        request, f"The policy applies from {policy.effective_from:%B %Y} on. Months follow when they close."
    )
    query = QueryDict(mutable=True)
    query["organisation"] = path
    return redirect(f"{reverse('sharing-policies')}?{query.urlencode()}")


def _wanted(values: dict[str, str]) -> NewPolicy:
    errors: list[FieldError] = []
    month = date.min
    try:
        month = typed_month(values.get("effective_from", ""))
    except Invalid:
        errors.append(FieldError("effective_from", "not_a_month", "choose a month"))
    for name, known in (("idle", IDLE), ("platform", PLATFORM)):
        if values.get(name, "") not in dict(known):
            errors.append(FieldError(name, "invalid_choice", "choose one"))
    text = values.get("platform_cost", "").strip()
    cost = decimal_of(text) if text else Decimal(0)
    if not cost.is_finite() or not 0 <= cost < MOST_COST or cost != round(cost, 6):
        errors.append(FieldError("platform_cost", "out_of_range", "a number such as 1500, with up to 6 decimals"))
        cost = Decimal(0)
    currency = values.get("platform_currency", "").strip().upper()
    if cost and currency not in CURRENCIES:
        errors.append(FieldError("platform_currency", "unknown_currency", "three letters such as USD"))
    weights = _weights(values.get("platform_weights", ""), errors) if values.get("platform") == "fixed" else {}
    if errors:
        raise Invalid(errors=errors)
    return NewPolicy(
        values.get("organisation", ""),
        month,
        values["idle"],
        values["platform"],
        cost,
        currency if cost else "",
        weights,
    )


def _weights(text: str, errors: list[FieldError]) -> dict[str, int]:
    """Lines such as `acme/research 3`."""
    found: dict[str, int] = {}
    for line in text.split("\n"):
        path, _, weight = line.strip().rpartition(" ")
        if not line.strip():
            continue
        is_weight = weight.isascii() and weight.isdigit() and len(weight) <= len(str(MOST_WEIGHT))
        if not path.strip() or not is_weight or not 1 <= int(weight) <= MOST_WEIGHT or path.strip() in found:
            detail = f"one tenant and its weight in each line, such as acme/research 3; not {line.strip()[:100]}"
            errors.append(FieldError("platform_weights", "bad_format", detail))
            return {}
        found[path.strip()] = int(weight)
    if len(found) > MOST_WEIGHTS:
        errors.append(FieldError("platform_weights", "out_of_range", f"at most {MOST_WEIGHTS} tenants"))
    return found


def _changes(before: SharingReport, after: SharingReport) -> tuple[ChangeLine, ...]:
    totals = [{(one.tenant, one.currency): _shown(one) for one in report.tenants} for report in (before, after)]
    return tuple(
        ChangeLine(*key, totals[0].get(key, Decimal(0)), totals[1].get(key, Decimal(0)))
        for key in sorted({*totals[0], *totals[1]})
    )


def _shown(one: TenantShare) -> Decimal:
    """The total as the page of idle capacity shows it."""
    parts = (one.direct, one.idle, one.platform, one.credits, one.commitment)
    return shown_parts([Fraction(part, SCALE) for part in parts], PLACES)[1]


def _page(
    request: HttpRequest,
    actor: Actor,
    wanted: str,
    form: Form,
    preview: tuple[date, tuple[ChangeLine, ...]] | None = None,
    *,
    status: int = 200,
) -> HttpResponse:
    paths = visible_whole_organisations(actor)
    path = wanted if wanted in paths else (paths[0] if paths else "")
    rows = list(visible_policies(actor).filter(organisation__path=path).order_by("-effective_from", "-id")[:SHOWN])
    usual = {
        "effective_from": f"{database_now():%Y-%m}",
        "idle": rows[0].idle if rows else "central",
        "platform": rows[0].platform if rows else "proportional",
        "platform_cost": f"{rows[0].platform_cost.normalize():f}" if rows and rows[0].platform_cost else "",
        "platform_currency": rows[0].platform_currency if rows else "",
    }
    shown_rows = _rows(rows)
    if shown_rows:
        usual["platform_weights"] = "\n".join(f"{tenant} {weight}" for tenant, weight in shown_rows[0].weights)
    values = {**usual, **form.values, "organisation": path}
    shown = SharingPage(
        organisation=path,
        organisations=[(one, one) for one in paths],
        policies=shown_rows,
        form=Form(values, form.errors, form.problem, form.loose),
        idle=IDLE,
        platform=PLATFORM,
        may_set=visible_tenants(actor, Permission.CLOSE_PERIOD).filter(path=path, parent=None).exists(),
        previewed=None if preview is None else preview[0],
        changes=() if preview is None else preview[1],
    )
    return show(request, "billing/sharing.html", shown, status=status)


def _rows(rows: Sequence[SharingPolicy]) -> tuple[PolicyRow, ...]:
    ids = {id_ for row in rows for id_ in row.platform_weights}
    paths = {str(id_): path for id_, path in Tenant.objects.filter(id__in=ids).values_list("id", "path")}
    return tuple(
        PolicyRow(
            row,
            dict(IDLE)[row.idle],
            dict(PLATFORM)[row.platform],
            tuple(sorted((paths[id_], weight) for id_, weight in row.platform_weights.items() if id_ in paths)),
        )
        for row in rows
    )

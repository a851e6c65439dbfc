"""The price book as a file: what a file changes is shown first, then it is applied."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from billing.engine.price_book import BookPrice
from billing.operations.price_file import PlannedPrice, PricePlan, apply_prices, plan_prices
from billing.queries.price_file import price_file
from foundation.pages import Form, show, typed
from foundation.problems import PermissionDenied, Problem
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, visible_tenants
from tenancy.web import page

from .price_corrections import change_line, totals_of
from .sharing import ChangeLine

CONTROLS = {"file": "file"}
NOT_SHOWN = "none"
"""The hash of no plan."""
UNNAMED = (("keep", "remain"), ("end", "end now"))
"""What happens to prices that the file does not have."""


@dataclass(frozen=True, slots=True)
class PriceChangeLine:
    """A change as the page shows it."""

    of: PlannedPrice
    before: BookPrice | None
    after: BookPrice | None
    """What applies afterwards; None if it is withdrawn, or ends when the file is applied."""


@dataclass(frozen=True, slots=True)
class PriceBookPage:
    form: Form
    plan: PricePlan | None = None
    """Of what was typed; None before."""
    changes: Sequence[PriceChangeLine] = ()
    tried: Sequence[ChangeLine] = ()
    """What last month cost each tenant, and what it costs by the file's prices."""
    totals: Sequence[ChangeLine] = ()
    unnamed: Sequence[tuple[str, str]] = UNNAMED


@page
def price_book(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Users who manage prices change their file here. What they apply is what the page has shown."""
    if not visible_tenants(actor, Permission.MANAGE_PRICES).exists():
        raise PermissionDenied("This needs the permission to set prices.")
    if request.method != "POST":
        return show(request, "billing/price_book.html", PriceBookPage(Form({"file": price_file(actor)})))
    values = typed(request)
    text, prune = values.get("file", "").replace("\r\n", "\n"), values.get("unnamed") == "end"
    try:
        if values.get("what") != "apply":
            return _planned(request, values, plan_prices(actor, text, prune=prune))
        plan = apply_prices(actor, text, expected=values.get("expect") or NOT_SHOWN, prune=prune)
    except Problem as problem:
        form = Form.refused({name: value for name, value in values.items() if name != "expect"}, problem, CONTROLS)
        return show(request, "billing/price_book.html", PriceBookPage(form), status=problem.status)
    messages.success(request, f"{len(plan.changes)} changes of prices were made.")
    return redirect("prices")


def _planned(request: HttpRequest, values: dict[str, str], plan: PricePlan) -> HttpResponse:
    tried = tuple(change_line(one) for one in plan.effects or ())
    shown = PriceBookPage(
        form=Form({**values, "expect": plan.digest}),
        plan=plan,
        changes=[PriceChangeLine(one, one.change.before, one.change.after) for one in plan.changes],
        tried=tried,
        totals=totals_of(tried),
    )
    return show(request, "billing/price_book.html", shown)

"""What a limit would do to the next round, before it is saved."""

from dataclasses import dataclass
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from federation.operations.previews import Affected, Foreseen, preview_limit
from foundation.pages import show, typed
from foundation.problems import Problem
from quotas.web.pages import FIELDS, limit_id_of, refused, wanted_limit
from tenancy.queries import Actor
from tenancy.web import page


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of consequence."""

    title: str
    affected: Affected


@dataclass(frozen=True, slots=True)
class QuotaPreviewPage:
    limit_id: UUID | None
    values: tuple[tuple[str, str], ...]
    """The form's, to save it or to return to it."""
    tenant: str
    resource: str
    nominal: str
    found: Foreseen
    parts: tuple[Part, ...]


@page(takes=("limit",))
def quota_preview(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The consequences of the limit in the form, which is not saved yet."""
    if request.method != "POST":
        return redirect("quota-edit")
    limit_id = limit_id_of(request.GET.get("limit", ""))
    given = typed(request)
    values = {name: given[name] for name in FIELDS if name in given}
    try:
        found = preview_limit(actor, wanted_limit(values))
    except Problem as problem:
        return refused(request, actor, values, problem, limit_id)
    parts = (
        Part("Start", found.starts),
        Part("Are stopped", found.stops),
        Part("Wait longer", found.waits),
        Part("Wait for another reason", found.otherwise),
        Part("Are no longer stopped", found.spared),
    )
    shown = QuotaPreviewPage(
        limit_id=limit_id,
        values=tuple(values.items()),
        tenant=values["tenant"].strip(),
        resource=values["resource"].strip(),
        nominal=values["nominal"].strip(),
        found=found,
        parts=tuple(part for part in parts if part.affected.count),
    )
    return show(request, "federation/quota_preview.html", shown)

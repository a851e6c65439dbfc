"""The capacity page: pick devices and pods, see where there is room now and for how many."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse

from federation.queries.gpu_models import gpu_models
from federation.queries.lent_quota import reclaimers_of
from federation.queries.pages import tenant_used_last
from federation.queries.quotes import RoomSeen, capacity_of
from foundation.pages import Form, asked, show
from foundation.problems import Problem
from placement.answers.quota_rooms import FlavorRoom
from placement.answers.quotes import Capacity, ClusterRoom
from tenancy.queries import Actor, TenantMatch, first_choice, match_tenants, path_suggestions, tenant_choices
from tenancy.web import page

from .jobs import Options
from .submit import POD
from .typing_in import whole_number, words_of

CONTROL_OF = {
    "tenant": "tenant",
    f"{POD}.count": "count",
    f"{POD}.gpu.count": "gpus",
    f"{POD}.gpu.models": "models",
    f"{POD}.cpu": "cpu",
    f"{POD}.memory": "memory",
}
DEFAULTS = {"count": "1", "gpus": "1", "cpu": "8", "memory": "32Gi"}
FIELDS = ("tenant", "models", *DEFAULTS)


@dataclass(frozen=True, slots=True)
class QuotaLine:
    """What quota leaves of a flavor on each of these clusters; `takers` may take back `room.owed`."""

    clusters: tuple[str, ...]
    room: FlavorRoom
    takers: str

    @property
    def free(self) -> int:
        """The most that can be taken now."""
        return (self.room.own or 0) + (self.room.borrowable or 0)


@dataclass(frozen=True, slots=True)
class CapacityPage:
    """`rooms` are the clusters, those with most room first; `most` is the largest count of one, for the bars."""

    form: Form
    match: TenantMatch
    tenants: Options
    models: Options
    capacity: Capacity | None
    rooms: Sequence[ClusterRoom]
    most: int
    quota: tuple[QuotaLine, ...]


@page(takes=FIELDS)
def capacity(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The number of further jobs of a shape that fit, in total and by cluster."""
    paths = [path for path, _ in path_suggestions(actor)]
    given = {name: str(value).strip() for name, value in asked(request).items() if name in FIELDS}
    tenant = first_choice(paths, asked=given.get("tenant", ""), last_used=tenant_used_last(actor))
    values = {**DEFAULTS, "models": "", **given, "tenant": tenant}
    form, found = Form(values=values), None
    if tenant:
        try:
            found = capacity_of(actor, _shape(values))
        except Problem as problem:
            form = Form.refused(values, problem, CONTROL_OF)
    rooms = sorted(found.capacity.clusters, key=lambda room: -room.count) if found else ()
    shown = CapacityPage(
        form=form,
        match=match_tenants(actor, given.get("tenant", "")),
        tenants=tenant_choices(paths, tenant),
        models=tuple((name, "") for name in gpu_models(actor)),
        capacity=found.capacity if found else None,
        rooms=rooms,
        most=rooms[0].count if rooms else 0,
        quota=_quota_lines(found) if found else (),
    )
    return show(request, "federation/capacity.html", shown, live="federation/capacity_live.html")


def _quota_lines(found: RoomSeen) -> tuple[QuotaLine, ...]:
    """Equal rows are one: limits on the whole fleet leave the same everywhere."""
    alike: dict[FlavorRoom, list[str]] = {}
    for room in found.capacity.clusters:
        for each in room.flavors:
            alike.setdefault(each, []).append(room.cluster)
    return tuple(
        QuotaLine(tuple(sorted(names)), room, reclaimers_of(room.reclaimers, found.seen).text)
        for room, names in alike.items()
    )


def _shape(values: Mapping[str, str]) -> dict[str, Any]:
    pods: dict[str, Any] = {"count": whole_number(values["count"]), "cpu": values["cpu"], "memory": values["memory"]}
    if values["gpus"] not in {"", "0"}:
        pods["gpu"] = {"count": whole_number(values["gpus"]), "models": words_of(values["models"])}
    return {"tenant": values["tenant"], "pod_sets": [pods]}

"""What fits now: pick devices and pods, see where and how many more of them there is room for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse

from federation.queries.pages import gpu_models
from federation.queries.quotes import capacity_of
from foundation.pages import Form, asked, show
from foundation.problems import Problem
from placement.answers.quotes import Capacity
from tenancy.queries import Actor
from tenancy.web import page

from .jobs import Options, tenant_options
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
class CapacityPage:
    """`most` is the largest count of a cluster, for the bars."""

    form: Form
    tenants: Options
    models: Options
    capacity: Capacity | None
    most: int


@page
def capacity(request: HttpRequest, actor: Actor) -> HttpResponse:
    """How many more jobs of a shape fit, in all and by cluster."""
    tenants = tenant_options(actor)
    given = {name: str(value).strip() for name, value in asked(request).items() if name in FIELDS}
    leaf = max((path for path, _ in tenants), key=lambda path: path.count("/"), default="")
    values = {**DEFAULTS, "tenant": leaf, "models": "", **given}
    form, found = Form(values=values), None
    if tenants:
        try:
            found = capacity_of(actor, _shape(values))
        except Problem as problem:
            form = Form.refused(values, problem, CONTROL_OF)
    shown = CapacityPage(
        form=form,
        tenants=tuple((path, path) for path, _ in tenants),
        models=tuple((name, "") for name in gpu_models(actor)),
        capacity=found,
        most=max((room.count for room in found.clusters), default=0) if found else 0,
    )
    return show(request, "federation/capacity.html", shown, live="federation/capacity_live.html")


def _shape(values: Mapping[str, str]) -> dict[str, Any]:
    pods: dict[str, Any] = {"count": whole_number(values["count"]), "cpu": values["cpu"], "memory": values["memory"]}
    if values["gpus"] not in {"", "0"}:
        pods["gpu"] = {"count": whole_number(values["gpus"]), "models": words_of(values["models"])}
    return {"tenant": values["tenant"], "pod_sets": [pods]}

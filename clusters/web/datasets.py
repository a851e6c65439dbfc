"""Pages that list, record, change and delete datasets: where data that jobs name is stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from clusters.engine.datasets import DATASET_NAME, MOST_PLACES, REGION, BadSize, is_name, is_region, size_of
from clusters.operations.datasets import Location, create_dataset, remove_dataset, update_dataset
from clusters.queries import visible_clusters
from clusters.queries.datasets import DatasetLine, dataset_by_id, dataset_lines, line_of
from foundation.pages import Form, asked, show, typed
from foundation.problems import FieldError, Invalid, Problem
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, first_choice, permissions_at, tenant_choices, visible_tenants
from tenancy.web import action, page

CONTROLS = {"tenant": "tenant", "name": "name", "size": "size", "locations": "regions", "clusters": "clusters"}
MOST_OPTIONS = 500


@dataclass(frozen=True, slots=True)
class DatasetsPage:
    datasets: tuple[DatasetLine, ...]
    form: Form
    tenants: tuple[tuple[str, str], ...]
    """Where the viewer may record one; may be empty."""
    regions: tuple[tuple[str, str], ...]
    clusters: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class DatasetPage:
    dataset: DatasetLine
    form: Form
    regions: tuple[tuple[str, str], ...]
    clusters: tuple[tuple[str, str], ...]


@page(takes=tuple(CONTROLS.values()))
def datasets(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Every dataset that the viewer may see; users who manage a tenant record one here."""
    if request.method != "POST":
        wanted = asked(request)
        tenant = first_choice(_managed_paths(actor), asked=wanted.get("tenant", ""))
        return _list(request, actor, Form(values={**wanted, "tenant": tenant}))
    values = typed(request)
    try:
        size_bytes, locations = _read(values, is_new=True)
        made = create_dataset(
            actor, values.get("tenant", ""), values["name"].strip(), size_bytes=size_bytes, locations=locations
        )
    except Problem as problem:
        return _list(request, actor, Form.refused(values, problem, CONTROLS), status=problem.status)
    messages.success(request, f"{made.name} is recorded. Jobs of {made.tenant.path} and below can use it.")
    return redirect("datasets")


@page
def dataset(request: HttpRequest, actor: Actor, dataset_id: UUID) -> HttpResponse:
    """One dataset; users who manage its tenant change its size and places."""
    line = _line(actor, dataset_id)
    if request.method != "POST":
        values = {"size": line.size, "regions": ", ".join(line.regions), "clusters": ", ".join(line.clusters)}
        return _one(request, actor, line, Form(values=values))
    values = typed(request)
    try:
        size_bytes, locations = _read(values, is_new=False)
        update_dataset(actor, dataset_id, size_bytes=size_bytes, locations=locations)
    except Problem as problem:
        return _one(request, actor, line, Form.refused(values, problem, CONTROLS), status=problem.status)
    messages.success(request, f"{line.name} is changed. The next scheduling round uses it.")
    return redirect("dataset", dataset_id)


@action
def remove(request: HttpRequest, actor: Actor, dataset_id: UUID) -> HttpResponse:
    """Deletes the dataset."""
    name = dataset_by_id(actor, dataset_id).name
    remove_dataset(actor, dataset_id)
    messages.success(request, f"{name} is removed. New jobs cannot use it.")
    return redirect("datasets")


def _list(request: HttpRequest, actor: Actor, form: Form, *, status: int = 200) -> HttpResponse:
    managed = _managed_paths(actor)
    regions, clusters = _places(actor)
    shown = DatasetsPage(
        datasets=dataset_lines(actor),
        form=form,
        tenants=tenant_choices(managed, form.values.get("tenant", "")),
        regions=regions,
        clusters=clusters,
    )
    return show(request, "clusters/datasets.html", shown, status=status)


def _managed_paths(actor: Actor) -> list[str]:
    managed = visible_tenants(actor, Permission.MANAGE_TENANTS).order_by("path")
    return list(managed.values_list("path", flat=True)[:MOST_OPTIONS])


def _one(request: HttpRequest, actor: Actor, line: DatasetLine, form: Form, *, status: int = 200) -> HttpResponse:
    return show(request, "clusters/dataset.html", DatasetPage(line, form, *_places(actor)), status=status)


def _line(actor: Actor, dataset_id: UUID) -> DatasetLine:
    found = dataset_by_id(actor, dataset_id)
    return line_of(found, may_change=Permission.MANAGE_TENANTS in permissions_at(actor, found.tenant))


def _places(actor: Actor) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """Regions and names of the clusters that the viewer may see."""
    seen = list(visible_clusters(actor).order_by("name").values_list("name", "region")[:MOST_OPTIONS])
    regions = sorted({region for _, region in seen if region})
    return tuple((region, "") for region in regions), tuple((name, "") for name, _ in seen)


def _read(values: Mapping[str, str], *, is_new: bool) -> tuple[int, list[Location]]:
    """Size and places from the form, or Invalid with every wrong field."""
    errors: list[FieldError] = []
    if is_new and not values.get("tenant"):
        errors.append(FieldError("tenant", "required", "choose a tenant"))
    if is_new and not is_name(values.get("name", "").strip()):
        errors.append(FieldError("name", "bad_format", DATASET_NAME))
    size_bytes = 0
    try:
        size_bytes = size_of(values.get("size", "").strip())
    except BadSize as error:
        errors.append(FieldError("size", error.code, str(error)))
    regions, clusters = (_words(values.get(name, "")) for name in ("regions", "clusters"))
    if not all(map(is_region, regions)):
        errors.append(FieldError("locations", "bad_format", f"a region's name can have {REGION}"))
    if not 1 <= len(regions) + len(clusters) <= MOST_PLACES:
        errors.append(FieldError("locations", "out_of_range", f"1 to {MOST_PLACES} regions and clusters in total"))
    if errors:
        raise Invalid(errors=errors)
    return size_bytes, [*(Location(region=one) for one in regions), *(Location(cluster=one) for one in clusters)]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]

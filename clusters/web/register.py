"""The form that registers a cluster. After a refusal it shows the user's input again, except secrets."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.debug import sensitive_post_parameters

from clusters.engine.connection import ConnectionFields
from clusters.engine.networks import attachment_of
from clusters.engine.resources import HUGE_PAGES_MIB
from clusters.engine.volumes import size_text
from clusters.operations import examine, register_cluster
from clusters.operations.registration import Wanted
from clusters.queries.networks import visible_networks
from clusters.queries.storages import volume_classes
from foundation.pages import Form, show, typed
from foundation.problems import FieldError, Invalid, NotFound, Problem
from tenancy.engine.roles import Permission
from tenancy.models import NAME_PATTERN
from tenancy.queries import Actor, visible_tenants
from tenancy.web import page

SECRETS = ("kubeconfig", "token", "client_key_pem")
CONTROLS = (
    "name", "tenant", "region", "provider", "labels", "kubeconfig", "server", "ca_pem", "token",
    "client_certificate_pem", "client_key_pem",
)  # fmt: skip
USUAL_RESOURCES = tuple(HUGE_PAGES_MIB)
"""Those in the file."""
NO_NETWORKS = '{name: networks, expression: "[]"}'
NO_CLASSES = '{name: classes, expression: "{}"}'
MANIFEST = Path(__file__).resolve().parent.parent / "access.yaml"
MAX_WORD = 63
MAX_LABELS = 64


@dataclass(frozen=True, slots=True)
class RegisterPage:
    form: Form
    tenants: tuple[tuple[str, str], ...]
    by: str
    """`kubeconfig` or `parts`: the kind of input that the form offers."""


@sensitive_post_parameters(*SECRETS)
@page(takes=("by",))
def register(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Accepts a kubeconfig, or server, authority and credential; the cluster is probed before anything is stored."""
    values = typed(request)
    by = "parts" if (values.get("by") or request.GET.get("by")) == "parts" else "kubeconfig"
    form, status = Form(), 200
    if request.method == "POST":
        try:
            cluster = register_cluster(actor, examine(actor, _wanted(values, by)))
        except Problem as problem:
            shown = {name: value for name, value in values.items() if name not in SECRETS}
            form, status = Form.refused(shown, problem, dict(zip(CONTROLS, CONTROLS, strict=True))), problem.status
        else:
            messages.success(request, f"{cluster.name} is registered. Its nodes appear within seconds.")
            return redirect("cluster", cluster.id)
    tenants = visible_tenants(actor, Permission.MANAGE_CLUSTERS).order_by("path").values_list("path", "path")
    return show(request, "clusters/register.html", RegisterPage(form, tuple(tenants[:500]), by), status=status)


@page(takes=("cluster",))
def access_manifest(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The account that the gateway needs on a cluster, with role and policies, for `kubectl apply`. For a registered cluster, the
    policies allow the network attachments and the StorageClasses that are declared for it; NotFound if the actor may not see it.
    """
    named = {"Content-Disposition": 'attachment; filename="cluster-access.yaml"'}
    text = MANIFEST.read_text(encoding="utf-8").replace(_cel_list(USUAL_RESOURCES), _cel_list(settings.RESOURCES))
    if named_cluster := request.GET.get("cluster"):
        text = text.replace(
            NO_NETWORKS, f"{{name: networks, expression: {_quoted(_attachments(actor, named_cluster))}}}"
        )
        if sizes := volume_classes(actor, UUID(named_cluster)):
            text = text.replace(NO_CLASSES, f"{{name: classes, expression: {_sizes(sizes)}}}")
    return HttpResponse(text, content_type="application/yaml", headers=named)


def _attachments(actor: Actor, cluster_id: str) -> list[str]:
    try:
        found = visible_networks(actor, UUID(cluster_id))
    except ValueError:
        raise NotFound from None
    return [attachment_of(one.namespace, one.definition) for one in found]


def _sizes(classes: Mapping[str, int]) -> str:
    """The expression of the largest volume of each StorageClass, in a string of YAML. Names of classes have no character that ends it."""
    texts = {name: size_text(most_bytes) for name, most_bytes in classes.items()}
    return f"'{json.dumps(texts, sort_keys=True)}'"


def _quoted(names: Sequence[str]) -> str:
    """The expression of such a list in a string of YAML."""
    return f"'{_cel_list(sorted(set(names)))}'"


def _cel_list(names: Sequence[str]) -> str:
    """The expression of the manifest's list. Names of resources have no character that ends a string."""
    return json.dumps(sorted(names))


def _wanted(values: dict[str, str], by: str) -> Wanted:
    errors = []
    if not re.fullmatch(NAME_PATTERN, values.get("name", "")):
        errors.append(FieldError("name", "bad_format", "lower-case letters, digits and '-', at most 63"))
    errors += [
        FieldError(word, "too_long", f"at most {MAX_WORD} characters")
        for word in ("region", "provider")
        if len(values.get(word, "")) > MAX_WORD
    ]
    labels = _labels(values.get("labels", ""), errors)
    if by == "kubeconfig" and not values.get("kubeconfig", "").strip():
        errors.append(FieldError("kubeconfig", "required", "paste the kubeconfig's text"))
    if errors:
        raise Invalid(errors=errors)
    parts = ("server", "ca_pem", "token", "client_certificate_pem", "client_key_pem")
    given = {name: values.get(name, "").strip() for name in parts} if by == "parts" else {}
    return Wanted(
        name=values["name"],
        tenant=values.get("tenant", ""),
        fields=ConnectionFields(**given),
        kubeconfig=values.get("kubeconfig", "") if by == "kubeconfig" else "",
        region=values.get("region", "").strip(),
        provider=values.get("provider", "").strip(),
        labels=labels,
    )


def _labels(text: str, errors: list[FieldError]) -> dict[str, str]:
    """`name=value` by line."""
    pairs = [line.strip().partition("=") for line in text.splitlines() if line.strip()]
    if any(not (name and sign and len(name) <= MAX_WORD and len(value) <= MAX_WORD) for name, sign, value in pairs):
        errors.append(
            FieldError("labels", "bad_format", f"one name=value per line, each at most {MAX_WORD} characters")
        )
    if len(pairs) > MAX_LABELS:
        errors.append(FieldError("labels", "too_many", f"at most {MAX_LABELS}"))
    return {name: value for name, _, value in pairs}

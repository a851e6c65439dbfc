"""The content of this room's pages, as frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import CharField, Count, F, Min, Q, Value
from django.db.models.functions import Cast, Coalesce, Collate, Concat, LPad, Replace

from foundation.clock import now
from foundation.paging import page_of
from tenancy.engine.roles import GRANTS, Permission, Role
from tenancy.models import ApiToken, AuditEntry, RoleBinding, Tenant, User
from tenancy.queries import Actor, audit_watch, bindings_of, permissions_at, visible_tenants

AUDIT_PAGE_SIZE = "50"
PAGE_SIZE = "100"
"""Of tenants, bindings and members."""
MOST_CHILDREN = 100
DEEPEST = 99


@dataclass(frozen=True, slots=True)
class TenantRow:
    """One line of the tree; `indent` counts from the topmost tenant displayed."""

    id: UUID
    name: str
    path: str
    kind: str
    indent: int
    children: int
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TenantsShown:
    rows: tuple[TenantRow, ...]
    next: str | None
    q: str


@dataclass(frozen=True, slots=True)
class BindingRow:
    """`place_id` is the tenant where the role is bound, if that is another one and the viewer may open it."""

    id: UUID
    who: str
    is_group: bool
    role: str
    at: str
    is_inherited: bool
    place_id: UUID | None
    expires_at: datetime | None
    is_expired: bool
    may_take: bool
    may_change: bool


@dataclass(frozen=True, slots=True)
class TenantView:
    """One tenant with everyone who has a role in it, bound there or above."""

    id: UUID
    name: str
    path: str
    kind: str
    labels: Mapping[str, str]
    created_at: datetime
    children: tuple[TenantRow, ...]
    more_children: int
    bindings: tuple[BindingRow, ...]
    next: str | None
    """The cursor of the next page of bindings."""
    above: tuple[tuple[str, UUID | None], ...]
    """Names from the root down, with the id of those that the actor may open."""
    permissions: frozenset[str]


@dataclass(frozen=True, slots=True)
class TokenRow:
    id: UUID
    name: str
    prefix: str
    scopes: tuple[str, ...]
    state: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class AuditRow:
    id: int
    at: datetime
    actor: str
    by_token: bool
    action: str
    outcome: str
    object_kind: str
    object_id: str
    detail: tuple[tuple[str, str], ...]
    request_id: str
    source: str


@dataclass(frozen=True, slots=True)
class AuditPage:
    rows: tuple[AuditRow, ...]
    next: str | None
    filters: Mapping[str, str]
    checked_at: datetime | None
    has_fault: bool


def tenants_shown(actor: Actor, query: Mapping[str, str]) -> TenantsShown:
    """A page of the tenants that the actor may see, parents before children, with the actor's own roles. `q` is part of a
    path.
    """
    q = query.get("q", "").strip().lower()
    visible = visible_tenants(actor)
    top: int = visible.aggregate(top=Min("depth"))["top"] or 0
    roles: dict[str, list[str]] = {}
    for binding in bindings_of(actor):
        roles.setdefault(binding.tenant.path, []).append(binding.role)
    # A blank sorts before every character of a name, so each tenant is followed by all that is below it.
    place = Collate(Replace("path", Value("/"), Value(" ")), "C")
    found = page_of(
        (visible.filter(path__contains=q) if q else visible).annotate(place=place, children_count=Count("children")),
        _first_or_next(query),
        orders={"tree": "place"},
        scope=f"tenants-page|{actor.user_id}|{q}",
        render=lambda tenant: _tenant_row(tenant, tenant.depth - top, roles.get(tenant.path, [])),
    )
    return TenantsShown(tuple(found["items"]), found["next"], q)


def tenant_view(actor: Actor, tenant: Tenant, query: Mapping[str, str]) -> TenantView:
    """The page of one tenant; the caller has checked that the actor may see it."""
    children = visible_tenants(actor).filter(parent=tenant)
    first = children.annotate(children_count=Count("children")).order_by("name")[:MOST_CHILDREN]
    rows = tuple(_tenant_row(child, 0, []) for child in first)
    own = permissions_at(actor, tenant)
    bindings, following = _bindings(actor, tenant, own, query)
    return TenantView(
        id=tenant.id,
        name=tenant.name,
        path=tenant.path,
        kind=tenant.kind,
        labels=dict(tenant.labels),
        created_at=tenant.created_at,
        children=rows,
        more_children=children.count() - len(rows),
        bindings=bindings,
        next=following,
        above=_above(actor, tenant),
        permissions=frozenset(permission.value for permission in own),
    )


def roles_within(own: frozenset[Permission]) -> tuple[tuple[str, str], ...]:
    """The roles that those permissions can give, as options of a control."""
    return tuple((role.value, role.value) for role in Role if GRANTS[role] <= own)


def _bindings(
    actor: Actor, tenant: Tenant, own: frozenset[Permission], query: Mapping[str, str]
) -> tuple[tuple[BindingRow, ...], str | None]:
    """Who has which role here: those bound here first, then upwards, by name."""
    at = now()
    places = dict(visible_tenants(actor).filter(path__in=tenant.path_prefixes).values_list("path", "id"))
    nearest_first = LPad(Cast(DEEPEST - F("tenant__depth"), CharField()), 2, Value("0"))
    who = Coalesce("user__email", "group__name", output_field=CharField())
    key = Collate(
        Concat(nearest_first, who, Value(" "), "role", Value(" "), Cast("id", CharField()), output_field=CharField()),
        "C",
    )
    rows = RoleBinding.objects.filter(tenant__path__in=tenant.path_prefixes).select_related("tenant", "user", "group")
    found = page_of(
        rows.annotate(place_and_name=key),
        _first_or_next(query),
        orders={"nearest": "place_and_name"},
        scope=f"bindings-page|{actor.user_id}|{tenant.id}",
        render=lambda binding: _binding_row(actor, binding, tenant, own, places, at),
    )
    return tuple(found["items"]), found["next"]


def _first_or_next(query: Mapping[str, str]) -> dict[str, str]:
    return {"limit": PAGE_SIZE, **({"cursor": query["cursor"]} if query.get("cursor") else {})}


def tokens_of(actor: Actor) -> tuple[TokenRow, ...]:
    """The actor's own tokens, newest first."""
    at = now()
    return tuple(
        TokenRow(
            id=token.id,
            name=token.name,
            prefix=token.prefix,
            scopes=tuple(token.scopes),
            state=_token_state(token, at),
            created_at=token.created_at,
            expires_at=token.expires_at,
            last_used_at=token.last_used_at,
        )
        for token in ApiToken.objects.filter(user=actor.user_id).order_by("-id")
    )


def audit_page(actor: Actor, query: Mapping[str, str]) -> AuditPage:
    """Entries of the tenants whose trail the actor may read (an operator: all), newest first."""
    filters = {name: query.get(name, "").strip() for name in ("actor", "action", "object")}
    entries = AuditEntry.objects.all()
    if not actor.is_operator:
        readable = visible_tenants(actor, Permission.VIEW_AUDIT).values("id")
        entries = entries.filter(Q(tenant_id__in=readable) | Q(actor_id=actor.user_id))
    if filters["actor"]:
        entries = entries.filter(actor_name__icontains=filters["actor"])
    if filters["action"]:
        entries = entries.filter(action__startswith=filters["action"])
    if filters["object"]:
        entries = entries.filter(Q(object_kind=filters["object"]) | Q(object_id=filters["object"]))
    found = page_of(
        entries,
        {**_first_or_next(query), "limit": AUDIT_PAGE_SIZE},
        orders={"newest": "-id"},
        scope=f"audit-page|{actor.user_id}|{sorted(filters.items())}",
        render=_audit_row,
    )
    watch = audit_watch()
    return AuditPage(
        rows=tuple(found["items"]),
        next=found["next"],
        filters=filters,
        checked_at=watch.checked_at,
        has_fault=bool(watch.fault),
    )


def _tenant_row(tenant: Tenant, indent: int, roles: list[str]) -> TenantRow:
    children: int = tenant.children_count  # type: ignore[attr-defined]
    return TenantRow(tenant.id, tenant.name, tenant.path, tenant.kind, indent, children, tuple(sorted(roles)))


def _above(actor: Actor, tenant: Tenant) -> tuple[tuple[str, UUID | None], ...]:
    paths = tenant.path_prefixes[:-1]
    open_ones = dict(visible_tenants(actor).filter(path__in=paths).values_list("path", "id"))
    return tuple((path.rpartition("/")[2], open_ones.get(path)) for path in paths)


def _binding_row(
    actor: Actor,
    binding: RoleBinding,
    tenant: Tenant,
    own: frozenset[Permission],
    places: Mapping[str, UUID],
    at: datetime,
) -> BindingRow:
    is_inherited = binding.tenant_id != tenant.id
    within = Permission.MANAGE_TENANTS in own and GRANTS[Role(binding.role)] <= own
    return BindingRow(
        id=binding.id,
        who=holder_of(binding),
        is_group=binding.user is None,
        role=binding.role,
        at=binding.tenant.path,
        is_inherited=is_inherited,
        place_id=places.get(binding.tenant.path) if is_inherited else None,
        expires_at=binding.expires_at,
        is_expired=binding.expires_at is not None and binding.expires_at <= at,
        may_take=within and not is_inherited,
        may_change=within and not is_inherited and (binding.user is not None or actor.is_operator or actor.is_staff),
    )


def holder_of(binding: RoleBinding) -> str:
    """The email or the group's name."""
    return binding.user.email if binding.user else binding.group.name if binding.group else ""


def _token_state(token: ApiToken, at: datetime) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and token.expires_at <= at else "active"


def _audit_row(entry: AuditEntry) -> AuditRow:
    detail: dict[str, Any] = entry.detail if isinstance(entry.detail, dict) else {"detail": entry.detail}
    return AuditRow(
        id=entry.id,
        at=entry.at,
        actor=entry.actor_name,
        by_token=entry.token_id is not None,
        action=entry.action,
        outcome=entry.outcome,
        object_kind=entry.object_kind,
        object_id=entry.object_id,
        detail=tuple((name, _text(value)) for name, value in detail.items() if value not in (None, "", [], {})),
        request_id=entry.request_id,
        source=entry.source or "",
    )


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, Mapping):
        return ", ".join(f"{name.replace('_', ' ')} {_text(item)}" for name, item in value.items())
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)


def live_tokens_of(user: User) -> int:
    """The number of tokens that act for the user now."""
    unexpired = Q(expires_at__isnull=True) | Q(expires_at__gt=now())
    return ApiToken.objects.filter(unexpired, user=user, revoked_at__isnull=True).count()

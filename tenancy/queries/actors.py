"""Actors, and what they may see and do. Read-only."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db import connection, transaction
from django.db.models import BooleanField, F, Func, Model, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Concat

from foundation.clock import now
from foundation.problems import NotFound, PermissionDenied
from tenancy.engine.chain import BEGINNING, Anchor, LinkSeen
from tenancy.engine.roles import Permission, Scope, permissions_of, reach_of
from tenancy.models import (
    MAX_DEPTH,
    ApiToken,
    AuditEntry,
    AuditLink,
    AuditWatch,
    Membership,
    RoleBinding,
    Tenant,
    User,
)

MAX_PATH_LENGTH = 1100


def _columns(model: type[Model], *wanted: str) -> list[str]:
    """Those columns in the model's order, as `from_db` expects them; the others are loaded on access."""
    return [field.attname for field in model._meta.concrete_fields if field.attname in wanted]


_TENANT_COLUMNS = _columns(Tenant, "id", "parent_id", "kind", "name", "path", "depth", "created_at")
_ABOVE = tuple(f"above_{depth}" for depth in range(MAX_DEPTH))
_TENANT_AND_ROLES = f"""
    SELECT {", ".join(f"tenant.{column}" for column in _TENANT_COLUMNS)}, ARRAY(
        SELECT binding.role FROM tenancy_rolebinding AS binding
          JOIN tenancy_tenant AS place ON place.id = binding.tenant_id
          JOIN tenancy_user AS person ON person.id = %(user_id)s AND person.is_active
         WHERE place.path IN ({", ".join(f"%({name})s" for name in _ABOVE)})
           AND (binding.expires_at IS NULL OR binding.expires_at > %(at)s)
           AND (binding.user_id = person.id
                OR binding.group_id IN (SELECT group_id FROM tenancy_user_groups WHERE user_id = person.id)
                   AND EXISTS (SELECT FROM tenancy_membership AS belonging
                                WHERE belonging.user_id = person.id
                                  AND belonging.organisation_id = binding.organisation_id))
    ) AS roles_held
      FROM tenancy_tenant AS tenant WHERE tenant.path = %(path)s
"""
"""As the query of `_bindings_in_force`, written by hand: every submit needs it, and composing it costs more than
running it. The number of paths is fixed, since PostgreSQL plans a statement with an array of changing length each time.
"""
_TOKEN_COLUMNS = _columns(
    ApiToken, "id", "user_id", "name", "prefix", "created_at", "expires_at", "last_used_at", "revoked_at"
)
_USER_COLUMNS = _columns(User, "id", "email", "display_name", "is_active", "is_staff", "is_superuser", "created_at")
_TOKEN_AND_USER = f"""
    SELECT {", ".join(f"token.{column}" for column in _TOKEN_COLUMNS)},
           ARRAY(SELECT jsonb_array_elements_text(token.scopes)),
           {", ".join(f"person.{column}" for column in _USER_COLUMNS)}
      FROM tenancy_apitoken AS token JOIN tenancy_user AS person ON person.id = token.user_id
     WHERE token.digest = %s
"""
"""Written by hand, because every request with a token needs it."""
_LINKS = """
    SELECT link.position, link.hash, link.entry_id,
           entry.id::text, to_char(entry.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), entry.actor_id::text,
           entry.actor_name, entry.token_id::text, entry.action, entry.outcome, entry.object_kind, entry.object_id,
           entry.tenant_id::text, entry.detail::text, entry.request_id, entry.source::text
      FROM tenancy_auditlink AS link LEFT JOIN tenancy_auditentry AS entry ON entry.id = link.entry_id
     WHERE link.position > %s ORDER BY link.position LIMIT %s
"""
"""The columns of an entry in the order in which the chain's trigger hashes them."""
ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
EVER = datetime.min.replace(tzinfo=UTC)
"""No requirement on the duration of a role."""
GOES_ALONG = frozenset({"RoleBinding", "IdempotencyRecord", "Membership", "OneTimeLink"})
"""Rows that are removed together with their tenant."""


@dataclass(frozen=True, slots=True)
class Actor:
    """The user or system behind a request. `scopes` restrict what a token's user may do (empty: no restriction).

    An operator (`is_operator`) is the platform itself or a superuser: every permission at every tenant. `is_staff` may
    create organisations and use the operators' admin, and sees no tenant without a role there.
    """

    user_id: UUID | None
    name: str
    token_id: UUID | None = None
    scopes: frozenset[str] = frozenset()
    is_operator: bool = False
    is_staff: bool = False

    @property
    def reach(self) -> frozenset[Permission]:
        """The most that this actor may do anywhere, by its token's scopes."""
        return reach_of(self.scopes)

    def may_administer_itself(self) -> bool:
        """Whether the token, if any, may change its user's own settings (such as tokens)."""
        return not self.scopes or Scope.ADMIN in self.scopes

    @property
    def runs_the_installation(self) -> bool:
        """Whether the actor may act on all organisations."""
        return (self.is_operator or self.is_staff) and self.may_administer_itself()


SYSTEM = Actor(user_id=None, name="system", is_operator=True)


class NotAllowedHere(PermissionDenied):
    """The tenant may be seen, but not that."""

    def __init__(self, tenant: Tenant, permission: Permission) -> None:
        super().__init__(f"This needs the permission {permission.value} at {tenant.path}.")
        self.tenant_id = tenant.id


def actor_for(user: User, token: ApiToken | None = None) -> Actor:
    """The user as an actor, restricted by the token that they used."""
    return Actor(
        user_id=user.id,
        name=user.email,
        token_id=token.id if token else None,
        scopes=frozenset(token.scopes) if token else frozenset(),
        is_operator=user.is_superuser,
        is_staff=user.is_staff,
    )


def token_of(digest: bytes) -> ApiToken | None:
    """The token with this digest, including revoked and expired ones, with its user; only the columns that a request
    needs.
    """
    with connection.cursor() as cursor:
        cursor.execute(_TOKEN_AND_USER, [digest])
        row = cursor.fetchone()
    if row is None:
        return None
    split = len(_TOKEN_COLUMNS)
    token = ApiToken.from_db(connection.alias, _TOKEN_COLUMNS, row[:split])
    token.scopes, token.user = row[split], User.from_db(connection.alias, _USER_COLUMNS, row[split + 1 :])
    return token


def tenant_by_path(actor: Actor, path: str, permission: Permission = Permission.VIEW) -> Tenant:
    """The tenant at `path`; NotFound if the actor may not see it, NotAllowedHere if they may but lack `permission`."""
    names = path.split("/")
    if not path or len(path) > MAX_PATH_LENGTH or len(names) > MAX_DEPTH or "\x00" in path:
        raise NotFound
    above = ["/".join(names[:length]) for length in range(1, MAX_DEPTH + 1)]  # the last ones are all `path`
    asked = {"path": path, "user_id": actor.user_id, "at": now(), **dict(zip(_ABOVE, above, strict=True))}
    with connection.cursor() as cursor:
        cursor.execute(_TENANT_AND_ROLES, asked)
        row = cursor.fetchone()
    if row is None:
        raise NotFound
    *values, roles = row
    tenant = Tenant.from_db(connection.alias, _TENANT_COLUMNS, values)
    tenant.roles_held = roles
    return _admit(actor, tenant, permission)


def tenant_by_id(actor: Actor, tenant_id: UUID, permission: Permission = Permission.VIEW) -> Tenant:
    """As `tenant_by_path`."""
    below = Func(
        OuterRef("path"), Concat(F("tenant__path"), Value("/")), function="starts_with", output_field=BooleanField()
    )
    roles = _bindings_in_force(actor).filter(Q(tenant_id=OuterRef("id")) | Q(below))
    held = ArraySubquery(roles.order_by().values("role"))
    tenant = Tenant.objects.filter(id=tenant_id).annotate(found_roles=held).first()
    if tenant is None:
        raise NotFound
    tenant.roles_held = tenant.found_roles or ()  # null for the system, which has none
    return _admit(actor, tenant, permission)


def tenant_named(actor: Actor, name: str, permission: Permission = Permission.VIEW) -> Tenant:
    """As `tenant_by_path`, or by id if the name is a UUID."""
    return (
        tenant_by_id(actor, UUID(name), permission) if ID.fullmatch(name) else tenant_by_path(actor, name, permission)
    )


def permissions_at(actor: Actor, tenant: Tenant, *, until: datetime | None = EVER) -> frozenset[Permission]:
    """What the actor may do at the tenant: roles there and above, restricted by the token's scopes.

    With `until`, only roles that last at least to that time count (None: those without an end).
    """
    if actor.is_operator:
        return actor.reach
    roles = _bindings_in_force(actor).filter(tenant__path__in=tenant.path_prefixes)
    if until is not EVER:
        lasting = Q(expires_at__isnull=True)
        roles = roles.filter(lasting if until is None else lasting | Q(expires_at__gte=until))
    return permissions_of(roles.values_list("role", flat=True)) & actor.reach


def require_operator(actor: Actor, act: str) -> None:
    """Returns for operators of the installation; otherwise raises PermissionDenied, which names the action."""
    if not actor.runs_the_installation:
        raise PermissionDenied(f"Only operators of this installation can {act}.")


def require(actor: Actor, tenant: Tenant, permission: Permission) -> None:
    """Returns if the actor has the permission; otherwise raises NotFound (may not even see it) or NotAllowedHere."""
    _judge(tenant, permissions_at(actor, tenant), permission, sees=None)


def visible_tenants(actor: Actor, permission: Permission = Permission.VIEW) -> QuerySet[Tenant]:
    """Tenants where the actor has `permission`: those bound directly and everything below them."""
    if permission not in actor.reach:
        return Tenant.objects.none()
    if actor.is_operator:
        return Tenant.objects.all()
    wanted = Q(pk__in=[])
    for path in _roots_of(_bindings_in_force(actor), permission):
        wanted |= Q(path=path) | Q(path__startswith=f"{path}/")
    return Tenant.objects.filter(wanted)


def bindings_of(actor: Actor) -> QuerySet[RoleBinding]:
    """The actor's current bindings, with their tenants, by path."""
    return _bindings_in_force(actor).select_related("tenant", "group").order_by("tenant__path", "role", "id")


def what_hangs_on(tenant: Tenant) -> list[str]:
    """Names of the kinds of rows, in every room, that refer to the tenant and prevent its removal."""
    hanging = []
    for relation in Tenant._meta.related_objects:
        kind = relation.related_model
        if kind.__name__ not in GOES_ALONG and kind._base_manager.filter(**{relation.field.name: tenant}).exists():
            hanging.append(str(kind._meta.verbose_name_plural))
    return sorted(hanging)


def bindings_at(tenant: Tenant) -> QuerySet[RoleBinding]:
    """Roles bound at the tenant itself, expired ones included."""
    return RoleBinding.objects.filter(tenant=tenant).select_related("tenant", "user", "group")


def tokens_of(actor: Actor) -> QuerySet[ApiToken]:
    """The actor's own tokens, revoked and expired ones included."""
    return ApiToken.objects.filter(user_id=actor.user_id) if actor.user_id else ApiToken.objects.none()


def audit_trail(actor: Actor) -> QuerySet[AuditEntry]:
    """Entries of tenants whose audit trail the actor may view, and the actor's own actions that concern no tenant."""
    entries = AuditEntry.objects.select_related("link")
    if Permission.VIEW_AUDIT not in actor.reach:
        return entries.none()
    if actor.is_operator:
        return entries
    own = Q(tenant_id__isnull=True, actor_id=actor.user_id)
    return entries.filter(own | Q(tenant_id__in=visible_tenants(actor, Permission.VIEW_AUDIT).values("id")))


def audit_links(*, after: int = 0, most: int | None = None) -> Iterator[LinkSeen]:
    """Links of the audit trail by position, with their entries' columns as the chain hashes them; streamed.

    All of them, or a limited number after a position.
    """
    with transaction.atomic(), connection.chunked_cursor() as cursor:
        cursor.execute(_LINKS, [after, most])
        while rows := cursor.fetchmany(2000):
            for position, digest, entry_id, *texts in rows:
                *always, source = texts
                # A source is hashed only if there is one: entries from before sources were recorded still verify.
                columns_of_entry = always if source is None else texts
                seen = None if texts[0] is None else [text or "" for text in columns_of_entry]
                yield LinkSeen(position, bytes(digest), entry_id, seen)


def unchained_entries(*, behind: int = 0) -> list[int]:
    """Ids of the first entries of the audit trail without a link; only of those added since the link at `behind`."""
    since = AuditLink.objects.filter(position=behind).values_list("entry_id", flat=True).first() or 0
    entries = AuditEntry.objects.filter(id__gt=since, link__isnull=True)
    return list(entries.order_by("id").values_list("id", flat=True)[:20])


def audit_head() -> tuple[int, bytes] | None:
    """Position and hash of the newest link: record these elsewhere to prove later that nothing was cut off."""
    link = AuditLink.objects.order_by("-position").first()
    return None if link is None else (link.position, bytes(link.hash))


def audit_link_at(position: int) -> Anchor | None:
    """The current link at a position; position 0 is the beginning."""
    if position == 0:
        return BEGINNING
    link = AuditLink.objects.filter(position=position).first()
    return None if link is None else Anchor(link.position, bytes(link.hash))


def audit_watch() -> AuditWatch:
    """How far the trail was verified and recorded elsewhere, and the errors found."""
    return AuditWatch.objects.first() or AuditWatch()


def _bindings_in_force(actor: Actor) -> QuerySet[RoleBinding]:
    """Bindings that have not expired, of the user and of their groups in organisations that they belong to.

    An inactive user has none.
    """
    if actor.user_id is None:
        return RoleBinding.objects.none()
    unexpired = Q(expires_at__isnull=True) | Q(expires_at__gt=now())
    groups = User.groups.through.objects.filter(user_id=actor.user_id, user__is_active=True).values("group_id")
    organisations = Membership.objects.filter(user_id=actor.user_id).values("organisation_id")
    return RoleBinding.objects.filter(unexpired).filter(
        Q(user_id=actor.user_id, user__is_active=True) | Q(group_id__in=groups, organisation_id__in=organisations)
    )


def _admit(actor: Actor, tenant: Tenant, permission: Permission) -> Tenant:
    everything = frozenset(Permission) if actor.is_operator else permissions_of(tenant.roles_held)
    _judge(tenant, everything & actor.reach, permission, sees=Permission.VIEW in everything)
    return tenant


def _judge(tenant: Tenant, held: frozenset[Permission], permission: Permission, *, sees: bool | None) -> None:
    if permission in held:
        return
    if Permission.VIEW in held or sees:
        raise NotAllowedHere(tenant, permission)
    raise NotFound


def _roots_of(bindings: QuerySet[RoleBinding], permission: Permission) -> Sequence[str]:
    """The topmost paths with a role that grants the permission."""
    granting = [
        path for path, role in bindings.values_list("tenant__path", "role") if permission in permissions_of([role])
    ]
    roots: list[str] = []
    for path in sorted(set(granting), key=lambda path: path.split("/")):
        if not (roots and path.startswith(f"{roots[-1]}/")):
            roots.append(path)
    return roots

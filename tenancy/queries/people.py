"""People: whom an actor may see, for whom they may act, and one-time links. Read-only."""

from uuid import UUID

from django.db.models import Q, QuerySet

from foundation.clock import now
from foundation.problems import NotFound
from tenancy.engine.roles import GRANTS, Permission, Role
from tenancy.models import Membership, OneTimeLink, RoleBinding, Tenant, User

from .actors import Actor, actor_for, permissions_at, visible_tenants


def visible_people(actor: Actor) -> QuerySet[User]:
    """The actor, and everyone in an organisation in which the actor binds roles somewhere; for operators everybody."""
    own = Q(pk=actor.user_id)
    if not actor.may_administer_itself():
        return User.objects.filter(own)
    if actor.is_operator or actor.is_staff:
        return User.objects.all()
    members = Membership.objects.filter(organisation__in=_organisations_managed(actor)).values("user_id")
    return User.objects.filter(own | Q(pk__in=members))


def person_by_id(actor: Actor, person_id: UUID) -> User:
    """The person; NotFound both for one that the actor may not see and one that does not exist."""
    person = visible_people(actor).filter(id=person_id).first()
    if person is None:
        raise NotFound
    return person


def memberships_known(actor: Actor) -> QuerySet[Membership]:
    """Memberships of people in organisations that the actor may see."""
    known = Membership.objects.select_related("organisation").order_by("organisation__path")
    if actor.is_operator or actor.is_staff:
        return known
    return known.filter(Q(user_id=actor.user_id) | Q(organisation__in=_organisations_managed(actor)))


def organisations_of(actor: Actor, person: User) -> list[Tenant]:
    """Organisations of the person that the actor may see."""
    return [membership.organisation for membership in memberships_known(actor).filter(user=person)]


def administers(actor: Actor, organisation: Tenant) -> bool:
    """Whether the actor may do everything in the organisation."""
    return permissions_at(actor, organisation) == frozenset(Permission)


def permanent_admins(organisation: Tenant, *, without: RoleBinding | None = None) -> QuerySet[User]:
    """Active people with the role admin at the organisation itself, without an end, theirs or of one of their groups;
    as if `without` were not bound.
    """
    bindings = RoleBinding.objects.filter(tenant=organisation, role=Role.ADMIN, expires_at__isnull=True)
    if without is not None:
        bindings = bindings.exclude(id=without.id)
    groups = bindings.filter(group__isnull=False).values("group_id")
    of_groups = User.groups.through.objects.filter(group_id__in=groups).values("user_id")
    members = Membership.objects.filter(organisation=organisation).values("user_id")
    people = bindings.filter(user__isnull=False).values("user_id")
    return User.objects.filter(is_active=True, id__in=members).filter(Q(id__in=people) | Q(id__in=of_groups))


def may_help(actor: Actor, person: User) -> bool:
    """Whether the actor may make a link with which the person sets a password, end their sessions, and edit their
    details.

    Never for oneself, nor with a restricted token. A superuser (and the console) may for everybody. Only they may for
    staff and superusers. Other staff may for people whose roles allow no more than the staff's own roles there. An
    organisation's admin may for people who belong only to organisations that this admin administers.
    """
    if actor.user_id == person.id or not actor.may_administer_itself():
        return False
    if actor.is_operator:
        return True
    if person.is_staff or person.is_superuser:
        return False
    return (actor.is_staff and _holds_no_less(actor, person)) or _administers_all_of(actor, person)


def pending_invitations(tenant: Tenant) -> QuerySet[OneTimeLink]:
    """Invitations to the tenant that can still be accepted."""
    return OneTimeLink.objects.filter(
        tenant=tenant, used_at__isnull=True, ended_at__isnull=True, expires_at__gt=now()
    ).select_related("tenant", "made_by")


def live_link(digest: bytes) -> OneTimeLink | None:
    """The one-time link with this digest, if it was not used or ended and has not expired."""
    live = OneTimeLink.objects.filter(used_at__isnull=True, ended_at__isnull=True, expires_at__gt=now())
    return live.filter(digest=digest).select_related("tenant", "user", "made_by").first()


def link_holds(link: OneTimeLink) -> bool:
    """Whether the link's creator could still create it: their roles, and the recipient's, may have changed
    since then.
    """
    if link.user is not None and not link.user.is_active:
        return False
    if link.made_by is None:
        return True
    maker = actor_for(link.made_by)
    if not link.made_by.is_active:
        return False
    if link.user is not None:
        return may_help(maker, link.user)
    assert link.tenant is not None
    until = link.role_expires_at
    own = permissions_at(maker, link.tenant, until=until)
    return (until is None or until > now()) and GRANTS[Role(link.role)] | {Permission.MANAGE_TENANTS} <= own


def _organisations_managed(actor: Actor) -> QuerySet[Tenant]:
    """Organisations in which the actor may bind roles, at any depth."""
    managed = visible_tenants(actor, Permission.MANAGE_TENANTS).values_list("path", flat=True)
    return Tenant.objects.filter(path__in={path.partition("/")[0] for path in managed})


def _holds_no_less(actor: Actor, person: User) -> bool:
    """Whether the actor has all permissions of the person's roles, where those apply."""
    unexpired = Q(expires_at__isnull=True) | Q(expires_at__gt=now())
    groups = User.groups.through.objects.filter(user_id=person.id).values("group_id")
    theirs = RoleBinding.objects.filter(unexpired).filter(Q(user=person) | Q(group_id__in=groups))
    bindings = theirs.select_related("tenant")
    return all(GRANTS[Role(binding.role)] <= permissions_at(actor, binding.tenant) for binding in bindings)


def _administers_all_of(actor: Actor, person: User) -> bool:
    theirs = list(Tenant.objects.filter(memberships__user=person))
    return bool(theirs) and all(administers(actor, organisation) for organisation in theirs)

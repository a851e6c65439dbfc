"""Users, and the first set-up of an installation. These run at the console, by anyone with access to the host."""

from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import Group, Permission
from django.db import transaction

from tenancy.engine.roles import Role, Scope
from tenancy.locks import hold_tree
from tenancy.models import ApiToken, RoleBinding, Tenant, User
from tenancy.queries import SYSTEM

from .access import check_email, check_password_rules
from .audit import record_audit
from .links import make_link
from .memberships import join
from .tenants import create_tenant
from .tokens import issue_token

OPERATORS = "operators"
FIRST_TOKEN = "bootstrap"  # noqa: S105 - the name of a token, not its secret


@dataclass(frozen=True, slots=True)
class FirstSetUp:
    """The result of a bootstrap; `secret` is a token's and `link` a one-time link's, each empty unless it
    was created.
    """

    organisation: Tenant
    user: User
    secret: str
    secret_expires_at: datetime | None
    link: str


def ensure_user(email: str, *, display_name: str = "", password: str | None = None) -> User:
    """The user with this email, created if necessary; a given password replaces the current one.

    Raises Invalid for an email or password that is not allowed.
    """
    email = email.strip().lower()
    check_email(email)
    if password is not None:
        check_password_rules(password)
    with transaction.atomic():
        user = User.objects.filter(email=email).first()
        if user is None:
            user = User(email=email, display_name=display_name)
            user.set_unusable_password()
            user.save(force_insert=True)
            record_audit(SYSTEM, "user.create", object_kind="user", object_id=user.id, detail={"email": email})
        if password is not None and not user.check_password(password):
            user.set_password(password)
            user.save(update_fields=["password"])
            record_audit(SYSTEM, "user.set_password", object_kind="user", object_id=user.id)
    return user


def give_role(user: User, tenant: Tenant, role: Role) -> None:
    """Binds the role permanently unless it already is; the user joins the organisation if necessary."""
    with transaction.atomic():
        join(SYSTEM, user, Tenant.objects.get(path=tenant.path_prefixes[0]))
        binding, is_new = RoleBinding.objects.get_or_create(tenant=tenant, user=user, role=role)
        if not is_new and binding.expires_at is None:
            return
        RoleBinding.objects.filter(id=binding.id).update(expires_at=None)
        detail = {"role": role.value, "user": user.email}
        record_audit(
            SYSTEM, "role.bind", object_kind="role_binding", object_id=binding.id, tenant_id=tenant.id, detail=detail
        )


def give_token(user: User, name: str, *scopes: Scope, expires_at: datetime | None = None) -> str:
    """The secret of a new token for the user."""
    with transaction.atomic():
        token, secret = issue_token(user, name=name, scopes=scopes, expires_at=expires_at)
        detail = {"name": name, "prefix": token.prefix, "user": user.email}
        record_audit(SYSTEM, "token.create", object_kind="token", object_id=token.id, detail=detail)
    return secret


def bootstrap(
    organisation: str,
    email: str,
    *,
    password: str | None = None,
    wants_token: bool = False,
    token_expires_at: datetime | None = None,
    wants_link: bool = False,
) -> FirstSetUp:
    """The organisation, and its first admin, who is also an operator of this installation; running it again changes
    nothing.

    The first run creates a token, and a link to set a password unless there is one; later runs create only what is
    requested.
    """
    with transaction.atomic():
        hold_tree()
        tenant = Tenant.objects.filter(path=organisation).first()
        if tenant is None:
            tenant = create_tenant(SYSTEM, name=organisation, kind=Tenant.Kind.ORGANISATION)
        user = ensure_user(email, password=password)
        if not (user.is_staff and user.is_active):
            User.objects.filter(id=user.id).update(is_staff=True, is_active=True)
            record_audit(SYSTEM, "user.make_operator", object_kind="user", object_id=user.id)
        user.groups.add(_operators())
        give_role(user, tenant, Role.ADMIN)
        has_token = ApiToken.objects.filter(user=user, name=FIRST_TOKEN).exists()
        wants_token = wants_token or not has_token
        secret = give_token(user, FIRST_TOKEN, expires_at=token_expires_at) if wants_token else ""
        wants_link = wants_link or not (has_token or user.has_usable_password())
        link = make_link(SYSTEM, user.id)[1] if wants_link else ""
    return FirstSetUp(tenant, user, secret, token_expires_at if secret else None, link)


def _operators() -> Group:
    """The group whose members have full access to the operators' admin."""
    group, _ = Group.objects.get_or_create(name=OPERATORS)
    group.permissions.set(Permission.objects.all())
    return group

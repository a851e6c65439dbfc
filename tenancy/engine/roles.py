"""The permissions of each role. A role is bound at a tenant and applies to everything below it."""

from collections.abc import Iterable
from enum import StrEnum


class Role(StrEnum):
    VIEWER = "viewer"
    SUBMITTER = "submitter"
    MANAGER = "manager"
    FINANCE = "finance"
    ADMIN = "admin"


class Permission(StrEnum):
    VIEW = "view"
    """See the tenant, its jobs, quotas and usage."""
    SUBMIT = "submit"
    """Submit jobs and cancel your own."""
    MANAGE_JOBS = "manage_jobs"
    """Cancel any user's jobs."""
    OPEN_SESSIONS = "open_sessions"
    """Open any user's sessions."""
    MANAGE_QUOTAS = "manage_quotas"
    RESERVE = "reserve"
    """Reserve nodes in advance for the tenant and everyone below it."""
    MANAGE_PRICES = "manage_prices"
    CLOSE_PERIOD = "close_period"
    """Close and reopen months of the organisation's ledger."""
    ISSUE_INVOICE = "issue_invoice"
    """Issue invoices, statements and credit notes, and set their terms."""
    DISPUTE_CHARGE = "dispute_charge"
    """Remark on lines of documents, and dispute them."""
    MANAGE_HOOKS = "manage_hooks"
    """Have alerts of the tenant and everything below it posted to a server."""
    MANAGE_TENANTS = "manage_tenants"
    """Change the tree and bind roles."""
    MANAGE_CLUSTERS = "manage_clusters"
    VIEW_AUDIT = "view_audit"


class Scope(StrEnum):
    """The most that a token may be used for; its user's roles still decide where."""

    READ = "read"
    WRITE = "write"
    """Also run jobs."""
    ADMIN = "admin"
    """Everything that its user may do."""


GRANTS: dict[Role, frozenset[Permission]] = {
    Role.VIEWER: frozenset({Permission.VIEW}),
    Role.SUBMITTER: frozenset({Permission.VIEW, Permission.SUBMIT}),
    Role.MANAGER: frozenset(
        {
            Permission.VIEW,
            Permission.SUBMIT,
            Permission.MANAGE_JOBS,
            Permission.MANAGE_QUOTAS,
            Permission.RESERVE,
            Permission.DISPUTE_CHARGE,
            Permission.MANAGE_HOOKS,
            Permission.MANAGE_TENANTS,
            Permission.VIEW_AUDIT,
        }
    ),
    Role.FINANCE: frozenset(
        {
            Permission.VIEW,
            Permission.MANAGE_PRICES,
            Permission.CLOSE_PERIOD,
            Permission.ISSUE_INVOICE,
            Permission.DISPUTE_CHARGE,
            Permission.MANAGE_HOOKS,
            Permission.VIEW_AUDIT,
        }
    ),
    Role.ADMIN: frozenset(Permission),
}
REACH: dict[Scope, frozenset[Permission]] = {
    Scope.READ: frozenset({Permission.VIEW, Permission.VIEW_AUDIT}),
    Scope.WRITE: frozenset({Permission.VIEW, Permission.VIEW_AUDIT, Permission.SUBMIT, Permission.MANAGE_JOBS}),
    Scope.ADMIN: frozenset(Permission),
}


def permissions_of(roles: Iterable[str]) -> frozenset[Permission]:
    """Everything that the roles together allow."""
    return frozenset().union(*(GRANTS[Role(role)] for role in roles))


def reach_of(scopes: Iterable[str]) -> frozenset[Permission]:
    """The most that a token with these scopes may be used for; without scopes there is no restriction."""
    names = frozenset(scopes)
    return frozenset().union(*(REACH[Scope(name)] for name in names)) if names else frozenset(Permission)

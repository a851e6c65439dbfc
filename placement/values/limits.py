"""Quota limits as a cycle sees them."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class LimitState:
    """A quota limit and the amount held against it, in base units (milli-GPU, millicores, MiB).

    `cap` is the most that may be held, with what may be borrowed; `nominal` is without, None if that is not known.
    `guaranteed` counts at the next limit of equal resource and scope above, whether it is held or not.
    """

    id: UUID
    tenant_path: str
    resource: str
    clusters: tuple[str, ...]
    cap: int
    held: int
    guaranteed: int = 0
    nominal: int | None = None
    reclaims: bool = False
    """Whether jobs within `nominal` may stop jobs of tenants that borrow from it."""
    user: UUID | None = None
    """Whose share of a limit on each user it is; None for a limit on the tenant."""
    class_name: str = ""
    """The priority class whose jobs it limits, at the tenant and below it or, without a path, of all tenants together. Empty for a
    limit on all work of a tenant or on users.
    """


@dataclass(frozen=True, slots=True)
class UserLimitState:
    """How much of a resource each user may hold at a tenant and below it, and what users hold there, in base units."""

    id: UUID
    tenant_path: str
    resource: str
    most: int
    held: Mapping[UUID, int]
    """Without users who hold nothing."""

    def of(self, user: UUID) -> LimitState:
        """The limit as it stands for this user. What the user's own job gives back makes no room above `most`."""
        held = self.held.get(user, 0)
        return LimitState(self.id, self.tenant_path, self.resource, (), self.most, held, nominal=self.most, user=user)

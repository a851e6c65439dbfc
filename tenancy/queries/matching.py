"""Which tenants a partly typed path means, and which tenant a form selects by default."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db.models import Q, QuerySet

from tenancy.models import Tenant

from .actors import MAX_PATH_LENGTH, Actor, visible_tenants

MOST_NAMED = 12
MOST_SUGGESTED = 500


@dataclass(frozen=True, slots=True)
class TenantMatch:
    """The tenants that a typed text means, with everything below them.

    `named` are the topmost of them by path, the first MOST_NAMED of `count`. It is empty if the text is empty or a
    whole path, which `is_exact` says.
    """

    typed: str
    tenants: QuerySet[Tenant]
    is_exact: bool
    named: tuple[str, ...] = ()
    count: int = 0

    @property
    def path(self) -> str:
        """The one path that represents the match, as the API takes it; empty if the text is, or if there is no such
        path.
        """
        return self.typed.strip("/ ") if self.is_exact else self.named[0] if self.count == 1 else ""


def match_tenants(actor: Actor, typed: str) -> TenantMatch:
    """Of the tenants that the actor may see: the one at the typed path, else those whose path contains the text; all
    for no text.

    A part matches regardless of case. Text without a match is no error: `count` is 0, and `tenants` is empty.
    """
    visible = visible_tenants(actor)
    text = typed.strip("/ ")[:MAX_PATH_LENGTH]
    if not text:
        return TenantMatch(typed, visible, is_exact=True)
    if visible.filter(path=text).exists():
        return TenantMatch(typed, visible.filter(Q(path=text) | Q(path__startswith=f"{text}/")), is_exact=True)
    containing = visible.filter(path__icontains=text)
    named = topmost(containing.values_list("path", flat=True))
    return TenantMatch(typed, containing, is_exact=False, named=named[:MOST_NAMED], count=len(named))


def topmost(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths that are not below another of them, in the order of the tree."""
    found: list[str] = []
    for path in sorted(paths, key=lambda path: path.split("/")):
        if not (found and path.startswith(f"{found[-1]}/")):
            found.append(path)
    return tuple(found)


def first_choice(paths: Sequence[str], *, asked: str = "", last_used: str | None = None) -> str:
    """The tenant that a form selects by default, of the `paths` it offers; empty if the user has to choose.

    It is the requested one, by its path or by a part that only one has; else the last one used; else the deepest, if
    there is only one. So no cost goes to an organisation just because it is first in the list.
    """
    asked = asked.strip("/ ")
    if asked:
        meant = (asked,) if asked in paths else topmost(path for path in paths if asked.casefold() in path.casefold())
        return meant[0] if len(meant) == 1 else ""
    if last_used and last_used in paths:
        return last_used
    depth = max((path.count("/") for path in paths), default=0)
    deepest = [path for path in paths if path.count("/") == depth]
    return deepest[0] if len(deepest) == 1 else ""


def path_suggestions(actor: Actor) -> tuple[tuple[str, str], ...]:
    """The suggestions of a filter by tenant: the first MOST_SUGGESTED paths that the actor may see."""
    paths = visible_tenants(actor).order_by("path").values_list("path", flat=True)
    return tuple((path, "") for path in paths[:MOST_SUGGESTED])


def tenant_choices(paths: Sequence[str], chosen: str) -> tuple[tuple[str, str], ...]:
    """The options of a form's tenant, with an empty one first while none is selected; none if there are no paths."""
    blank = () if chosen in paths or not paths else (("", "Choose a tenant"),)
    return (*blank, *((path, path) for path in paths))

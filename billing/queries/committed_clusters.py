"""The clusters that an organisation's commitments name in files."""

from collections.abc import Collection, Iterable
from uuid import UUID

from django.db.models import Q

from clusters.models import Cluster
from tenancy.models import Tenant


class CommittedClusters:
    """The clusters of an organisation by name, with removed ones: what a commitment cost remains to be changed or withdrawn."""

    def __init__(self, organisation: Tenant) -> None:
        own = Q(owner=organisation) | Q(owner__path__startswith=f"{organisation.path}/")
        rows = Cluster.everything.filter(own).order_by("-owner__depth", "-id").values_list("id", "name", "removed_at")
        self._names = {id_: name for id_, name, _ in rows}
        # Of two of a name, the one owned highest in the tree, as everywhere else.
        self._standing = {name: id_ for id_, name, removed_at in rows if removed_at is None}
        self._standing_ids = {id_ for id_, _, removed_at in rows if removed_at is None}

    def id_of(self, name: str, known: Collection[UUID] = ()) -> UUID | None:
        """The cluster that a file means; None if there is none. `known` are those of the version that applies: the one of this name
        that is still there comes first, so that a cluster that is registered later changes nothing, and a removed one last.
        """
        before = sorted(id_ for id_ in known if name in {self._names.get(id_), str(id_)})
        still = [id_ for id_ in before if id_ in self._standing_ids]
        return next(iter((*still, *([self._standing[name]] if name in self._standing else []), *before)), None)

    def shown(self, ids: Iterable[UUID]) -> list[str]:
        """Their names, sorted. A removed cluster whose name another one has now is named by its id."""
        return sorted(self._name(id_) for id_ in ids)

    def _name(self, id_: UUID) -> str:
        name = self._names.get(id_, "")
        return name if name and (id_ in self._standing_ids or name not in self._standing) else str(id_)

"""The images of jobs, looked up outside the cycle: which nodes have them, and how long pulling them takes.

Only images that are proven for a job's organisation are known to it. A count that is some seconds old is as good as a new one.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from django.db.models import Max

from clusters.engine.images import normal_name
from clusters.queries import image_counts, pulls_by_cluster
from federation.models import PrepullPolicy, ProvenImage
from foundation.caches import cached, cached_all
from placement.values.images import KnownImage, image_key
from placement.values.model import JobRequest

MOST_KEPT = 50_000
MOST_FOLLOWED = 2000
"""Of more images, those with which runs last succeeded are followed."""
FRESH_SECONDS = 20.0


class _All(NamedTuple):
    """Nothing but time changes the answer."""


class Followed(NamedTuple):
    """The normal names of images, in order, and of those among them that nodes should have."""

    names: tuple[str, ...]
    kept: tuple[str, ...]


@cached(most=1, seconds=FRESH_SECONDS)
def _followed(_: _All) -> Followed:
    newest = ProvenImage.objects.values("name").annotate(at=Max("last_at")).order_by("-at", "name")
    policies = PrepullPolicy.objects.filter(removed_at=None).values_list("images", flat=True)
    kept = {normal_name(image) for images in policies for image in images}
    return Followed(tuple(sorted(kept | {row["name"] for row in newest[:MOST_FOLLOWED]})), tuple(sorted(kept)))


def followed_images() -> Followed:
    """The images that observers follow on every cluster. Of those that nodes should have, they also store which have them."""
    return _followed(_All())


class _Asked(NamedTuple):
    """An image by its normal name, and an organisation by its path."""

    organisation: str
    name: str


def known_images(requests: Iterable[JobRequest]) -> dict[str, KnownImage]:
    """What is known of the requests' images, by `image_key`. Two queries for those not looked up recently."""
    tenants = {(request.tenant_path, request.images) for request in requests if request.images}
    asked = sorted({_Asked(path.partition("/")[0], name) for path, names in tenants for name in names})
    proven = [one for one, is_proven in zip(asked, _are_proven(asked), strict=True) if is_proven]
    names = sorted({one.name for one in proven})
    found = dict(zip(names, _counted([_Name(name) for name in names]), strict=True))
    return {image_key(one.organisation, one.name): known for one in proven if (known := found[one.name]) is not None}


@cached_all("organisation", "name", most=MOST_KEPT, seconds=FRESH_SECONDS)
def _are_proven(asked: Sequence[_Asked]) -> list[bool]:
    rows = ProvenImage.objects.filter(name__any_of=[one.name for one in asked])
    proven = set(rows.values_list("organisation__path", "name"))
    return [tuple(one) in proven for one in asked]


class _Name(NamedTuple):
    """An image by its normal name."""

    name: str


@cached_all("name", most=MOST_KEPT, seconds=FRESH_SECONDS)
def _counted(names: Sequence[_Name]) -> list[KnownImage | None]:
    nodes: dict[str, dict[UUID, Mapping[str, int]]] = defaultdict(dict)
    sizes: dict[str, list[int]] = defaultdict(list)
    for row in image_counts([one.name for one in names]):
        nodes[row.name][row.cluster_id] = row.by_flavor
        sizes[row.name].append(row.size_class)
    return [_known(sizes[one.name], nodes[one.name]) if one.name in nodes else None for one in names]


def _known(size_classes: Collection[int], nodes: Mapping[UUID, Mapping[str, int]]) -> KnownImage:
    """Of clusters that disagree about the size, the lower median counts."""
    return KnownImage(sorted(size_classes)[(len(size_classes) - 1) // 2], dict(nodes))


@cached(most=1, seconds=FRESH_SECONDS)
def _pull_seconds(_: _All) -> Mapping[UUID, tuple[int, ...]]:
    return pulls_by_cluster()


def pull_seconds() -> Mapping[UUID, tuple[int, ...]]:
    """How long a pull takes by class of size, on each cluster where some were seen."""
    return _pull_seconds(_All())

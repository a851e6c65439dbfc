"""The images of jobs, looked up outside the cycle: which nodes have them, and how long pulling them takes."""

from typing import NamedTuple

from django.db.models import Max

from federation.models import ProvenImage
from foundation.caches import cached

MOST_FOLLOWED = 2000
"""Of more images, those with which runs last succeeded are followed."""
FRESH_SECONDS = 20.0


class _All(NamedTuple):
    """Nothing but time changes the answer."""


@cached(most=1, seconds=FRESH_SECONDS)
def _followed(_: _All) -> tuple[str, ...]:
    newest = ProvenImage.objects.values("name").annotate(at=Max("last_at")).order_by("-at", "name")
    return tuple(sorted(row["name"] for row in newest[:MOST_FOLLOWED]))


def followed_images() -> tuple[str, ...]:
    """The normal names of the images that observers follow on every cluster, in order."""
    return _followed(_All())

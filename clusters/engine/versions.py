"""What a version of Kubernetes can do."""

import re

OLDEST_WITH_SIDECARS = (1, 31)
"""The nodes of a cluster may be three versions older than its API server. From 1.28 on, a kubelet that does not run
sidecars refuses their pods; an older one would wait for their end without an end.
"""
OLDEST_WITH_IMAGE_VOLUMES = (1, 35)
"""From here on they are on by default. From 1.31 on a feature gate turns them on, which the API server does not report."""


def is_at_least(version: str, least: tuple[int, int]) -> bool:
    """Whether the version is this one or later; true if it is unknown."""
    numbers = re.match(r"v?(\d{1,4})\.(\d{1,4})", version)
    return numbers is None or (int(numbers[1]), int(numbers[2])) >= least


def runs_sidecars(version: str) -> bool:
    """Whether a cluster of this version runs sidecars; true if it is unknown."""
    return is_at_least(version, OLDEST_WITH_SIDECARS)


def mounts_images(version: str) -> bool:
    """Whether pods on a cluster of this version can mount images; true if it is unknown."""
    return is_at_least(version, OLDEST_WITH_IMAGE_VOLUMES)

"""The driver for real clusters: typed requests to one API server over a pinned, verified connection."""

from typing import TYPE_CHECKING

from django.conf import settings

from clusters.drivers.address import ClusterAddress

if TYPE_CHECKING:
    from .driver import KubernetesDriver


def driver_at(address: ClusterAddress) -> "KubernetesDriver":
    """The driver of this installation for the cluster at an address.

    It is imported only now, with its HTTP client: a process that calls no cluster starts with less CPU.
    """
    from .driver import KubernetesDriver  # noqa: PLC0415 - see above

    return KubernetesDriver(address, settings.INSTALL_ID)

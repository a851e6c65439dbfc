"""The driver for real clusters: typed requests to one API server over a pinned, verified connection."""

from django.conf import settings

from clusters.drivers.address import ClusterAddress

from .driver import KubernetesDriver
from .wire import Limits

__all__ = ["KubernetesDriver", "Limits", "driver_at"]


def driver_at(address: ClusterAddress) -> KubernetesDriver:
    """The driver of this installation for the cluster at an address."""
    return KubernetesDriver(address, settings.INSTALL_ID)

"""The kinds of cluster, by the scheme of their server's URL. A new driver is a package and a line here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from . import kubernetes, simulated
from .address import ClusterAddress
from .port import ClusterDriver, Unreachable


@dataclass(frozen=True, slots=True)
class Kind:
    """How to make a driver of a cluster. Without a credential, the cluster has no network address either: its driver
    finds it by the server's URL.
    """

    driver_at: Callable[[ClusterAddress], ClusterDriver]
    has_credential: bool = True


KINDS: Mapping[str, Kind] = {
    "https": Kind(kubernetes.driver_at),
    simulated.SCHEME: Kind(simulated.driver_at, has_credential=False),
}


def kind_of(server: str) -> Kind:
    """The kind of the cluster at this URL; Unreachable if there is none."""
    scheme = urlsplit(server).scheme
    kind = KINDS.get(scheme)
    if kind is None:
        raise Unreachable(f"there is no driver for {scheme}://")
    return kind

"""The port of the cluster driver: every call that the gateway may make to a cluster, and every way that it may fail.

Two drivers implement it, `kubernetes` (aiohttp + typed decoding) and `simulated` (in memory). One contract suite tests
both. No code above this package knows which driver it uses.
"""

from clusters.engine.resource_slices import ClaimSeen, SliceSeen

from .exchanges import PortAnswer, PortRequest, PortStream
from .port import (
    AlreadyExists,
    Ambiguous,
    AuthFailed,
    ClusterDriver,
    DriverError,
    IdentityRefused,
    JobSeen,
    NodeSeen,
    NotAnswered,
    NotThere,
    PodSeen,
    Refused,
    ServiceSeen,
    Stale,
    Throttled,
    TlsFailed,
    TooMuch,
    Unreachable,
    WatchEvent,
)

__all__ = [
    "AlreadyExists",
    "Ambiguous",
    "AuthFailed",
    "ClaimSeen",
    "ClusterDriver",
    "DriverError",
    "IdentityRefused",
    "JobSeen",
    "NodeSeen",
    "NotAnswered",
    "NotThere",
    "PodSeen",
    "PortAnswer",
    "PortRequest",
    "PortStream",
    "Refused",
    "ServiceSeen",
    "SliceSeen",
    "Stale",
    "Throttled",
    "TlsFailed",
    "TooMuch",
    "Unreachable",
    "WatchEvent",
]

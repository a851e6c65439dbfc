"""The cluster driver's port: everything the gateway may ask of a cluster, and how a cluster may refuse.

Two drivers stand behind it, `kubernetes` (aiohttp + typed decoding) and `simulated` (in memory); one contract suite
holds both. Nothing above this package knows which one it talks to.
"""

from clusters.engine.resource_slices import ClaimSeen, SliceSeen

from .port import (
    AlreadyExists,
    Ambiguous,
    AuthFailed,
    ClusterDriver,
    DriverError,
    IdentityRefused,
    JobSeen,
    NodeSeen,
    NotThere,
    PodSeen,
    Refused,
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
    "NotThere",
    "PodSeen",
    "Refused",
    "SliceSeen",
    "Stale",
    "Throttled",
    "TlsFailed",
    "TooMuch",
    "Unreachable",
    "WatchEvent",
]

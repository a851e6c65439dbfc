"""The cluster driver's port: everything the gateway may ask of a cluster, and how a cluster may refuse.

Two drivers stand behind it, `kubernetes` (aiohttp + typed decoding) and `simulated` (in memory); one contract suite
holds both. Nothing above this package knows which one it talks to.
"""

from .port import (
    AlreadyExists,
    Ambiguous,
    AuthFailed,
    ClusterDriver,
    DriverError,
    JobSeen,
    NodeSeen,
    NotThere,
    PodSeen,
    Refused,
    Stale,
    Throttled,
    TlsFailed,
    Unreachable,
    WatchEvent,
)

__all__ = [
    "AlreadyExists",
    "Ambiguous",
    "AuthFailed",
    "ClusterDriver",
    "DriverError",
    "JobSeen",
    "NodeSeen",
    "NotThere",
    "PodSeen",
    "Refused",
    "Stale",
    "Throttled",
    "TlsFailed",
    "Unreachable",
    "WatchEvent",
]

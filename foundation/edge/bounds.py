"""The limits of one web worker for its peers: connections, time and memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits per worker process. `large_bodies` names the paths that accept more than `body_bytes`."""

    connections: int = 2000
    source_connections: int = 200
    waiting_requests: int = 128
    """Complete requests waiting for a thread; further ones are refused immediately."""
    head_bytes: int = 64 * 1024
    body_bytes: int = 2 * MIB
    large_bodies: Mapping[str, int] = field(default_factory=dict)
    held_bytes: int = 128 * MIB
    """Total size of the bodies of unfinished requests; the same limit applies to responses not yet sent."""
    head_seconds: float = 10
    idle_seconds: float = 30
    transfer_seconds: float = 20
    """Time for a body or a response, in addition to one second per `bytes_per_second` transferred."""
    bytes_per_second: int = 64 * 1024
    linger_seconds: float = 2
    """How long a connection stays open after its last response, so that data its peer still sends does not cut the
    response off.
    """

    def body_limit(self, path: str) -> int:
        """The maximum size of a body sent to this path."""
        return self.large_bodies.get(path, self.body_bytes)

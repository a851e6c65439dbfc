"""What one web worker lets its peers take: connections, time and memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bounds:
    """Per worker process. `large_bodies` names the paths that take more than `body_bytes`."""

    connections: int = 2000
    source_connections: int = 200
    waiting_requests: int = 128
    """Whole requests that wait for a thread; further ones are refused at once."""
    head_bytes: int = 64 * 1024
    body_bytes: int = 2 * MIB
    large_bodies: Mapping[str, int] = field(default_factory=dict)
    held_bytes: int = 128 * MIB
    """Bodies of unfinished requests, all together; likewise answers that were not taken yet."""
    head_seconds: float = 10
    idle_seconds: float = 30
    transfer_seconds: float = 20
    """What a body or an answer may take besides a second for every `bytes_per_second` that did move."""
    bytes_per_second: int = 64 * 1024
    linger_seconds: float = 2
    """How long a connection stays after its last answer, so that what its peer still sends does not cut the answer off."""

    def body_limit(self, path: str) -> int:
        """How large a body sent to this path may be."""
        return self.large_bodies.get(path, self.body_bytes)

"""The address of a cluster and the credential for it: all inputs of a driver, already checked and unsealed."""

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Credential:
    """One way to authenticate. `secret` never appears in `repr`.

    kind `token`: the bearer token in ASCII. kind `certificate`: PEM text of the client certificate (and its chain)
    followed by its unencrypted private key, in one piece, as `ssl.SSLContext.load_cert_chain` reads it from one file.
    """

    kind: Literal["token", "certificate"]
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """One API server and how to connect to it.

    `server` is `https://host[:port][/path]` without a trailing slash. A driver connects only to `address` and `port`:
    the one IP address that the egress guard accepted, never a name. It sends `host` as SNI and Host, and verifies the
    certificate for `host` against `ca_pem` (the system's authorities if empty). `cluster_id` also identifies a cluster
    that is only being probed and has no row yet.
    """

    cluster_id: UUID
    name: str
    server: str
    address: str
    port: int
    ca_pem: str
    credential: Credential

    @property
    def host(self) -> str:
        """The server's name as the user gave it (an IPv6 literal without brackets)."""
        return urlsplit(self.server).hostname or ""

    @property
    def path(self) -> str:
        """The path before `/api` on this server; usually empty."""
        return urlsplit(self.server).path

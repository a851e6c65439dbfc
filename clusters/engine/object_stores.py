"""Object stores by an S3-compatible endpoint: which endpoints, regions and buckets can be declared.

The gateway never connects to one. All parts are of closed sets of characters, so that none can be more than a part of a command's
argument or of a variable's value.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from foundation.problems import FieldError, Invalid

from .addresses import NEVER_REACHED
from .egress import read_server

MOST_ENDPOINT, MOST_REGION, MOST_BUCKET = 300, 63, 63
ENDPOINT_PATTERN = r"^https://[a-z0-9.:\[\]-]+\Z"
"""Of the normal form that `read_endpoint` returns."""
REGION_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z"
BUCKET_PATTERN = r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z"
BUCKET_DOTS_PATTERN = r"\.\."
REGION = "lower-case letters, digits and '-', at most 63"
BUCKET = "3 to 63 lower-case letters, digits, '-' and '.', without '..'"
USUAL_REGION = "us-east-1"
"""What most stores that have no regions take as theirs."""
ANY_HOST = "*"
HOST_PATTERN = r"(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)*|\*"


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A bucket, and the name of the secret with the access key that reads it."""

    endpoint: str
    region: str
    bucket: str
    secret: str

    @property
    def volume(self) -> str:
        """The bucket and where it is, as one name. No claim has such a name."""
        return f"{self.endpoint}/{self.bucket}"


def read_endpoint(text: str, hosts: Sequence[str]) -> str:
    """The endpoint in its normal form: `https://host[:port]`, lower-case, without the usual port.

    Raises Invalid for anything else, for link-local addresses and metadata services, and for a host that none of `hosts` allows.
    """
    server = read_server(text, "endpoint")
    if server.path:
        raise Invalid.field("endpoint", "bad_url", "give https://host[:port] without a path; the bucket is a field")
    if len(server.url) > MOST_ENDPOINT:
        raise Invalid.field("endpoint", "too_long", f"must be at most {MOST_ENDPOINT} characters")
    if _is_never_reached(server.host):
        raise Invalid.field(
            "endpoint", "not_allowed", "link-local addresses and metadata services are no object stores"
        )
    if not is_allowed(server.url, hosts):
        detail = "this host is not among those that the installation allows (SWITCHYARD_OBJECT_STORES)"
        raise Invalid.field("endpoint", "not_allowed", detail)
    return server.url


def is_allowed(endpoint: str, hosts: Sequence[str]) -> bool:
    """Whether the endpoint's host is one of these: names, `*.` and a domain for all names below it, `*` for any."""
    host = read_server(endpoint).host
    return any(
        allowed in (ANY_HOST, host) or (allowed.startswith("*.") and host.endswith(allowed[1:])) for allowed in hosts
    )


def faults_of(region: str, bucket: str) -> list[FieldError]:
    """What is wrong with a region and a bucket, by field."""
    found = []
    if re.match(REGION_PATTERN, region) is None:
        found.append(FieldError("region", "bad_format", REGION))
    if re.match(BUCKET_PATTERN, bucket) is None or re.search(BUCKET_DOTS_PATTERN, bucket) is not None:
        found.append(FieldError("bucket", "bad_format", BUCKET))
    return found


def _is_never_reached(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    meant = address if mapped is None else mapped
    return any(meant.version == network.version and meant in network for network in NEVER_REACHED)

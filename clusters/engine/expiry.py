"""When a credential expires, as it states. That is not verified: the cluster decides, and people only plan with it."""

import base64
import binascii
import json
from datetime import UTC, datetime

from cryptography import x509

from .connection import Secret

PARTS = 3
"""A JSON Web Token has a header, its claims and a signature."""


def expiry_of(secret: Secret) -> datetime | None:
    """When the token or the certificate expires; None if it does not state that in a known form."""
    if secret.kind == "certificate":
        return _earliest(secret.value)
    parts = secret.value.decode("ascii", errors="replace").split(".")
    return _claimed(parts[1]) if len(parts) == PARTS else None


def _claimed(claims: str) -> datetime | None:
    try:
        told = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
        return datetime.fromtimestamp(int(told), UTC)
    except (ValueError, binascii.Error, KeyError, TypeError, OverflowError, OSError, RecursionError):
        return None


def _earliest(pem: bytes) -> datetime | None:
    """When the first certificate of the chain to expire does."""
    try:
        return min(one.not_valid_after_utc for one in x509.load_pem_x509_certificates(pem))
    except ValueError:
        return None

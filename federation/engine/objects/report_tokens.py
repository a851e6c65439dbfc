"""The tokens by which attempts report: derived from a key of the installation and the attempt's id, so none is stored.

A token authorises exactly one attempt. Whether that still runs is not its business.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable
from uuid import UUID

PREFIX = "swyr_"
TOKEN = re.compile(r"swyr_[A-Za-z0-9_-]{43}")
_PURPOSE = b"switchyard report token 1"


def report_token(key: bytes, attempt_id: UUID) -> str:
    """The attempt's token under this key. The key itself seals credentials, so tokens are made with one derived from it."""
    own = hmac.digest(key, _PURPOSE, hashlib.sha256)
    mac = hmac.digest(own, attempt_id.bytes, hashlib.sha256)
    return PREFIX + base64.urlsafe_b64encode(mac).decode().rstrip("=")


def is_report_token(text: str, keys: Iterable[bytes], attempt_id: UUID) -> bool:
    """Whether it is the attempt's token under any of the keys; compared in constant time."""
    if not TOKEN.fullmatch(text):
        return False
    return any(hmac.compare_digest(text, report_token(key, attempt_id)) for key in keys)

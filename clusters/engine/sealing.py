"""Sealing credentials and secrets: AES-256-GCM under a ring of keys, bound to their row and the key that sealed them."""

import base64
import binascii
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12
_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,40}")


class BadKeyRing(ValueError):
    """The key ring setting cannot be used. The text names the entry, never a key."""


class CannotUnseal(Exception):
    """A sealed credential cannot be opened: its key is no longer in the ring, or it was changed or moved to another
    cluster.
    """


@dataclass(frozen=True, slots=True)
class KeyRing:
    """Keys by id. New seals use `current`; the other keys only open existing seals."""

    current: str
    keys: Mapping[str, bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed secret: nonce, then ciphertext and tag, in `box`."""

    key_id: str
    box: bytes


def read_key_ring(text: str) -> KeyRing:
    """The ring written as `id:base64key,id2:base64key`, the current key first; BadKeyRing says what is wrong."""
    keys: dict[str, bytes] = {}
    for position, entry in enumerate(text.split(","), start=1):
        key_id, colon, encoded = entry.strip().partition(":")
        if not colon or not _KEY_ID.fullmatch(key_id):
            raise BadKeyRing(f"entry {position} is not written as id:key (an id has letters, digits, dots, - and _)")
        if key_id in keys:
            raise BadKeyRing(f"the id {key_id} appears twice")
        keys[key_id] = _key(key_id, encoded.strip())
    return KeyRing(current=next(iter(keys)), keys=keys)


def _key(key_id: str, encoded: str) -> bytes:
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise BadKeyRing(f"the key of {key_id} is not base64; make one with: openssl rand -base64 32") from None
    if len(key) != KEY_BYTES:
        raise BadKeyRing(
            f"the key of {key_id} has {len(key)} bytes and must have {KEY_BYTES}; make one with: openssl rand -base64 32"
        )
    return key


def seal(ring: KeyRing, cluster_id: UUID, secret: bytes) -> Sealed:
    """`secret` sealed under the current key for this cluster only."""
    return seal_bound(ring, _credential_of(cluster_id), secret)


def seal_bound(ring: KeyRing, binding: str, secret: bytes) -> Sealed:
    """`secret` sealed under the current key. It opens only with the same binding."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    box = AESGCM(ring.keys[ring.current]).encrypt(nonce, secret, _associated(binding, ring.current))
    return Sealed(ring.current, nonce + box)


def unseal(ring: KeyRing, cluster_id: UUID, sealed: Sealed) -> bytes:
    """The secret; CannotUnseal if the key is gone or anything was changed."""
    return unseal_bound(ring, _credential_of(cluster_id), sealed)


def unseal_bound(ring: KeyRing, binding: str, sealed: Sealed) -> bytes:
    """The secret; CannotUnseal if the key is gone, or if the binding or anything else was changed."""
    key = ring.keys.get(sealed.key_id)
    if key is None:
        raise CannotUnseal(f"the key {sealed.key_id} is no longer in the key ring")
    nonce, box = sealed.box[:NONCE_BYTES], sealed.box[NONCE_BYTES:]
    try:
        return AESGCM(key).decrypt(nonce, box, _associated(binding, sealed.key_id))
    except (InvalidTag, ValueError):
        raise CannotUnseal(f"it cannot be decrypted with key {sealed.key_id}") from None


def _credential_of(cluster_id: UUID) -> str:
    return f"cluster credential|{cluster_id}"


def _associated(binding: str, key_id: str) -> bytes:
    return f"switchyard {binding}|{key_id}".encode()

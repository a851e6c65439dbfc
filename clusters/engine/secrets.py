"""The secrets of tenants: their names and sizes, which one a job means by a name, and what each seal is bound to."""

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

MOST_BYTES = 32 * 1024
"""Of one value. Sixteen of them fit into one Secret of Kubernetes (1 MiB)."""
MOST_SECRETS = 200
"""Per tenant."""
LONGEST_USERNAME = 200
"""Of the access to a registry."""
ACCESS_KEY_PATTERN = r"^[!-~]{1,256}\Z"
ACCESS_KEY = "1 to 256 printable ASCII characters without spaces"
ACCESS_KEY_PARTS = ("id", "secret")
REGISTRY_PATTERN = r"^[a-zA-Z0-9]([a-zA-Z0-9.-]{0,251}[a-zA-Z0-9])?(:[0-9]{1,5})?\Z"
REGISTRY = "the registry's DNS name, with its port if it has one"


class Kind(StrEnum):
    """What a secret is used for."""

    VALUE = "value"
    """A text, for an environment variable or a file."""
    REGISTRY = "registry"
    """A name and a password, by which images are pulled from one registry."""
    ACCESS_KEY = "access_key"
    """The id of an access key of an object store, and its secret. Only our own Jobs that copy data get it."""


class BadValue(ValueError):
    """A text that cannot be a secret; the message does not contain it. `code` is a code of field errors."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def value_of(text: str) -> bytes:
    """The text as a secret contains it. Raises BadValue."""
    try:
        value = text.encode()
    except UnicodeEncodeError:
        raise BadValue("bad_characters", "contains half a surrogate pair") from None
    if not value:
        raise BadValue("required", "may not be blank")
    if b"\x00" in value:
        raise BadValue("bad_characters", "contains a NUL character")
    if len(value) > MOST_BYTES:
        raise BadValue("too_long", f"must be at most {MOST_BYTES} bytes")
    return value


def is_registry(text: str) -> bool:
    """Whether this is the name of a registry."""
    return re.match(REGISTRY_PATTERN, text) is not None


def pull_config(registry: str, username: str, password: str) -> bytes:
    """The content of a `.dockerconfigjson`."""
    both = base64.b64encode(f"{username}:{password}".encode()).decode()
    return json.dumps({"auths": {registry: {"username": username, "password": password, "auth": both}}}).encode()


def is_access_key(text: str) -> bool:
    """Whether this can be the id of an access key, or its secret."""
    return re.match(ACCESS_KEY_PATTERN, text) is not None


def access_key(key_id: str, secret: str) -> bytes:
    """The content of a secret of the kind `access_key`."""
    return json.dumps(dict(zip(ACCESS_KEY_PARTS, (key_id, secret), strict=True))).encode()


def part_of(value: bytes, part: str) -> bytes:
    """The part of an access key: one of ACCESS_KEY_PARTS. Of any other secret, all of it, which has the part ''."""
    return str(json.loads(value)[part]).encode() if part else value


def binding_of(secret_id: UUID, tenant_id: UUID, name: str, version: int) -> str:
    """What the seal of a version is bound to: moved to another row, or under another version, it does not open."""
    return f"tenant secret|{secret_id}|{tenant_id}|{name}|{version}"


@dataclass(frozen=True, slots=True)
class KnownSecret:
    """A secret as jobs of its tenant and of the tenants below it see it, without its value."""

    id: UUID
    tenant_path: str
    name: str
    kind: str
    version: int


Keyring = Mapping[str, Mapping[str, KnownSecret]]
"""Secrets by name, then by tenant's path."""


def keyring_of(secrets: Iterable[KnownSecret]) -> Keyring:
    """The secrets, indexed for lookup."""
    found: dict[str, dict[str, KnownSecret]] = {}
    for one in secrets:
        found.setdefault(one.name, {})[one.tenant_path] = one
    return found


def meant_secret(keyring: Keyring, tenant_path: str, name: str, kind: str) -> KnownSecret | None:
    """The secret that a tenant's job means: its own, else the nearest ancestor's. None if there is none, or if the
    nearest is of another kind.
    """
    by_path = keyring.get(name)
    while by_path:
        found = by_path.get(tenant_path)
        if found is not None:
            return found if found.kind == kind else None
        tenant_path, slash, _ = tenant_path.rpartition("/")
        if not slash:
            break
    return None

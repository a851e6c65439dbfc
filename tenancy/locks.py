"""The locking functions of this room."""

import hashlib
from collections.abc import Collection
from uuid import UUID

from django.db import connection

from .models import User

TREE_LOCK = 0x53575954  # "SWYT"
REFUSALS_LOCK = 0x5357594E  # "SWYN"
KEY_WAIT = "2s"
KEY_IS_FREE = "pg_try_advisory_xact_lock(%s)"
"""SQL condition: true if no other transaction has this key number; then it is locked until commit."""


def key_number(user_id: UUID, tenant_id: UUID | None, route: str, key: str) -> int:
    """The advisory lock's number for an idempotency key: 63 bits of a digest."""
    digest = hashlib.sha256(f"{user_id}|{tenant_id}|{route}|{key}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def wait_for_key(number: int) -> None:
    """Waits at most KEY_WAIT for the request with the same key, then locks the key until commit.

    Raises django.db.OperationalError (lock timeout) if that request is still running.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('lock_timeout')")
        usual = cursor.fetchone()[0]
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [KEY_WAIT])
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [number])
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [usual])


def lock_user(user_id: UUID | None) -> User | None:
    """The user, locked until commit against changes of related rows; None if it does not exist."""
    return User.objects.select_for_update(no_key=True).filter(id=user_id).first() if user_id else None


def keep_tenants_in_place(paths: Collection[str]) -> dict[UUID, str]:
    """Path by id of these tenants. Until commit, other transactions can neither move them nor lock them for a change.

    Uses FOR SHARE, so that any number of transactions can keep them concurrently.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, path FROM tenancy_tenant WHERE path = ANY(%s) ORDER BY id FOR SHARE", [sorted(set(paths))]
        )
        return dict(cursor.fetchall())


def lock_to_remove(tenant_id: UUID) -> None:
    """Waits for transactions that refer to the tenant or keep it in place; until commit, no other one can refer to it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT FROM tenancy_tenant WHERE id = %s FOR UPDATE", [tenant_id])


def hold_tree() -> None:
    """Makes this transaction the only one that moves, renames or deletes tenants, until it ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [TREE_LOCK])


def hold_refusal_counts() -> None:
    """Makes this transaction the only one that starts a count of refusals, until it ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [REFUSALS_LOCK])

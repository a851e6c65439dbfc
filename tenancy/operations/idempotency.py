"""A repeated write gets its first response again, and the write happens once."""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID

from django.db import OperationalError, connection, transaction
from django.db.models import Q
from django.db.models.functions import Now

from foundation.plain_json import encode
from foundation.problems import Conflict, Invalid
from tenancy.locks import KEY_IS_FREE, key_number, wait_for_key
from tenancy.models import IdempotencyRecord
from tenancy.queries import Actor

KEEP = timedelta(hours=48)
BATCH = 10_000
ACCEPTABLE_KEY = re.compile(r"[\x20-\x7e]{1,200}")
_CLAIM = f"""
    INSERT INTO tenancy_idempotencyrecord (tenant_id, user_id, route, key, body_digest, status, answer)
    SELECT %s, %s, %s, %s, %s, 0, '' WHERE {KEY_IS_FREE}
    ON CONFLICT DO NOTHING RETURNING id
"""
_KEEP = "UPDATE tenancy_idempotencyrecord SET status = %s, answer = %s WHERE id = %s"
_CLAIM_MANY = """
    INSERT INTO tenancy_idempotencyrecord (tenant_id, user_id, route, key, body_digest, status, answer)
    SELECT given.tenant_id, %s, %s, given.key, given.digest, 201, given.answer
      FROM unnest(%s::uuid[], %s::text[], %s::bytea[], %s::text[]) AS given(tenant_id, key, digest, answer)
     ORDER BY given.tenant_id, given.key
    ON CONFLICT DO NOTHING RETURNING tenant_id, key
"""
_FIND_MANY = """
    SELECT record.tenant_id, record.key, record.body_digest, record.answer
      FROM tenancy_idempotencyrecord AS record
      JOIN unnest(%s::uuid[], %s::text[]) AS given(tenant_id, key) USING (tenant_id, key)
     WHERE record.user_id = %s AND record.route = %s
"""

Slot: TypeAlias = tuple[UUID, str]
"""A tenant and a key there."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to the first request: HTTP status and body, and whether this is a repetition of it."""

    status: int
    body: dict[str, Any]
    replayed: bool = False


def answer_once(  # noqa: PLR0913 - each names one part of the promise
    actor: Actor,
    *,
    tenant_id: UUID | None,
    route: str,
    key: str,
    body: bytes,
    produce: Callable[[], tuple[int, dict[str, Any]]],
    shown_once: Collection[str] = (),
) -> Answer:
    """Runs `produce` in one transaction with the record of its response; the same key and body get that response again.

    Without a key (or for the system itself) `produce` just runs in a transaction. Fields of the response named in
    `shown_once` are secrets: they are never stored, and null in a repetition. A Problem raised by `produce` rolls
    everything back, so the key may be used again. Raises Invalid `idempotency_key_reused` for another body, Conflict
    `idempotency_in_progress` if the first request is still running.
    """
    if not key or actor.user_id is None:
        with transaction.atomic():
            return Answer(*produce())
    _check_key(key)
    digest = hashlib.sha256(body).digest()
    with transaction.atomic():
        record_id = _claim(actor.user_id, tenant_id, route, key, digest)
        if isinstance(record_id, Answer):
            return record_id
        status, answer = produce()
        kept = {name: None if name in shown_once else value for name, value in answer.items()}
        with connection.cursor() as cursor:
            cursor.execute(_KEEP, [status, encode(kept).decode(), record_id])
    return Answer(status, answer)


def given_answer(actor: Actor, *, tenant_id: UUID | None, route: str, key: str, body: bytes) -> Answer | None:
    """The response that this key already has, for callers with work to do before `answer_once`. None guarantees
    nothing.

    Raises Invalid as `answer_once` does.
    """
    if not key or actor.user_id is None:
        return None
    _check_key(key)
    record = _find(actor.user_id, tenant_id, route, key)
    return None if record is None else _repeat(record, hashlib.sha256(body).digest())


def claim_keys(user_id: UUID, route: str, claims: Mapping[Slot, tuple[bytes, str]]) -> set[Slot]:
    """The new keys of these, with status 201 and their digests and answers stored, in the caller's transaction.

    Waits while another transaction claims one of them.
    """
    digests, answers = [digest for digest, _ in claims.values()], [answer for _, answer in claims.values()]
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM_MANY, [user_id, route, *_columns(claims), digests, answers])
        return set(cursor.fetchall())


def kept_answers(user_id: UUID, route: str, slots: Collection[Slot]) -> dict[Slot, tuple[bytes, str]]:
    """For the keys that are known: the digest of the first body with the key, and its answer."""
    with connection.cursor() as cursor:
        cursor.execute(_FIND_MANY, [*_columns(slots), user_id, route])
        return {(tenant_id, key): (bytes(digest), answer) for tenant_id, key, digest, answer in cursor.fetchall()}


def _columns(slots: Collection[Slot]) -> tuple[list[UUID], list[str]]:
    return [tenant_id for tenant_id, _ in slots], [key for _, key in slots]


def _check_key(key: str) -> None:
    if not ACCEPTABLE_KEY.fullmatch(key):
        raise Invalid.field("Idempotency-Key", "out_of_range", "Idempotency-Key is 1 to 200 printable ASCII characters")


def _find(user_id: UUID, tenant_id: UUID | None, route: str, key: str) -> IdempotencyRecord | None:
    same_tenant = Q(tenant_id=tenant_id) if tenant_id else Q(tenant_id__isnull=True)
    return IdempotencyRecord.objects.filter(same_tenant, user_id=user_id, route=route, key=key).first()


def _claim(user_id: UUID, tenant_id: UUID | None, route: str, key: str, digest: bytes) -> int | Answer:
    """The id of our own new record, or the existing response."""
    number = key_number(user_id, tenant_id, route, key)
    while True:
        with connection.cursor() as cursor:
            cursor.execute(_CLAIM, [tenant_id, user_id, route, key, digest, number])
            inserted = cursor.fetchone()
        if inserted:
            return int(inserted[0])
        record = _find(user_id, tenant_id, route, key)
        if record is not None:
            return _repeat(record, digest)
        _wait(number)


def _repeat(record: IdempotencyRecord, digest: bytes) -> Answer:
    if bytes(record.body_digest) != digest:
        raise Invalid(
            "This Idempotency-Key was used with another body; use a new key for a new request.",
            code="idempotency_key_reused",
        )
    return Answer(record.status, json.loads(record.answer), replayed=True)


def _wait(number: int) -> None:
    try:
        wait_for_key(number)
    except OperationalError as error:
        raise Conflict(
            "The first request with this Idempotency-Key is still in progress. Try again shortly.",
            code="idempotency_in_progress",
            retry_after_seconds=1,
        ) from error


def forget_old_answers() -> int:
    """Deletes responses older than two days, one batch per transaction; returns the number deleted."""
    old = IdempotencyRecord.objects.filter(created_at__lt=Now() - KEEP).order_by("created_at").values("id")
    deleted = 0
    while True:
        batch, _ = IdempotencyRecord.objects.filter(id__in=old[:BATCH]).delete()
        deleted += batch
        if batch < BATCH:
            return deleted

"""The gateway reads only two things from its broker's messages: the name of a routine and when the ring becomes stale.

Anyone who can write to Redis can put anything into a queue: other tasks, arguments, callbacks, other serializers, or no
message at all. So a message is never passed on unchanged. If it names a routine in that routine's queue, it becomes a
message made here; everything else is dropped and logged. Redis stores only the queues: neither routes nor messages in
progress (a ring that is lost with its worker is repeated, ADR 1).
"""

import base64
import json
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from kombu.transport import redis, virtual

from .ids import new_id

log = logging.getLogger(__name__)
BODY = base64.b64encode(
    json.dumps([[], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]).encode()
).decode()
LONGEST_INSTANT = 40
# The exceptions from reading a planted text as a message.
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, RecursionError)


def ring_of(message: object, queue: str) -> dict[str, Any] | None:
    """The message to process in place of the received one; None if it rings no routine."""
    headers = message.get("headers") if isinstance(message, Mapping) else None
    if not isinstance(headers, Mapping):
        return None
    task, expires = headers.get("task"), headers.get("expires")
    known = {entry["task"] for entry in settings.ROUTINES.values() if entry["queue"] == queue}
    if not isinstance(task, str) or task not in known or not _is_instant(expires):
        return None
    return _made(task, queue, expires)


def _is_instant(value: object) -> bool:
    if value is None:
        return True
    if not isinstance(value, str) or len(value) > LONGEST_INSTANT:
        return False
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _made(task: str, queue: str, expires: object) -> dict[str, Any]:
    name = str(new_id())
    return {
        "body": BODY,
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {
            "lang": "py", "task": task, "id": name, "root_id": name, "parent_id": None, "group": None, "eta": None,
            "expires": expires, "retries": 0, "timelimit": [None, None], "argsrepr": "()", "kwargsrepr": "{}",
            "ignore_result": True,
        },
        "properties": {
            "correlation_id": name, "reply_to": "", "delivery_mode": 2, "priority": 0, "body_encoding": "base64",
            "delivery_tag": name, "delivery_info": {"exchange": queue, "routing_key": queue},
        },
    }  # fmt: skip


# Much of the replaced code has no types.
_Channel: Any = redis.Channel
_Transport: Any = redis.Transport


class Channel(_Channel):  # type: ignore[misc]
    """Kombu's own channel over Redis, without its trust in stored data."""

    def get_table(self, exchange: str) -> list[tuple[str, str, str]]:
        """Every queue is bound to the exchange of its name: routes are known here and not read."""
        return [(exchange, "", exchange)]

    def _queue_bind(self, *_: Any) -> None:
        """Stores nothing."""

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)
        except self.ResponseError as error:
            self._remove(self.active_queues, error)
        except UNREADABLE as error:
            log.error("security: a message that cannot be read is dropped (%s)", type(error).__name__)  # noqa: TRY400 - what it says is of the planter's making
        raise virtual.Empty

    def _size(self, queue: str) -> int:
        try:
            size: int = super()._size(queue)
        except self.ResponseError as error:
            self._remove([queue], error)
            return 0
        return size

    def _remove(self, queues: list[str], error: Exception) -> None:
        """Deletes a value under a queue's name that is not a queue."""
        log.error("security: a key with the name of a queue is not a queue (%s); it is removed", type(error).__name__)
        names = [self._q_for_pri(queue, step) for queue in queues for step in self.priority_steps]
        with self.conn_or_acquire() as client:
            client.delete(*names)


class Transport(_Transport):  # type: ignore[misc]
    """Kombu's own transport, except for what it delivers."""

    Channel = Channel

    def _deliver(self, message: object, queue: str) -> None:
        ring = ring_of(message, queue)
        if ring is None:
            log.error("security: a message in the queue %.60r names no routine of the gateway; it is dropped", queue)
            return
        super()._deliver(ring, queue)

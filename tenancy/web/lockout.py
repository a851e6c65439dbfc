"""How often someone may guess a password: counted by address and email, and by email alone, for a quarter of an hour.

Counts live in the cache. While the cache is away they are kept in this process, so that guessing is never free.
"""

import hashlib
import logging

from django.core.cache import cache
from django.core.cache.backends.locmem import LocMemCache
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)
WINDOW_SECONDS = 900
FAILURES_FROM_ONE_ADDRESS = 5
FAILURES_FROM_ANYWHERE = 25
_fallback = LocMemCache("sign-in-failures", {})


def is_locked_out(email: str, address: str) -> bool:
    """Whether there were too many failures lately."""
    pair, alone = _keys(email, address)
    counts = _get_many([pair, alone])
    return counts.get(pair, 0) >= FAILURES_FROM_ONE_ADDRESS or counts.get(alone, 0) >= FAILURES_FROM_ANYWHERE


def note_failure(email: str, address: str) -> None:
    """Counts one failure."""
    for key in _keys(email, address):
        try:
            _count(cache, key)
        except RedisError:
            logger.warning("the cache is away; failed sign-ins are counted in this process only")
            _count(_fallback, key)


def forget_failures(email: str, address: str) -> None:
    """After a success from this address."""
    pair, _ = _keys(email, address)
    _fallback.delete(pair)
    try:
        cache.delete(pair)
    except RedisError:
        logger.warning("the cache is away; a success could not clear earlier failures")


def _keys(email: str, address: str) -> tuple[str, str]:
    name = hashlib.sha256(email.strip().lower().encode()).hexdigest()
    return f"sign-in|{name}|{address}", f"sign-in|{name}"


def _count(store: object, key: str) -> None:
    store.add(key, 0, WINDOW_SECONDS)  # type: ignore[attr-defined]
    try:
        store.incr(key)  # type: ignore[attr-defined]
    except ValueError:  # it ran out between the two calls
        store.set(key, 1, WINDOW_SECONDS)  # type: ignore[attr-defined]


def _get_many(keys: list[str]) -> dict[str, int]:
    here: dict[str, int] = _fallback.get_many(keys)
    try:
        there: dict[str, int] = cache.get_many(keys)
    except RedisError:
        return here
    return {key: max(here.get(key, 0), there.get(key, 0)) for key in keys}

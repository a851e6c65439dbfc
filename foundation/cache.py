"""Django's cache over Redis, for whole numbers alone: what is planted there is never code and never a surprise.

Django's own backend unpickles what it reads, so that whoever can write to Redis runs code as the gateway. Here a value is
a number of 64 bits in plain digits; anything else under a key of ours is removed, told in the log, and taken as absent.
"""

import logging
import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import redis
from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache

log = logging.getLogger(__name__)
NUMBER = re.compile(rb"-?(0|[1-9][0-9]{0,18})")
LONGEST = 20
LARGEST = 2**63 - 1
SCANNED_AT_ONCE = 1000


class NumberCache(BaseCache):
    """Settings: LOCATION is Redis' address, OPTIONS go to its client."""

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        super().__init__(params)
        self._location = location
        self._options: dict[str, Any] = params.get("OPTIONS", {})

    @cached_property
    def _client(self) -> Any:
        return redis.Redis.from_url(self._location, **self._options)

    def add(self, key: str, value: Any, timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """Sets the number where there is none; whether it did."""
        seconds = self._seconds(timeout)
        if seconds == 0:
            return not self.has_key(key, version)
        return bool(self._client.set(self._named(key, version), _checked(value), ex=seconds, nx=True))

    def set(self, key: str, value: Any, timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        """Sets the number, whatever was there."""
        seconds, number = self._seconds(timeout), _checked(value)
        if seconds == 0:
            self.delete(key, version)
        else:
            self._client.set(self._named(key, version), number, ex=seconds)

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        """The number, or the default."""
        return self.get_many([key], version).get(key, default)

    def get_many(self, keys: Iterable[str], version: int | None = None) -> dict[str, int]:
        """The numbers that are there."""
        names = {key: self._named(key, version) for key in keys}
        if not names:
            return {}
        pipeline = self._client.pipeline(transaction=False)
        for name in names.values():
            # Never more than a number's length, however much was planted there.
            pipeline.getrange(name, 0, LONGEST)
        answers = dict(zip(names, pipeline.execute(raise_on_error=False), strict=True))
        numbers = {key: self._read(names[key], answer) for key, answer in answers.items()}
        return {key: number for key, number in numbers.items() if number is not None}

    def touch(self, key: str, timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """Gives the number another time to live; whether it is there."""
        name, seconds = self._named(key, version), self._seconds(timeout)
        return bool(self._client.persist(name) if seconds is None else self._client.expire(name, seconds))

    def delete(self, key: str, version: int | None = None) -> bool:
        """Whether something was there."""
        return bool(self._client.delete(self._named(key, version)))

    def incr(self, key: str, delta: int = 1, version: int | None = None) -> int:
        """The number after adding to it; ValueError where there is none, or no room for more."""
        name = self._named(key, version)
        try:
            # Only where it is: one that ran out is made anew by the caller, with a time to live.
            if self._client.exists(name):
                return int(self._client.incrby(name, delta))
        except redis.ResponseError:
            self._refuse(name)
        raise ValueError(f"Key {key!r} not found.")

    def clear(self) -> None:
        """Removes what carries the cache's prefix, and nothing of the broker's."""
        for name in self._client.scan_iter(match=f"{self.key_prefix}:*", count=SCANNED_AT_ONCE):
            self._client.delete(name)

    def _named(self, key: str, version: int | None) -> str:
        name: str = self.make_and_validate_key(key, version=version)
        return name

    def _seconds(self, timeout: Any) -> int | None:
        if timeout == DEFAULT_TIMEOUT:
            timeout = self.default_timeout
        return None if timeout is None else max(0, int(timeout))

    def _read(self, name: str, answer: bytes | Exception) -> int | None:
        if isinstance(answer, Exception) and not isinstance(answer, redis.ResponseError):
            raise answer
        if not answer:
            return None
        if isinstance(answer, bytes) and NUMBER.fullmatch(answer) and abs(number := int(answer)) <= LARGEST:
            return number
        self._refuse(name)
        return None

    def _refuse(self, name: str) -> None:
        log.error(
            "security: what stands under %.200r in the cache is not ours; it is removed and counts as absent", name
        )
        self._client.delete(name)


def _checked(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"the cache holds whole numbers, not {type(value).__name__}")
    if abs(value) > LARGEST:
        raise ValueError("the cache holds numbers of 64 bits")
    return value

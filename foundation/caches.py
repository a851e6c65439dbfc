"""What a process keeps in memory so that it does not compute it again.

A cached value is made from one source: a frozen value with everything that the function reads. Each call passes the
source as it is now, and the function runs again unless the sources are equal. So no key is written by hand: if the
function needs another column, its source needs it, and then the cache compares it.

Settings do not change while a process runs. Tests change them, and begin with `reset_all`.
"""

import math
import os
import threading
from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from foundation.clock import monotonic

Key = TypeVar("Key", bound=Hashable)
Source = TypeVar("Source")
Value = TypeVar("Value")
Forget = TypeVar("Forget", bound=Callable[[], object])

_resets: list[Callable[[], object]] = []
_caches: "list[Store[Any, Any] | _Values[Any, Any]]" = []
_lock = threading.Lock()


def reset_all() -> None:
    """Makes this process forget all that it keeps."""
    exchange([])
    for forget in _resets:
        forget()


def exchange(contents: Sequence[dict[Any, Any]]) -> list[dict[Any, Any]]:
    """Puts these contents into the caches, in the order in which they were made, and nothing into further ones; returns
    what they had. So a simulation gives each of its processes a memory.
    """
    had = [cache.kept for cache in _caches]
    for number, cache in enumerate(_caches):
        cache.kept = contents[number] if number < len(contents) else {}
    return had


def reset_with(forget: Forget) -> Forget:
    """Adds what `reset_all` calls, for state that is not one of the caches below."""
    _resets.append(forget)
    return forget


def cached(
    *by: str, most: int, seconds: float = math.inf
) -> Callable[[Callable[[Source], Value]], Callable[[Source], Value]]:
    """Decorates a function of one source. The last value is kept for each value of the attributes `by` of the source
    (without any, one value), at most `most` of them, and for at most `seconds`.
    """

    def decorate(make: Callable[[Source], Value]) -> Callable[[Source], Value]:
        values: _Values[Source, Value] = _Values(lambda sources: [make(one) for one in sources], by, most, seconds)
        return lambda source: values.of([source])[0]

    return decorate


def cached_all(
    *by: str, most: int | None = None, seconds: float = math.inf
) -> Callable[[Callable[[Sequence[Source]], Sequence[Value]]], Callable[[Sequence[Source]], list[Value]]]:
    """As `cached`, for a function of several sources that returns a value for each. It is called with those that are
    new, changed or too old. Without `most`, only the values of the last call are kept.
    """

    def decorate(make: Callable[[Sequence[Source]], Sequence[Value]]) -> Callable[[Sequence[Source]], list[Value]]:
        return _Values(make, by, most, seconds).of

    return decorate


class Store(Generic[Key, Value]):
    """At most `most` values that follow from their keys alone; the oldest are dropped first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.kept: dict[Key, Value] = {}
        _caches.append(self)

    def get(self, key: Key) -> Value | None:
        """The value, if it is kept."""
        return self.kept.get(key)

    def put(self, key: Key, value: Value) -> None:
        """Keeps the value."""
        with _lock:
            self.kept[key] = value
            _drop_oldest(self.kept, self._most)


class _Kept(NamedTuple, Generic[Source, Value]):
    source: Source
    value: Value
    until: float


class _Values(Generic[Source, Value]):
    """The values of a decorated function. Two threads may make the same value at the same time; both are right."""

    def __init__(
        self, make: Callable[[Sequence[Source]], Sequence[Value]], by: Sequence[str], most: int | None, seconds: float
    ) -> None:
        self._make = make
        self._key_of: Callable[[Source], Any] = attrgetter(*by) if by else lambda _: None
        self._most = most
        self._seconds = seconds
        self.kept: dict[Any, _Kept[Source, Value]] = {}
        _caches.append(self)

    def of(self, sources: Sequence[Source]) -> list[Value]:
        """The values of the sources, in their order."""
        now = monotonic()
        keys = [self._key_of(source) for source in sources]
        found: dict[Any, _Kept[Source, Value]] = {}
        stale: dict[Any, Source] = {}
        for key, source in zip(keys, sources, strict=True):
            one = self.kept.get(key)
            if one is not None and (one.source is source or one.source == source) and now < one.until:
                found[key] = one
            else:
                stale[key] = source
        if stale:
            made = self._make(list(stale.values()))
            for (key, source), value in zip(stale.items(), made, strict=True):
                found[key] = _Kept(source, value, now + self._seconds)
        if self._most is None:
            self.kept = found
        elif stale:
            self._add({key: found[key] for key in stale}, self._most)
        return [found[key].value for key in keys]

    def _add(self, new: dict[Any, _Kept[Source, Value]], most: int) -> None:
        with _lock:
            for key in new:
                self.kept.pop(key, None)
            self.kept.update(new)
            _drop_oldest(self.kept, most)


def _drop_oldest(values: dict[Any, Any], most: int) -> None:
    """A dict keeps the order in which its keys were added."""
    for key in list(islice(values, max(0, len(values) - most))):
        del values[key]


# The parent's lock may be locked, by a thread that does not exist in the child.
os.register_at_fork(after_in_child=lambda: globals().update(_lock=threading.Lock()))

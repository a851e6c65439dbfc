"""A cycle's input and output as plain JSON values, so that a decision can be repeated elsewhere and compared byte for
byte.

The shape follows the type hints of the dataclasses in `model`: a field added there is recorded without a change here.
Text is UTF-8 JSON without spaces. Objects keep the order of their source values, times their microseconds, decimals
their digits.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from placement.values.decisions import Decisions
from placement.values.images import image_key
from placement.values.model import Snapshot
from placement.values.preemption import RunningJob

SNAPSHOT_FORMAT = "switchyard/snapshot"
DECISIONS_FORMAT = "switchyard/decisions"
VERSION = 1

Read: TypeAlias = Callable[[Any, str], Any]
"""Makes a value from the JSON at a path."""
_T = TypeVar("_T")


class RecordingError(ValueError):
    """A recorded value does not match its type; the message names the path."""


def snapshot_text(snapshot: Snapshot) -> bytes:
    """The snapshot as one line of JSON."""
    return _text(SNAPSHOT_FORMAT, "snapshot", snapshot)


def without_image_names(snapshot: Snapshot) -> Snapshot:
    """The snapshot with images by number, in the order of their names: only which images are equal decides anything."""
    every = (*snapshot.queue, *snapshot.returning, *snapshot.shrinking)
    names = sorted({name for job in every for name in job.images})
    number = {name: f"image-{position}" for position, name in enumerate(names, start=1)}
    known = {}
    for job in snapshot.queue:
        for name in job.images:
            if (found := snapshot.images.get(image_key(job.tenant_path, name))) is not None:
                known[image_key(job.tenant_path, number[name])] = found
    queue, again, shrinking = (
        tuple(replace(job, images=tuple(number[name] for name in job.images)) for job in jobs)
        for jobs in (snapshot.queue, snapshot.returning, snapshot.shrinking)
    )
    return replace(snapshot, queue=queue, returning=again, shrinking=shrinking, images=known)


def without_users(snapshot: Snapshot) -> Snapshot:
    """The snapshot with users by number: only which of them are equal decides anything."""
    jobs = (*snapshot.queue, *snapshot.returning, *snapshot.shrinking)
    users = {job.user for job in jobs} | {user for limit in snapshot.user_limits for user in limit.held}
    users |= {run.user for run in _runs(snapshot)}
    ordered = sorted((user for user in users if user is not None), key=str)
    number = {user: UUID(int=position) for position, user in enumerate(ordered, start=1)}

    def known(user: UUID | None) -> UUID | None:
        return number.get(user) if user else None

    limits = tuple(
        replace(limit, held={number[user]: held for user, held in limit.held.items()}) for limit in snapshot.user_limits
    )
    rules = snapshot.consolidation
    if rules is not None:
        movable = tuple(replace(one, run=replace(one.run, user=known(one.run.user))) for one in rules.movable)
        moved = rules.moved_for_others
        known_users = {number[user]: count for user, count in moved.users.items() if user in number}
        rules = replace(rules, movable=movable, moved_for_others=replace(moved, users=known_users))
    return replace(
        snapshot,
        queue=tuple(replace(job, user=known(job.user)) for job in snapshot.queue),
        returning=tuple(replace(job, user=known(job.user)) for job in snapshot.returning),
        shrinking=tuple(replace(job, user=known(job.user)) for job in snapshot.shrinking),
        running=tuple(replace(run, user=known(run.user)) for run in snapshot.running),
        user_limits=limits,
        consolidation=rules,
    )


def _runs(snapshot: Snapshot) -> tuple[RunningJob, ...]:
    movable = () if snapshot.consolidation is None else snapshot.consolidation.movable
    return (*snapshot.running, *(one.run for one in movable))


def decisions_text(decisions: Decisions) -> bytes:
    """The decisions as one line of JSON."""
    return _text(DECISIONS_FORMAT, "decisions", decisions)


def _text(form: str, name: str, value: object) -> bytes:
    document = {"format": form, "version": VERSION, name: plain(value)}
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def snapshot_of(document: Any) -> Snapshot:
    """The snapshot in a parsed document."""
    if not isinstance(document, dict) or document.get("format") != SNAPSHOT_FORMAT:
        raise RecordingError(f"this is not a recorded snapshot: its `format` is not {SNAPSHOT_FORMAT!r}")
    if document.get("version") != VERSION:
        raise RecordingError(f"version {document.get('version')!r} of the format; this program reads {VERSION}")
    if unknown := set(document) - {"format", "version", "snapshot"}:
        raise RecordingError(f"unknown fields beside the snapshot: {', '.join(sorted(unknown))}")
    return read(Snapshot, document.get("snapshot"), "snapshot")


def plain(value: Any) -> Any:
    """The value as dict, list, str, int, float, bool and None."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if is_dataclass(value) or hasattr(value, "_fields"):
        return {name: plain(getattr(value, name)) for name in _names(value.__class__)}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    return _scalar(value)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else kind._fields


def _key(key: object) -> str:
    return key if isinstance(key, str) else str(_scalar(key))


def _scalar(value: object) -> str:
    match value:
        case Decimal():
            return str(value)
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="microseconds")
        case UUID():
            return str(value)
    raise TypeError(f"{type(value).__name__} has no recorded form")


def read(kind: type[_T], value: Any, path: str) -> _T:
    """A value of this type from plain JSON, or RecordingError."""
    hint: Any = kind
    result: _T = _reader(hint)(value, path)
    return result


@cache
def _reader(hint: Any) -> Read:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        return _optional(arguments)
    if origin is Literal:
        return _one_of(arguments)
    if origin in {tuple, frozenset}:
        return _sequence(origin, arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(*arguments)
    if isinstance(hint, type) and is_dataclass(hint):
        return _record(hint)
    return _SCALARS[hint]


def _optional(arguments: tuple[Any, ...]) -> Read:
    (inner,) = (_reader(argument) for argument in arguments if argument is not NoneType)
    return lambda value, path: None if value is None else inner(value, path)


def _one_of(allowed: tuple[Any, ...]) -> Read:
    def choose(value: Any, path: str) -> Any:
        if value not in allowed:
            raise RecordingError(f"{path}: {value!r} is not one of {', '.join(map(repr, allowed))}")
        return value

    return choose


def _sequence(kind: type, arguments: tuple[Any, ...]) -> Read:
    readers = [_reader(argument) for argument in arguments if argument is not Ellipsis]
    is_fixed = kind is tuple and Ellipsis not in arguments

    def items(value: Any, path: str) -> Any:
        if not isinstance(value, list) or (is_fixed and len(value) != len(readers)):
            raise RecordingError(f"{path}: expected a list" + f" of {len(readers)}" * is_fixed)
        each = readers if is_fixed else readers * len(value)
        return kind(reader(item, f"{path}[{n}]") for n, (reader, item) in enumerate(zip(each, value, strict=True)))

    return items


def _mapping(key: Any, item: Any) -> Read:
    read_key, read_item = _reader(key), _reader(item)

    def members(value: Any, path: str) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise RecordingError(f"{path}: expected an object")
        return {read_key(name, path): read_item(one, f"{path}.{name}") for name, one in value.items()}

    return members


def _record(kind: type) -> Read:
    hints = get_type_hints(kind)
    known = {field.name: field for field in fields(kind)}
    readers = {name: _reader(hints[name]) for name in known}
    needed = [name for name, field in known.items() if _has_no_default(field)]

    def make(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise RecordingError(f"{path}: expected an object")
        if unknown := sorted(set(value) - set(known)):
            raise RecordingError(f"{path}: this program knows no field {', '.join(unknown)}")
        if missing := [name for name in needed if name not in value]:
            raise RecordingError(f"{path}: lacks {', '.join(missing)}")
        return kind(**{name: readers[name](one, f"{path}.{name}") for name, one in value.items()})

    return make


def _has_no_default(field: "Field[Any]") -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _exactly(kind: type, what: str) -> Read:
    def check(value: Any, path: str) -> Any:
        if type(value) is not kind:
            raise RecordingError(f"{path}: expected {what}")
        return value

    return check


def _number(value: Any, path: str) -> float:
    if type(value) not in {int, float}:
        raise RecordingError(f"{path}: expected a number")
    return float(value)


def _parsed(parse: Callable[[str], Any], what: str) -> Read:
    def convert(value: Any, path: str) -> Any:
        try:
            if isinstance(value, str):
                return parse(value)
        except (ValueError, InvalidOperation):
            pass
        raise RecordingError(f"{path}: expected {what} in quotes")

    return convert


def _instant(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(text)
    return found.astimezone(UTC)


def _finite(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError(text)
    return number


_SCALARS: Mapping[Any, Read] = {
    str: _exactly(str, "a text"),
    int: _exactly(int, "a whole number"),
    bool: _exactly(bool, "true or false"),
    float: _number,
    Decimal: _parsed(_finite, "a decimal number"),
    datetime: _parsed(_instant, "a time with its offset"),
    UUID: _parsed(UUID, "a UUID"),
}

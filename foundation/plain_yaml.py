"""Reads untrusted YAML as plain values, each with its line and column.

It builds values from the parser's events: mappings, lists, texts, whole numbers, booleans and null. So no constructor of a
YAML library runs, and aliases, anchors, tags and merges are refused where they appear, before anything is built of them.
Numbers with a point remain text, so amounts stay exact.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import yaml

from foundation.reading import Fault, Refused, child

MOST_CHARACTERS = 1024 * 1024
MOST_NODES = 100_000
MOST_DEPTH = 12
MOST_DOCUMENTS = 2000
WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
WORDS: Mapping[str, bool | None] = {
    "true": True, "True": True, "false": False, "False": False, "null": None, "Null": None, "~": None, "": None,
}  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in a file, counted from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


@dataclass(frozen=True, slots=True)
class Document:
    """A document's value, and the places of its fields by path, such as `tenants[0].limits`."""

    value: Any
    marks: Mapping[str, Mark]

    def mark(self, path: str) -> Mark:
        """The place of a field or, if the file does not have it, of the nearest thing around it."""
        while path and path not in self.marks:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.marks.get(path, Mark(1, 1))

    def placed(self, faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
        """The faults with their line and column in front of each text."""
        return tuple(Fault(fault.field, fault.code, f"{self.mark(fault.field)}: {fault.detail}") for fault in faults)


def read_documents(text: str, *, most: int = MOST_DOCUMENTS) -> list[Document]:
    """The documents of a file. Raises Refused with the place of the first thing that is not plain YAML."""
    if len(text) > MOST_CHARACTERS:
        raise Refused([Fault("", "too_long", f"a file has at most {MOST_CHARACTERS} characters")])
    try:
        return _Reader(text, most).documents()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        _refuse(_mark(mark) if mark else Mark(1, 1), "bad_yaml", "this is not YAML")
    except yaml.YAMLError as error:
        position = getattr(error, "position", 0)
        before = text[: position if isinstance(position, int) else 0]
        place = Mark(before.count("\n") + 1, len(before) - before.rfind("\n"))
        _refuse(place, "bad_yaml", "this character is not allowed in YAML")


class _Reader:
    """One pass over the events of a file."""

    def __init__(self, text: str, most: int) -> None:
        self._events: Iterator[Any] = yaml.parse(text, Loader=yaml.SafeLoader)
        self._most = most
        self._nodes = 0
        self._marks: dict[str, Mark] = {}

    def documents(self) -> list[Document]:
        found: list[Document] = []
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if len(found) == self._most:
                    _refuse(_mark(event.start_mark), "too_many", f"a file has at most {self._most} documents")
                self._marks = {}
                found.append(Document(self._value(next(self._events), "", 0), self._marks))
        return found

    def _value(self, event: Any, path: str, depth: int) -> Any:
        mark = _mark(event.start_mark)
        self._marks.setdefault(path, mark)
        self._count(event, mark, depth)
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(path, depth)
        return self._mapping(path, depth)

    def _list(self, path: str, depth: int) -> list[Any]:
        values: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            values.append(self._value(event, f"{path}[{len(values)}]", depth + 1))
        return values

    def _mapping(self, path: str, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            mark = _mark(event.start_mark)
            self._count(event, mark, depth)
            if not isinstance(event, yaml.ScalarEvent):
                _refuse(mark, "bad_yaml", "a key must be plain text")
            key = event.value
            if key in values:
                _refuse(mark, "given_twice", "this key appears twice in one mapping")
            if key == "<<":
                _refuse(mark, "yaml_alias", "merges are not accepted: write the fields out")
            self._marks[child(path, key)] = mark
            values[key] = self._value(next(self._events), child(path, key), depth + 1)
        return values

    def _count(self, event: Any, mark: Mark, depth: int) -> None:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            _refuse(mark, "yaml_alias", "anchors and aliases are not accepted: write the value out")
        if getattr(event, "tag", None):
            _refuse(mark, "yaml_tag", "tags are not accepted")
        self._nodes += 1
        if depth > MOST_DEPTH or self._nodes > MOST_NODES:
            told = f"at most {MOST_DEPTH} levels and {MOST_NODES} values in a file"
            _refuse(mark, "too_deep_or_large", told)


def _scalar(event: Any) -> Any:
    text = event.value
    if event.style is not None:  # quoted, or a block
        return text
    if text in WORDS:
        return WORDS[text]
    return int(text) if WHOLE.fullmatch(text) else text


def _mark(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


def _refuse(mark: Mark, code: str, detail: str) -> NoReturn:
    raise Refused([Fault("", code, f"{mark}: {detail}")])

"""The SQL that the rooms' source contains, as the program has it once its modules are imported."""

import ast
import importlib
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from .source import ROOT, name, tree

STATEMENT = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH|MERGE|VALUES|TABLE|COPY)\s")
GAP = re.compile(r"\{[a-z_]+\}")
"""What `str.format` fills in."""
CALLS = frozenset({"execute", "executemany", "copy", "raw", "RawSQL"})
"""What takes the text of a statement as its first argument, among other things."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A complete statement and its place: the file, and the constant or function that has it."""

    path: str
    owner: str
    text: str

    @property
    def place(self) -> str:
        """How the tests name it."""
        return f"{self.path}:{self.owner}"

    @property
    def room(self) -> str:
        """The folder at the top."""
        return self.path.split("/", maxsplit=1)[0]


class Unreadable(Exception):
    """A statement that no constants make: its text is known only while a function runs."""


def statements_in(path: Path, composed: Container[str] = ()) -> Iterator[Statement]:
    """Every statement of a file: the values of its constants, and the texts in its functions, but for those `composed`.

    Templates are included, with their gaps. Raises Unreadable.
    """
    if not any(STATEMENT.match(start_of(node)) for node in ast.walk(tree(path))):
        return
    module = module_at(path)
    for constant in _constants(tree(path)):
        for text in texts_of(getattr(module, constant, None)):
            yield Statement(name(path), constant, text)
    for owner, node in _walk(tree(path), ""):
        place = f"{name(path)}:{owner}"
        if owner and isinstance(node, ast.expr) and STATEMENT.match(start_of(node)) and place not in composed:
            yield Statement(name(path), owner, str(value_of(node, module, place)))


def module_at(path: Path) -> ModuleType:
    """The file, imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))


def texts_of(value: object) -> Iterator[str]:
    """The statements in a constant: a text, or a table of them."""
    if isinstance(value, str):
        if STATEMENT.match(value):
            yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from texts_of(each)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from texts_of(each)


def value_of(node: ast.expr, module: ModuleType, place: str) -> object:
    """The value of an expression in a function. Raises Unreadable if it depends on the function's own names."""
    try:
        return eval(compile(ast.Expression(node), place, "eval"), dict(vars(module)))
    except NameError as error:
        raise Unreadable(place) from error


def start_of(node: ast.AST) -> str:
    """How a literal text begins; empty if this is none, or begins with a value."""
    if isinstance(node, ast.JoinedStr):
        return start_of(node.values[0]) if node.values else ""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def calls_in(module: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """The first argument of each call that may run a statement, with the name of the function around it."""
    for owner, node in _walk(module, ""):
        if isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in CALLS:
                yield owner, node.args[0]


def _constants(module: ast.Module) -> Iterator[str]:
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _walk(node: ast.AST, owner: str) -> Iterator[tuple[str, ast.AST]]:
    """Every node below, with the function or class around it; not docstrings, and not the parts of a formatted text."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        yield owner, child
        if not isinstance(child, ast.JoinedStr):
            inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else ""
            yield from _walk(child, ".".join(filter(None, [owner, inner])))

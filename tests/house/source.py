"""The project's own source, as the house rules see it."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

Kind = TypeVar("Kind", bound=ast.AST)
ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("federation", "billing", "quotas", "clusters", "tenancy")
PURE = ("placement", "simulator")
PRODUCT = ("config", *ROOMS, *PURE, "foundation")
EVERYTHING = (*PRODUCT, "devtools", "benchmarks", "sdk", "tests")


def files(folders: tuple[str, ...] = PRODUCT, *, migrations: bool = False) -> list[Path]:
    """Python files below the folders, by path."""
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return sorted(path for path in found if migrations or "migrations" not in path.parts)


def name(path: Path) -> str:
    """The path as the project knows it."""
    return str(path.relative_to(ROOT))


@cache
def tree(path: Path) -> ast.Module:
    """The file's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _by_class(path: Path) -> Mapping[type[ast.AST], Sequence[ast.AST]]:
    """The tree is walked once for all tests."""
    found = defaultdict(list)
    for node in ast.walk(tree(path)):
        found[type(node)].append(node)
    return dict(found)


def nodes(path: Path, kind: type[Kind]) -> Iterator[Kind]:
    """Every node of the kind in the file; `kind` is a class of syntax itself, such as ast.Call."""
    yield from _by_class(path).get(kind, ())  # type: ignore[misc]


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function of the file."""
    return [*nodes(path, ast.FunctionDef), *nodes(path, ast.AsyncFunctionDef)]

"""The project's own source, as the house rules see it."""

import ast
from collections.abc import Iterator
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


def nodes(path: Path, kind: type[Kind]) -> Iterator[Kind]:
    """Every node of the kind in the file."""
    return (node for node in ast.walk(tree(path)) if isinstance(node, kind))


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function of the file."""
    return [node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

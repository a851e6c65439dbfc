"""What the linter cannot say of the source. Each message says how to put it right."""

import ast
import re

import pytest

from .source import EVERYTHING, PRODUCT, ROOT, files, functions, name, nodes, tree

LONGEST_FUNCTION = 70
LONGEST_FILE = 400
LONGEST_TEST_FILE = 600
MARKERS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")
EXCUSES = {"skip", "skipif", "xfail", "importorskip"}
LOCK_WORDS = re.compile(
    r"pg_(try_)?advisory|\bFOR (NO KEY )?UPDATE\b|\bFOR (KEY )?SHARE\b|\bSKIP LOCKED\b|\bLOCK TABLE\b", re.IGNORECASE
)
LOCK_CALLS = {"select_for_update", "lock_table"}
TEXTS = ("*.md", "*.html", "*.css", "*.js", "*.toml", "*.yaml", "*.yml")
NOT_OURS = {".venv", "vendor", "node_modules", ".git", "staticfiles"}


def is_lock_place(path) -> bool:
    inside = path.relative_to(ROOT).parts
    return inside[0] in {"foundation", "config"} or any(part in {"locks", "locks.py"} for part in inside)


def locks_taken(module: ast.AST) -> list[int]:
    """Lines that take a lock: by a call, or in the text of a statement. Docstrings may speak of locks."""
    documents = {
        id(node.body[0].value)
        for node in ast.walk(module)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    lines = []
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and node.attr in LOCK_CALLS:
            lines.append(node.lineno)
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documents
            and LOCK_WORDS.search(node.value)
        ):
            lines.append(node.lineno)
    return lines


def test_locks_are_taken_in_locks_py_alone():
    strays = [f"{name(path)}:{line}" for path in files() if not is_lock_place(path) for line in locks_taken(tree(path))]
    assert not strays, f"move the lock into the room's locks.py and call it from the operation: {strays}"


@pytest.mark.parametrize(
    "text",
    [
        "Tenant.objects.select_for_update().get()",
        "cursor.execute('SELECT pg_advisory_xact_lock(1)')",
        "cursor.execute(f'SELECT 1 FROM t WHERE id = {x} FOR NO KEY UPDATE')",
        'SQL = """SELECT id FROM job\n for update skip locked"""',
        "cursor.execute('LOCK TABLE job')",
    ],
)
def test_a_lock_taken_elsewhere_is_seen(text):
    assert locks_taken(ast.parse(text))


def test_a_docstring_may_speak_of_locks():
    assert not locks_taken(ast.parse('"""Rows are locked FOR UPDATE in locks.py."""'))


def test_no_function_is_longer_than_a_page():
    long = [
        f"{name(path)}:{node.lineno} {node.name} ({node.end_lineno - node.lineno + 1})"
        for path in files(EVERYTHING)
        for node in functions(path)
        if node.end_lineno - node.lineno + 1 > LONGEST_FUNCTION
    ]
    assert not long, f"split along its steps, at most {LONGEST_FUNCTION} lines each: {long}"


def test_no_file_is_longer_than_can_be_read_at_once():
    counts = {name(path): len(path.read_text().splitlines()) for path in files(EVERYTHING)}
    long = {
        path: lines
        for path, lines in counts.items()
        if lines > (LONGEST_TEST_FILE if path.startswith("tests/") else LONGEST_FILE)
    }
    assert not long, f"make it a package of the same name, at most {LONGEST_FILE} lines a file: {long}"


def test_no_work_is_left_as_a_marker():
    texts = [
        path for pattern in TEXTS for path in ROOT.rglob(pattern) if not NOT_OURS & set(path.relative_to(ROOT).parts)
    ]
    marked = [
        name(path)
        for path in [*files(EVERYTHING, migrations=True), *texts]
        if MARKERS.search(path.read_text(errors="replace"))
    ]
    assert not marked, f"do it, or leave it and say so in the docs: {marked}"


def test_no_test_is_excused():
    excused = [
        f"{name(path)}:{node.lineno}"
        for path in files(("tests",))
        for node in nodes(path, ast.Attribute)
        if node.attr in EXCUSES and ast.unparse(node).startswith("pytest.")
    ]
    assert not excused, f"a test that cannot run is an error that names the fix: {excused}"


def test_no_room_has_a_module_with_an_empty_name():
    empty = {
        "utils",
        "util",
        "helpers",
        "helper",
        "common",
        "misc",
        "manager",
        "managers",
        "service",
        "services",
        "handlers",
        "base",
    }
    django_looks_for_it_there = {"foundation/postgres/base.py"}
    found = [name(path) for path in files() if path.stem in empty and name(path) not in django_looks_for_it_there]
    assert not found, f"name it after its trade: {found}"


def test_every_module_says_what_it_is_for():
    silent = [
        name(path)
        for path in files()
        if path.read_text().strip() and not ast.get_docstring(tree(path)) and path.name != "apps.py"
    ]
    assert not silent, f"begin with one sentence on what the module is for: {silent}"


def test_an_import_inside_a_function_has_a_reason():
    hidden = []
    for path in files(PRODUCT):
        lines = path.read_text().splitlines()
        inner = [
            node
            for function in functions(path)
            for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        hidden += [f"{name(path)}:{node.lineno}" for node in inner if "noqa: PLC0415 - " not in lines[node.lineno - 1]]
    assert not hidden, f"import at the top, or state the reason: {hidden}"


def test_every_node_that_placement_sees_is_built_by_one_function():
    strays = [
        f"{name(path)}:{node.lineno}"
        for path in files(EVERYTHING)
        for node in nodes(path, ast.Call)
        if isinstance(node.func, ast.Name) and node.func.id == "FleetNode" and name(path) != "placement/values/nodes.py"
    ]
    assert not strays, (
        f"call placement.values.nodes.fleet_node, so that a new field of a node is set in one place: {strays}"
    )

"""The states of jobs and attempts are written in one module, and nothing is declared that nothing writes."""

import ast
import re

import pytest

from federation.engine.lifecycle import ATTEMPT_MOVES, JOB_MOVES
from tests.rooms.federation.test_transitions import ATTEMPT_STORIES, JOB_STORIES

from .source import PRODUCT, ROOT, files, name, tree

DOOR = ROOT / "federation/operations/transitions.py"
FIRST_STATE_ONLY = {
    "federation/operations/submission.py",  # a new job, queued
    "federation/operations/bulk_submission.py",  # likewise, many
    "federation/operations/past_traffic.py",  # jobs that ended before this installation began to watch, written whole
}
ROWS = {"Job", "Attempt"}
UPDATE = re.compile(
    r"UPDATE\s+\"?federation_(?:job|attempt)\"?\s+(?:AS\s+\w+\s+)?SET\b(.*?)(?:\bWHERE\b|\bFROM\b|$)",
    re.IGNORECASE | re.DOTALL,
)
# A list of columns that is not written out names them all.
INSERT = re.compile(r"(?:INSERT\s+INTO|COPY)\s+\"?federation_(?:job|attempt)\"?\s*\(([^)]*)", re.IGNORECASE)
SETS_STATE = re.compile(r"(?:^|[\s,(])\"?state\"?\s*(?:=|,|$)", re.IGNORECASE)


def writes(module: ast.AST) -> list[tuple[int, str]]:
    """Lines that write a `state`: `update(state=…)`, `advance(…)`, `row.state = …` with a save, or SQL; and whether they make rows."""
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            given = {keyword.arg for keyword in node.keywords}
            if (called in {"update", "bulk_update", "update_or_create"} and "state" in given) or called == "advance":
                found.append((node.lineno, "move"))
            if called in {"create", "get_or_create", *ROWS} and "state" in given:
                found.append((node.lineno, "make"))
            if called in {"save", "bulk_update"} and any(
                "'state'" in ast.unparse(each) for each in [*node.args, *node.keywords]
            ):
                found.append((node.lineno, "move"))
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Attribute) and target.attr in {"state", "state_before_unknown"}
            for target in node.targets
        ):
            found.append((node.lineno, "move"))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [(node.lineno, "move") for sets in UPDATE.findall(node.value) if SETS_STATE.search(sets)]
            found += [
                (node.lineno, "make")
                for columns in INSERT.findall(node.value)
                if not columns or SETS_STATE.search(columns)
            ]
    return found


def test_one_module_writes_the_states_of_jobs_and_attempts():
    strays = [
        f"{name(path)}:{line}"
        for path in files(("federation",))
        if path != DOOR and "engine" not in path.parts
        for line, kind in writes(tree(path))
        if kind == "move" or name(path) not in FIRST_STATE_ONLY
    ]
    assert not strays, f"make it a function of {name(DOOR)} and call that: {strays}"


def test_no_room_below_writes_them_behind_its_back():
    strays = [
        f"{name(path)}:{node.lineno}"
        for path in files(tuple(folder for folder in PRODUCT if folder != "federation"))
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.search(r"(UPDATE|INSERT\s+INTO)\s+\"?federation_(job|attempt)\b", node.value, re.IGNORECASE)
    ]
    assert not strays, strays


@pytest.mark.parametrize(
    "text",
    [
        "Attempt.objects.filter(id=1).update(finished_at=x, state='lost')",
        "advance(rows, JOB_LIFECYCLE, 'queued')",
        "job.state = 'queued'",
        "attempt.save(update_fields=['state', 'reason_at'])",
        "Job.objects.bulk_update(jobs, ['state'])",
        "SQL = '''\nUPDATE federation_attempt AS attempt\n   SET started_at = now(), state = 'running'\n WHERE id = %s'''",
        "SQL = 'UPDATE \"federation_job\" SET state=%s'",
        "SQL = 'WITH x AS (UPDATE federation_job SET state = 1 WHERE true) SELECT 1'",
        "SQL = f'INSERT INTO federation_attempt (id, state) VALUES ({x}, 1)'",
        "SQL = f'COPY federation_job ({columns}) FROM STDIN'",
        "Attempt(id=1, state='running').save()",
    ],
)
def test_a_state_written_elsewhere_is_seen(text):
    assert writes(ast.parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "Job.objects.filter(state='queued').update(reason_at=x)",
        "SQL = \"UPDATE federation_job SET explanation = %s WHERE id = %s AND state = 'queued'\"",
        "SQL = 'UPDATE federation_attempt SET state_of_mind = 1'",
    ],
)
def test_what_only_looks_at_a_state_is_left_alone(text):
    assert not writes(ast.parse(text))


@pytest.mark.parametrize(("moves", "stories"), [(JOB_MOVES, JOB_STORIES), (ATTEMPT_MOVES, ATTEMPT_STORIES)])
def test_every_declared_move_is_made_by_a_test_and_no_other_is(moves, stories):
    declared = {(source, target) for source, targets in moves.items() for target in targets}
    assert set(stories) == declared

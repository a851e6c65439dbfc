"""Which tests a change may break: what no record names is compared as files."""

import json
import sqlite3
from contextlib import closing

import pytest

from devtools import changed
from devtools.parts import PARTS, PROJECT, Run, paths_of

FILES = {"a/x.py": "1", "a/limits.sql": "2", "templates/page.html": "3", "tests/rooms/a/test_x.py": "4"}


@pytest.mark.parametrize(
    ("now", "named", "expected"),
    [
        (FILES, set(), []),
        (FILES | {"a/x.py": "9"}, {"a/x.py"}, []),
        (FILES | {"a/x.py": "9"}, set(), ["a/x.py"]),
        (
            FILES | {"a/limits.sql": "9", "templates/page.html": "9"},
            {"a/x.py"},
            ["a/limits.sql", "templates/page.html"],
        ),
        (FILES | {"a/constants.py": "5"}, {"a/x.py"}, ["a/constants.py"]),
        ({path: FILES[path] for path in FILES if path != "a/limits.sql"}, set(), ["a/limits.sql"]),
        (FILES | {"tests/rooms/a/test_x.py": "9", "tests/rooms/a/test_new.py": "9"}, set(), []),
        (FILES | {"tests/builders.py": "9"}, set(), ["tests/builders.py"]),
        (FILES | {"tests/builders.py": "9"}, {"tests/builders.py"}, []),
    ],
)
def test_all_tests_run_if_a_file_changed_that_no_record_names(now, named, expected):
    assert changed.changed_outside(FILES, now, named) == expected


def test_nothing_was_compared_before_the_first_run():
    assert changed.changed_outside({}, FILES, set()) == ["a/limits.sql", "a/x.py", "templates/page.html"]


def test_every_engine_and_room_is_run_and_nothing_else():
    runs = list(changed._runs(selects=True))
    assert {run.name for run in runs} == {"engine", "federation", "billing", "others"}
    asked = [argument for run in runs for argument in run.command if argument.startswith("tests/")]
    wanted = {path for plan in PARTS for path in paths_of(plan) if path.startswith(("engine", "rooms"))}
    assert sorted(asked) == sorted(f"tests/{path}" for path in wanted)
    assert {run.environment["TESTMON_DATAFILE"] for run in runs} == {
        str(changed.RECORDS / f"{run.name}.sqlite") for run in runs
    }
    assert all("--testmon-forceselect" in run.command for run in runs)
    assert all("--testmon-noselect" in run.command for run in changed._runs(selects=False))


@pytest.fixture
def records(tmp_path, monkeypatch):
    """Records that name one file, with what SQLite writes beside them."""
    monkeypatch.setattr(changed, "RECORDS", tmp_path)
    monkeypatch.setattr(changed, "COMPARED", tmp_path / "compared.json")
    with closing(sqlite3.connect(tmp_path / "engine.sqlite")) as made, made:
        made.execute("CREATE TABLE file_fp (filename TEXT)")
        made.execute("INSERT INTO file_fp VALUES ('placement/cycle/cycle.py')")
    (tmp_path / "engine.sqlite-wal").write_bytes(b"not a database of its own")
    return tmp_path


@pytest.fixture
def begun(monkeypatch):
    """What each run was told: whether it selects."""
    found = []

    def ended(runs):
        for run in runs:
            found.append("--testmon-forceselect" in run.command)
            run.code = pytest.ExitCode.NO_TESTS_COLLECTED
            yield run

    monkeypatch.setattr(changed, "run_all", ended)
    return found


def test_the_first_run_tries_all_the_next_selects_and_no_test_selected_is_a_success(records, begun, capsys):
    assert changed.main() == 0
    assert set(begun) == {False}
    assert "All tests run" in capsys.readouterr().out
    compared = json.loads((records / "compared.json").read_text())
    assert "pyproject.toml" in compared
    assert "placement/cycle/cycle.py" not in compared
    assert not {path for path in compared if path.startswith("docs/") or not (PROJECT / path).is_file()}
    begun.clear()
    assert changed.main() == 0
    assert set(begun) == {True}
    (records / "compared.json").write_text(json.dumps(compared | {"pyproject.toml": "other"}))
    begun.clear()
    changed.main()
    assert set(begun) == {False}


def test_a_run_that_is_interrupted_has_not_tried_what_it_found_changed(records, begun, monkeypatch):
    changed.main()
    compared = json.loads((records / "compared.json").read_text())
    (records / "compared.json").write_text(json.dumps(compared | {"pyproject.toml": "other"}))

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(changed, "run_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        changed.main()
    assert not (records / "compared.json").exists()


def test_a_failure_is_one(records, monkeypatch):
    monkeypatch.setattr(changed, "run_all", lambda _: [Run("engine", (), code=1)])
    assert changed.main() == 1

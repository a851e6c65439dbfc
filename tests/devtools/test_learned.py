"""A new copy of the project begins with what mypy learned in another one."""

from pathlib import Path

import pytest

from devtools import learned, wheels


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(wheels, "cache_root", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "mypy"


def checked(project: Path, learns: str) -> str:
    """What the copy knew before its check, in which it learns this."""
    project.mkdir(exist_ok=True)
    file = project / learned.OWN / "3.11" / "cache.db"
    with learned.brought(project):
        knew = file.read_text() if file.exists() else ""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(learns)
    return knew


def test_the_next_copy_knows_what_the_one_before_learned(tmp_path, cache):
    assert checked(tmp_path / "first", "a") == ""
    assert checked(tmp_path / "first", "b") == "a", "its own"
    assert checked(tmp_path / "second", "c") == "a", "what a copy learns later is its own"
    assert checked(tmp_path / "third", "d") == "c"
    assert {path.name for path in (tmp_path / "third").iterdir()} == {learned.OWN}


def test_what_a_killed_run_left_counts_for_nothing_and_other_versions_are_forgotten(tmp_path, cache):
    for left in (
        cache / "0.1-3.9",
        learned.kept().with_name(f"{learned.kept().name}.partial"),
        tmp_path / f"first/{learned.OWN}.partial",
    ):
        (left / "3.11").mkdir(parents=True)
        (left / "3.11" / "half.db").touch()
    assert checked(tmp_path / "first", "a") == ""
    assert checked(tmp_path / "second", "b") == "a"
    assert [path.name for path in (tmp_path / "second").rglob("*.db")] == ["cache.db"]
    assert [path for path in cache.iterdir() if path.is_dir()] == [learned.kept()]


def test_a_check_without_a_result_keeps_nothing(tmp_path, cache):
    (tmp_path / "first").mkdir()
    with learned.brought(tmp_path / "first"):
        pass
    assert not learned.kept().exists()

"""Prepared databases: whole, as `migrate` makes them, copied without ties, found again only for the same code."""

import ast
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import psutil
import psycopg
import pytest

from devtools import prepared
from devtools.embedded import postgres, runtime_url, stop
from devtools.scratch import scratch_folder
from devtools.serve import PROJECT
from tests.processes.conftest import wait_for

ROOMS = {path.parent.name for path in PROJECT.glob("*/apps.py")}


@pytest.fixture
def folder():
    """A folder that the server's user may enter."""
    found = scratch_folder("prepared")
    yield found
    shutil.rmtree(found)


@pytest.fixture
def root(folder, monkeypatch):
    """Where databases are kept, with nothing in it."""
    monkeypatch.setattr(prepared, "root", lambda: folder / "kept")
    return folder / "kept"


@pytest.fixture
def made(root, monkeypatch):
    """The homes that are made, which have the files of one and nothing in them."""
    homes = []

    def make(home):
        (home / "postgres").mkdir(parents=True)
        for name in ("postgres.password", "postgres.runtime.password"):
            (home / name).write_text(f"a-password-{len(homes)}")
        homes.append(home)

    monkeypatch.setattr(prepared, "_migrate", make)
    return homes


def asked(url, statement):
    with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def test_a_copy_is_migrated_for_both_roles_and_what_is_done_to_it_is_not_in_the_next_one(folder):
    for home in (folder / "first", folder / "second"):
        prepared.fill(home)
        service = postgres(home, durable=False)
        server = service.start()
        try:
            owner, processes = service.url, runtime_url(home, service.url)
            done = subprocess.run(
                [sys.executable, "manage.py", "migrate", "--check"], cwd=PROJECT, check=False,
                env={**os.environ, "DATABASE_URL": processes, "SWITCHYARD_OWNER_DATABASE_URL": owner},
            )  # fmt: skip
            assert done.returncode == 0
            assert asked(processes, "SELECT count(*) FROM federation_job") == [(0,)]
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                asked(processes, "DELETE FROM django_migrations RETURNING id")
            granted = "SELECT count(*) FROM information_schema.table_privileges WHERE grantee = 'switchyard_runtime'"
            assert asked(f"{owner.rpartition('/')[0]}/{prepared.TEMPLATE}", granted) == [(0,)]
            assert asked(owner, "SELECT to_regclass('left_behind')") == [(None,)]
            asked(owner, "CREATE TABLE left_behind AS SELECT 1 AS one")
        finally:
            stop(server, first=service.stop_signal)


def test_the_hash_follows_what_is_migrated_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(prepared, "PROJECT", tmp_path)
    hashes = []
    for name, text in (
        ("foundation/migrations/0001_tables.sql", "SELECT 1"), ("foundation/sql/leases.sql", "SELECT 2"),
        ("billing/models.py", ""), ("uv.lock", ""), ("billing/queries/costs.py", ""), ("docs/index.md", ""),
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        hashes.append(prepared.state_of_the_code())
    assert len(set(hashes)) == 4
    assert hashes[3] == hashes[4] == hashes[5]


def test_another_kind_is_kept_beside_and_follows_from_its_own_files_too(made, root, folder, tmp_path, monkeypatch):
    own = tmp_path / "devtools" / "other.py"
    own.parent.mkdir()
    monkeypatch.setattr(prepared, "PROJECT", tmp_path)
    other = prepared.Kind("other", prepared._migrate, ["devtools/other.py"])
    for number, text in enumerate(("1", "1", "2")):
        own.write_text(text)
        prepared.fill(folder / f"{number}", other)
        prepared.fill(folder / f"plain-{number}")
    assert len(made) == 3
    names = sorted(path.name.partition("-")[0] for path in root.iterdir() if path.is_dir())
    assert names == sorted(["other", "other", prepared.state_of_the_code()])


def test_what_migrations_import_counts():
    covered = set(prepared.sources())
    migrations = [path for path in covered if path.parent.name == "migrations" and path.suffix == ".py"]
    assert {path.parents[1].name for path in migrations} >= {"foundation", "tenancy", "federation"}
    imported = set()
    for path in migrations:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(node.module)
            elif isinstance(node, ast.Import):
                imported.update(alias.name for alias in node.names)
    ours = {name for name in imported if name.partition(".")[0] in ROOMS}
    assert ours
    assert [name for name in ours if PROJECT / f"{name.replace('.', '/')}.py" not in covered] == []


def test_a_database_is_made_once_for_the_same_code(made, folder):
    for name in ("first", "second"):
        prepared.fill(folder / name)
        assert (folder / name / "postgres.password").read_text() == "a-password-0"
        assert (folder / name / "postgres.password").stat().st_mode & 0o077 == 0
    assert len(made) == 1


@pytest.mark.parametrize("code", ["the same", "other"])
def test_what_a_killed_run_left_is_removed_and_counts_for_nothing(made, root, folder, code):
    left = root / f"{prepared.state_of_the_code() if code == 'the same' else 'other'}.partial"
    (left / "postgres").mkdir(parents=True)
    (left / "postgres" / "half").touch()
    prepared.fill(folder / "home")
    assert len(made) == 1
    assert list((folder / "home" / "postgres").iterdir()) == []
    assert not left.exists()


@pytest.fixture
def elsewhere(root):
    """Another process that holds the database of a name, as if it copied it."""
    script = (
        "import sys\nfrom pathlib import Path\nfrom devtools import prepared\n"
        "locks = Path(sys.argv[1]).open('w')\nprepared._take(locks, sys.argv[2], waits=True)\n"
        "print('taken', flush=True)\nsys.stdin.read()"
    )
    running = []

    def hold(name):
        root.mkdir(exist_ok=True)
        argv = [sys.executable, "-c", script, str(root / "locks"), name]
        holder = subprocess.Popen(argv, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        running.append(holder)
        assert holder.stdout.readline() == "taken\n"
        return holder

    yield hold
    for holder in running:
        holder.kill()
        holder.wait()
        for pipe in (holder.stdin, holder.stdout):
            pipe.close()


def test_a_database_of_other_code_is_neither_waited_for_nor_removed_while_it_is_copied(
    made, root, folder, elsewhere, monkeypatch
):
    monkeypatch.setattr(prepared, "KEPT", 1)
    for name in ("old", "older", "begun.partial"):
        (root / name).mkdir(parents=True)
    elsewhere("old")
    elsewhere("begun")
    prepared.fill(folder / "home")
    assert {path.name for path in root.iterdir() if path.is_dir()} == {
        "old",
        "begun.partial",
        prepared.state_of_the_code(),
    }


def test_the_same_database_is_prepared_by_one_process_at_a_time(made, root, folder, elsewhere, capfd):
    holder = elsewhere(prepared.state_of_the_code())
    with ThreadPoolExecutor(1) as other:
        filled = other.submit(prepared.fill, folder / "home")
        wait_for(lambda: "waiting for another process" in capfd.readouterr().err, "it waits")
        assert not made
        holder.stdin.close()
        filled.result(timeout=30)
    assert len(made) == 1


def test_a_failed_preparation_leaves_nothing_that_appears_complete(made, root, folder, monkeypatch):
    make = prepared._migrate

    def fail(home):
        make(home)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prepared, "_migrate", fail)
        with pytest.raises(KeyboardInterrupt):
            prepared.fill(folder / "first")
    assert not (root / prepared.state_of_the_code()).exists()
    prepared.fill(folder / "second")
    assert len(made) == 2


def test_those_used_the_longest_time_ago_are_forgotten(made, root, folder, monkeypatch):
    states = [f"state-{number}" for number in range(prepared.KEPT + 2)]
    for number, state in enumerate(states):
        monkeypatch.setattr(prepared, "state_of_the_code", lambda state=state: state)
        prepared.fill(folder / state)
        os.utime(root / state, (number, number))
        os.utime(root / states[0], (1000, 1000))
    assert {path.name for path in root.iterdir() if path.is_dir()} == {states[0], *states[-prepared.KEPT + 1 :]}


def test_a_killed_preparation_leaves_no_process(root):
    script = f"from pathlib import Path\nfrom devtools import prepared\nprepared.root = lambda: Path({str(root)!r})\nprepared.fill(Path({str(root / 'home')!r}))"
    preparing = subprocess.Popen([sys.executable, "-c", script], cwd=PROJECT, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: list(root.glob("*.partial/postgres/postmaster.pid")), "its server runs")
        family = psutil.Process(preparing.pid).children(recursive=True)
    finally:
        preparing.send_signal(signal.SIGKILL)
        preparing.wait()
    assert family
    _, alive = psutil.wait_procs(family, timeout=15)
    assert not alive

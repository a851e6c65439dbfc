"""`manage.py migrate` as an owner that is no superuser, in a database of its own."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from devtools.commands import Commands
from devtools.serve import PROJECT

from .conftest import wait_for

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]


@contextmanager
def new_database() -> Iterator[tuple[psycopg.Connection, str, str, str]]:
    """(an administrator's session, name of a new database, its owner, the processes' role)."""
    name = f"swy_{uuid.uuid4().hex[:12]}"
    owner, runtime = f"{name}_owner", f"{name}_runtime"
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {owner} LOGIN PASSWORD 'owner'")
        admin.execute(f"CREATE DATABASE {name} OWNER {owner}")
        yield admin, name, owner, runtime
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        for role in (owner, runtime, f"{name}_made"):
            admin.execute(f"DROP ROLE IF EXISTS {role}")


@pytest.fixture
def database():
    with new_database() as found:
        yield found


@pytest.fixture(scope="module")
def one_database():
    """For tests after the first of which it is migrated: to migrate one from nothing takes as long as all else that they do."""
    with new_database() as found:
        yield found


def environment(name, role, owner, **settings):
    """Of a process that is connected as the role, whose password is its last word; and migrates as the owner."""
    host = os.environ["DATABASE_URL"].rpartition("@")[2].rpartition("/")[0]

    def address(who):
        return f"postgresql://{who}:{who.rpartition('_')[2]}@{host}/{name}"

    owners = {"SWITCHYARD_OWNER_DATABASE_URL": address(owner)} if owner else {}
    return {**os.environ, "DATABASE_URL": address(role), **owners, **settings}


def manage(name, role, *words, owner="", **settings):
    """Whether the command succeeded, and what it says."""
    given = environment(name, role, owner, **settings)
    done = subprocess.run(
        [sys.executable, "manage.py", *words], cwd=PROJECT, env=given, capture_output=True, text=True, check=False
    )
    return done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def managed(tmp_path_factory):
    """`manage` in forks, of one process for each role: from the main thread alone."""
    processes: dict[tuple[str, str], Commands] = {}
    log = tmp_path_factory.mktemp("managed") / "log"

    def run(name, role, *words, owner=""):
        if (role, owner) not in processes:
            processes[role, owner] = Commands(environment(name, role, owner), log)
        done = processes[role, owner].run(*words)
        return done.code == 0, done.output + done.errors

    yield run
    for each in processes.values():
        each.close()


def test_an_owner_who_may_make_no_role_says_what_to_run_and_grants_once_it_is_there(one_database, managed):
    admin, name, owner, runtime = one_database
    migrated, said = managed(name, runtime, "migrate", "--noinput", owner=owner)
    assert not migrated
    assert f'CREATE ROLE "{runtime}" LOGIN PASSWORD' in said

    admin.execute(f"CREATE ROLE {runtime} LOGIN PASSWORD 'runtime'")
    migrated, said = managed(name, runtime, "migrate", "--noinput", owner=owner)
    assert migrated, said
    assert "foundation.W001" not in said
    is_fine, said = managed(name, runtime, "check", "--database", "default")
    assert is_fine, said
    assert "no issues" in said

    # The owner's address in place of the processes' is what is warned of; and the processes cannot migrate.
    _, said = managed(name, owner, "check", "--database", "default")
    assert "foundation.W001" in said
    assert "owns the tables" in said
    migrated, said = managed(name, runtime, "migrate", "sessions", "zero", "--noinput")  # it depends on no other
    assert not migrated
    assert "must be owner" in said or "permission denied" in said


def test_an_owner_who_may_make_roles_makes_it_and_follows_its_password(one_database, managed):
    admin, name, owner, _ = one_database
    runtime = f"{name}_made"
    admin.execute(f"ALTER ROLE {owner} CREATEROLE")
    for _ in range(2):
        migrated, said = managed(name, runtime, "migrate", "--noinput", owner=owner)
        assert migrated, said
        _, said = managed(name, runtime, "check", "--database", "default")
        assert "no issues" in said
        # Somebody changed it by hand: the next `migrate` sets it back to that of DATABASE_URL.
        admin.execute(f"ALTER ROLE {runtime} PASSWORD 'other'")
    (flags,) = admin.execute(
        "SELECT rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls FROM pg_roles WHERE rolname = %s", [runtime]
    ).fetchall()
    assert flags == (False,)


def test_a_command_before_the_first_migration_says_to_migrate_in_one_line(database):
    _, name, owner, _ = database
    succeeded, said = manage(name, owner, "standstill", "begin")
    assert not succeeded
    assert said == "The database lacks migrations of this version. Run `manage.py migrate`, then repeat this command.\n"


def test_two_addresses_of_two_databases_stop_the_boot(database):
    _, name, owner, runtime = database
    other = f"postgresql://{owner}:x@127.0.0.1/other"
    is_fine, said = manage(name, runtime, "check", SWITCHYARD_OWNER_DATABASE_URL=other)
    assert not is_fine
    assert "SWITCHYARD_OWNER_DATABASE_URL must name the same database" in said


def test_migrate_waits_briefly_for_a_lock_and_tries_again_until_it_has_it(database):
    admin, name, owner, _ = database
    admin.execute(f"ALTER ROLE {owner} CREATEROLE")
    # Not `quotas`, whose migration puts triggers on the table of tenants; it takes the least time of those that do such a thing.
    migrated, said = manage(name, owner, "migrate", "tenancy", "--noinput")
    assert migrated, said
    limits = {
        "SWITCHYARD_MIGRATE_LOCK_SECONDS": "1",
        "SWITCHYARD_MIGRATE_RETRY_SECONDS": "0",
        "SWITCHYARD_MIGRATE_STATEMENT_SECONDS": "60",
    }
    wanted = (name, owner, "migrate", "quotas", "0001", "--noinput")
    own = psycopg.conninfo.make_conninfo(os.environ["DATABASE_URL"], dbname=name)
    with psycopg.connect(own) as reader, ThreadPoolExecutor(1) as elsewhere:
        reader.execute("LOCK TABLE tenancy_tenant IN ROW EXCLUSIVE MODE")  # and its transaction goes on
        migrated, said = manage(*wanted, **limits)
        assert not migrated
        assert "a lock was not available for SWITCHYARD_MIGRATE_RETRY_SECONDS (0 s)" in said
        short = {"SWITCHYARD_MIGRATE_LOCK_SECONDS": "60", "SWITCHYARD_MIGRATE_STATEMENT_SECONDS": "1"}
        migrated, said = manage(*wanted, **limits | short)
        assert not migrated
        assert "a statement took longer than SWITCHYARD_MIGRATE_STATEMENT_SECONDS (1 s)" in said

        trying = elsewhere.submit(manage, *wanted, **limits | {"SWITCHYARD_MIGRATE_RETRY_SECONDS": "120"})
        waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
        for is_waiting in (True, False, True):  # it has stepped back, and others got through, before it waits again
            wait_for(lambda: bool(admin.execute(waits, [name]).fetchone()[0]) is is_waiting, "its next turn")  # noqa: B023
        assert not trying.done()
        reader.rollback()
        migrated, said = trying.result()
    assert migrated, said
    assert "a lock was not available; trying again for" in said

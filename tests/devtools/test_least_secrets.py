"""Every process starts with exactly the secrets that it is given, and says which one it lacks."""

import os
import re
import subprocess
import sys
from urllib.parse import urlsplit

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import get_commands, load_command_class
from django.db import connection

from devtools.commands import Commands
from devtools.serve import NEEDS, PROJECT, ROLES
from foundation.processes import VARIABLES, demand

GIVEN = {
    "REDIS_URL": "redis://:a-password@127.0.0.1:1/0",
    "SWITCHYARD_SECRET_KEY": "s" * 60,
    "SWITCHYARD_KEY_RING": "k1:a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=",
}
ROOMS = {"clusters", "federation", "foundation", "tenancy", "quotas", "billing"}
DJANGOS_OWN = {"migrate", "collectstatic"}


def environment(**secrets):
    """The database and these secrets, and nothing else that is ours."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "DATABASE_URL")}
    return {**kept, "DJANGO_SETTINGS_MODULE": "config.settings", **secrets}


def run(*arguments, **secrets):
    """A program with the database and these secrets."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=PROJECT, env=environment(**secrets),
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.fixture(scope="module")
def commands(django_db_setup, tmp_path_factory):
    """Commands with the database alone, each in a fork: what all of them import is imported once, with as little."""
    database = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
    found = Commands(environment() | {"DATABASE_URL": database}, tmp_path_factory.mktemp("least") / "log")
    yield found
    found.close()


@pytest.mark.parametrize(
    "command",
    [
        ("check",), ("migrate", "--check", "--database", "default"), ("collectstatic", "--noinput", "--dry-run", "--verbosity", "0"),
        ("check_routines",), ("verify_audit",), ("showmigrations", "--plan"), ("add_user", "--help"),
    ],
)  # fmt: skip
@pytest.mark.django_db(transaction=True)
def test_commands_that_speak_to_no_cluster_run_with_the_database_alone(commands, command):
    done = commands.run(*command)
    assert done.code == 0, done.output + done.errors


UP = """
import gc, sys
def up():
    if %r in sys.modules:
        print("imports views, which only the web process needs")
    print("up" if gc.isenabled() else "up without the garbage collector, which the settings disabled", flush=True)
"""


def boot(process, secrets):
    """What a process says while it starts, line by line: of those that serve only as far as they ask for what they need."""
    starts = {
        "web": "import config.wsgi; up()",
        "worker": """
import os
from celery import signals
from config.celery import app
def end(**_):
    up()
    os._exit(0)
signals.celeryd_after_setup.connect(end)
app.worker_main(["worker", "--concurrency", "1"])
""",
        "beat": """
import django; django.setup()
from foundation.management.commands import beat
beat.Bell.run = lambda self: up()
beat.ensure_rows = lambda _: None
beat.Command().handle()
""",
        "observer": """
import django; django.setup()
from federation.management.commands import observer
async def observe(): up()
observer._observe = observe
observer.Command().handle()
""",
    }
    views = "nothing" if process == "web" else "config.urls"
    done = run("-c", UP % views + starts[process], **secrets)
    return (done.stdout + done.stderr).splitlines()


@pytest.mark.parametrize("process", ROLES)
def test_a_process_boots_with_what_it_is_given_and_names_what_it_lacks(process):
    secrets = {name: GIVEN[name] for name in NEEDS[process] if name in GIVEN}
    said = boot(process, secrets)
    assert "up" in said, said
    assert not any("imports views" in line for line in said)
    said = boot(process, {})
    [refusal] = [line for line in said if f" must be set for {process}," in line]
    assert set(secrets) == set(GIVEN) & set(re.findall(r"[A-Z_]{6,}", refusal.partition(" must be set")[0]))
    assert "up" not in said


@pytest.mark.parametrize("lacks", VARIABLES)
def test_one_secret_that_is_absent_stops_a_boot(settings, lacks):
    """Each alone: to boot every process without each of its secrets would take a second of a core each time."""
    for name, variable in VARIABLES.items():
        setattr(settings, name, GIVEN[variable])
    demand("web", *VARIABLES)
    setattr(settings, lacks, "")
    with pytest.raises(ImproperlyConfigured, match=f"^{VARIABLES[lacks]} must be set for web,"):
        demand("web", *VARIABLES)


@pytest.mark.parametrize(
    "name", [name for name, app in get_commands().items() if app in ROOMS and name not in DJANGOS_OWN]
)
def test_a_command_reads_the_key_ring_first_and_imports_no_view(name):
    checked = load_command_class(get_commands()[name], name).requires_system_checks
    assert checked == ([] if name == "replay" else ["security"])  # a replay is a pure computation over files


def test_a_key_ring_that_is_none_still_stops_every_command():
    done = run("manage.py", "check_routines", SWITCHYARD_KEY_RING="a:b")
    assert done.returncode == 1
    assert "the key of a is not base64" in done.stderr

"""Every process starts with exactly the secrets that it is given, and says which one it lacks."""

import os
import subprocess
import sys
from urllib.parse import urlsplit

import pytest
from django.db import connection

from devtools.serve import NEEDS, PROJECT, ROLES

GIVEN = {
    "REDIS_URL": "redis://:a-password@127.0.0.1:1/0",
    "SWITCHYARD_SECRET_KEY": "s" * 60,
    "SWITCHYARD_KEY_RING": "k1:a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=",
}


def run(*arguments, database=None, **secrets):
    """A program with the database and these secrets, and nothing else that is ours in its environment."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "DATABASE_URL")}
    if database:
        kept["DATABASE_URL"] = urlsplit(kept["DATABASE_URL"])._replace(path=f"/{database}").geturl()
    return subprocess.run(
        [sys.executable, *arguments], cwd=PROJECT, env={**kept, "DJANGO_SETTINGS_MODULE": "config.settings", **secrets},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [
        ("check",), ("migrate", "--check", "--database", "default"), ("collectstatic", "--noinput", "--dry-run", "--verbosity", "0"),
        ("check_routines",), ("verify_audit",), ("showmigrations", "--plan"), ("add_user", "--help"),
    ],
)  # fmt: skip
@pytest.mark.django_db(transaction=True)
def test_commands_that_speak_to_no_cluster_run_with_the_database_alone(command):
    done = run("manage.py", *command, database=connection.settings_dict["NAME"])
    assert done.returncode == 0, done.stdout + done.stderr


def boot(process, secrets):
    """What a process says while it starts: of those that serve only as far as they ask for what they need."""
    starts = {
        "web": "import config.wsgi; print('up')",
        "worker": """
import config.celery
from celery.signals import celeryd_init
celeryd_init.send(None, instance=None, conf=None, options={})
print("up")
""",
        "beat": """
import django; django.setup()
from foundation.management.commands import beat
beat.Bell.run = lambda self: print("up")
beat.ensure_rows = lambda _: None
beat.Command().handle()
""",
        "observer": """
import django; django.setup()
from federation.management.commands import observer
async def up(): print("up")
observer._observe = up
observer.Command().handle()
""",
    }
    done = run("-c", starts[process], **secrets)
    return done.stdout + done.stderr


@pytest.mark.parametrize("process", ROLES)
def test_a_process_boots_with_what_it_is_given_and_names_what_it_lacks(process):
    secrets = {name: GIVEN[name] for name in NEEDS[process] if name in GIVEN}
    assert "up" in boot(process, secrets)
    for name in secrets:
        said = boot(process, {key: value for key, value in secrets.items() if key != name})
        assert f"{name} must be set for {process}" in said
        assert "\nup" not in said


def test_a_key_ring_that_is_none_still_stops_every_command():
    done = run("manage.py", "check", SWITCHYARD_KEY_RING="a:b")
    assert done.returncode == 1
    assert "the key of a is not base64" in done.stderr

"""Loaded before Django's settings: real PostgreSQL and Valkey for the whole run, unless DATABASE_URL and REDIS_URL name some.

The server has a migrated database, which the tests' own is a copy of. With xdist the controller starts them and the workers inherit the addresses. A run of tests of the engines alone starts
none: engines are pure, and a test of one that asked a server would fail.
"""

import atexit
import base64
import gc
import os
import shutil
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from devtools import prepared
from devtools.check import PLACEHOLDERS
from devtools.embedded import is_configured, servers
from devtools.scratch import scratch_folder
from tests.near import SOCKETS, stay_on_a_core

MIGRATED = "MIGRATED_DATABASE"
"""The variable that names the migrated database of the server, if it has one."""
ENGINES = Path(__file__).resolve().parent / "engine"

# Else each process that tests start would compile Django and all else again, where no bytecode was written before.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("SWITCHYARD_SECRET_KEY", "tests-only-" + "k" * 50)
os.environ.setdefault("SWITCHYARD_KEY_RING", "test:" + base64.b64encode(b"t" * 32).decode())
os.environ.setdefault("SWITCHYARD_EGRESS_ALLOW", "127.0.0.0/8")
os.environ.setdefault("SWITCHYARD_ALLOW_SIMULATION", "1")
# Many processes of one kind run at the same time; a test of figures names a port.
os.environ.setdefault("SWITCHYARD_METRICS_PORT", "0")
# Control planes collect their garbage less often: a sixth less CPU time for some 100 MiB more each.
os.environ.setdefault("GOGC", "400")


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """A wrapper, so that it comes before the hook by which pytest-django reads the settings."""
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        stay_on_a_core(worker)
    if only_engines(early_config):
        for name, value in PLACEHOLDERS.items():
            os.environ.setdefault(name, value)
    else:
        start()
    return (yield)


def pytest_collection() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    """What was imported is never garbage: the collector need not walk it again and again. And it comes less often than Python's 700
    new objects would call it: most are freed without it, and laws keep hundreds of thousands.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


def only_engines(config: pytest.Config) -> bool:
    """Whether all that this run names are tests of engines."""
    named = [config.invocation_params.dir / path.split("::")[0] for path in config.known_args_namespace.file_or_dir]
    return bool(named) and all(path.resolve().is_relative_to(ENGINES) for path in named)


def start() -> None:
    """Starts the servers, which end with this process, unless the environment names some."""
    if os.environ.get("DATABASE_URL") and os.environ.get("REDIS_URL"):
        return
    home = scratch_folder("tests")
    stack = ExitStack()
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    atexit.register(stack.close)
    sockets = home / "sockets"
    if not is_configured("DATABASE_URL"):
        prepared.fill(home)
        os.environ[MIGRATED] = prepared.TEMPLATE
        os.environ[SOCKETS] = str(sockets)
    os.environ.update(stack.enter_context(servers(home, durable=False, sockets=sockets)))

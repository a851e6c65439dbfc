"""The client over the gateway's own application, without a network between."""

import signal
from dataclasses import dataclass

import httpx
import pytest
from django.core.handlers.wsgi import WSGIHandler
from typer.testing import CliRunner

from switchyard import Client, cli
from switchyard.cli.session import Session
from tests.builders import bind, make_tenant, make_token, make_user
from tests.live_fixtures import cluster, home, kept_pools, kept_sessions

__all__ = ["cluster", "home", "kept_pools", "kept_sessions"]
ADDRESS = "http://localhost"


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def nothing_stored(tmp_path, monkeypatch):
    """No login of whoever runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("SWITCHYARD", "SWITCHYARD_TOKEN", "SWITCHYARD_TOKEN_FILE", "SWITCHYARD_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def user(db):
    made = make_user("ada@acme.example")
    make_tenant("acme/research/vision")
    bind(made, "acme", "admin")
    return made


@pytest.fixture
def client(user):
    with Client(ADDRESS, make_token(user, "write"), transport=httpx.WSGITransport(WSGIHandler())) as made:
        yield made


@pytest.fixture
def run(client, monkeypatch):
    """The command with these arguments, in this process."""
    monkeypatch.setattr(Session, "client", lambda _: client)
    monkeypatch.setattr(client, "close", lambda: None)  # several commands use it

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(*arguments, given=""):
        result = CliRunner().invoke(cli.app, [*arguments], input=given)
        if isinstance(result.exception, SystemExit) or result.exception is None:
            return Done(result.exit_code, result.stdout, result.stderr)
        raise result.exception

    yield run
    for number, handler in before.items():
        signal.signal(number, handler)

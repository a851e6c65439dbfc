"""Real processes of the gateway beside members that lie: what the memory test and the benchmark have in common."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from django.db import connection

from clusters.engine.connection import Secret
from clusters.models import Cluster
from clusters.operations.registration import store_credential
from tests.builders import make_cluster
from tests.hostile_member import LIES, Member
from tests.scripted_server import SECRET

PROJECT = Path(__file__).resolve().parents[1]


def registered(member: Member) -> Cluster:
    """The member as a cluster whose registration has gone well; it lies only since then."""
    return _registered(member.name, member.port, member.ca_pem, member.identity)


def _registered(name: str, port: int, ca_pem: str, identity: str) -> Cluster:
    server = f"https://127.0.0.1:{port}"
    cluster = make_cluster("acme", name, server=server, ca_pem=ca_pem, identity=identity)
    store_credential(cluster.id, Secret("token", SECRET.encode()))
    return cluster


@contextmanager
def liars(names: Sequence[str] = tuple(LIES)) -> Iterator[Mapping[str, Cluster]]:
    """Registered members by their lie, each of its own, in a process of their own: what it costs to lie is not measured."""
    command = [sys.executable, "-m", "tests.hostile_member", *names]
    with subprocess.Popen(
        command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as running:
        assert running.stdin
        assert running.stdout
        told = json.loads(running.stdout.readline())
        try:
            yield {
                lie: _registered(each["name"], each["port"], told["ca_pem"], f"uid-{each['name']}")
                for lie, each in told["members"].items()
            }
        finally:
            running.kill()


def database_url() -> str:
    """This test's database, for a process of its own."""
    url = urlsplit(os.environ["DATABASE_URL"])
    return urlunsplit(url._replace(path="/" + str(connection.settings_dict["NAME"])))


@contextmanager
def process(*command: str) -> Iterator["subprocess.Popen[bytes]"]:
    """`python command…` on this test's database, ended afterwards."""
    environment = {**os.environ, "DATABASE_URL": database_url(), "SWITCHYARD_LOG_LEVEL": "ERROR"}
    running = subprocess.Popen([sys.executable, *command], cwd=PROJECT, env=environment)
    try:
        yield running
    finally:
        running.terminate()
        running.wait(30)

"""DATABASE_URL is honoured to the letter or refused by name; nothing behind its question mark is dropped in silence."""

import os
import socket
import subprocess
import sys
import time
from contextlib import closing

import psycopg
import pytest
from django.db import connection

from config.database import DEFAULTS, SESSION, read_database_url
from devtools.check import PLACEHOLDERS
from tests.faults.packets import swallow


def read(url):
    return read_database_url(url, prepare=True)


def test_a_plain_url_gets_bounds_on_every_wait():
    found = read("postgresql://ann:p%40ss@db.example:6432/books")
    assert [found[name] for name in ("NAME", "USER", "PASSWORD", "HOST", "PORT")] == [
        "books",
        "ann",
        "p@ss",
        "db.example",
        "6432",
    ]
    options = found["OPTIONS"]
    assert options["options"] == SESSION
    assert {name: options[name] for name in DEFAULTS} == DEFAULTS
    assert "sslmode" not in options


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("sslmode=verify-full&sslrootcert=/ca.pem", {"sslmode": "verify-full", "sslrootcert": "/ca.pem"}),
        ("connect_timeout=30&application_name=blue", {"connect_timeout": "30", "application_name": "blue"}),
        ("channel_binding=require", {"channel_binding": "require"}),
        ("options=-c%20statement_timeout%3D1000", {"options": f"{SESSION} -c statement_timeout=1000"}),
        ("target_session_attrs=any", {"target_session_attrs": "any"}),
        ("tcp_user_timeout=0", {"tcp_user_timeout": "0"}),
    ],
)
def test_every_parameter_of_libpq_is_honoured(query, wanted):
    options = read(f"postgresql://ann@db/books?{query}")["OPTIONS"]
    assert {name: options[name] for name in wanted} == wanted


def test_of_several_hosts_the_one_that_takes_writes_is_wanted():
    found = read("postgresql://ann@one:5432,two:5433,[::1]:5434/books")
    assert (found["HOST"], found["PORT"]) == ("one,two,::1", "5432,5433,5434")
    assert found["OPTIONS"]["target_session_attrs"] == "read-write"
    assert read("postgresql://a@/b?hostaddr=10.0.0.1,10.0.0.2")["OPTIONS"]["target_session_attrs"] == "read-write"
    assert read("postgresql://a@one,two/b?target_session_attrs=primary")["OPTIONS"]["target_session_attrs"] == "primary"


def test_a_socket_folder_is_a_host():
    assert read("postgresql://ann@/books?host=/run/postgresql")["HOST"] == "/run/postgresql"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://ann:secret-word@db/books?sslmod=require", "sslmod"),
        ("postgresql://ann:secret-word@db/books?pool_mode=session", "pool_mode"),
        ("postgresql://ann:secret-word@db/books?client_encoding=latin1", "UTF-8"),
        ("postgresql://ann:secret-word@db/books?replication=database", "ordinary"),
        ("postgresql://ann:secret-word@db/", "name a database"),
        ("postgresql://ann:secret-word@db", "name a database"),
        ("postgresql://ann:secret-word@[::1/books", "libpq can read"),
        ("mysql://ann:secret-word@db/books", "postgresql://"),
        ("host=db password=secret-word", "postgresql://"),
        ("", "postgresql://"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name_and_no_secret_is_repeated(url, words):
    with pytest.raises(ValueError, match=words) as refused:
        read(url)
    assert "secret-word" not in str(refused.value)


def test_a_url_that_asks_for_tls_gets_tls_or_no_connection():
    """The embedded server speaks no TLS, so a connection in the clear would be the parameter dropped."""
    here = connection.settings_dict
    url = f"postgresql://{here['USER']}:{here['PASSWORD']}@{here['HOST']}:{here['PORT']}/postgres?sslmode=require"
    asked = subprocess.run(
        [sys.executable, "manage.py", "migrate", "--check"],
        env={**PLACEHOLDERS, "PATH": "/usr/bin:/bin", "DATABASE_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode != 0
    assert "server does not support SSL" in asked.stderr


def test_a_server_that_never_answers_the_first_word_is_given_up_in_seconds():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://a:b@127.0.0.1:{silent.getsockname()[1]}/books?connect_timeout=2"
        began = time.monotonic()
        asked = subprocess.run(
            [sys.executable, "manage.py", "migrate", "--check"],
            env={**PLACEHOLDERS, "PATH": "/usr/bin:/bin", "DATABASE_URL": url},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert asked.returncode != 0
    assert "timeout" in asked.stderr
    assert time.monotonic() - began < 30  # a hang, not a speed, is what this tells apart


@pytest.mark.django_db(transaction=True)
def test_the_locks_of_a_client_that_vanished_are_free_within_half_a_minute():
    """Its packets are lost from now on, and it never resets the connection itself: the server has to find out."""
    client = psycopg.connect(
        **{**connection.get_connection_params(), "cursor_factory": None, "keepalives": "0"}, autocommit=True
    )
    assert client.info.host.startswith("127.") or client.info.host == "localhost"
    with closing(client):
        client.execute("SELECT pg_advisory_lock(4711, 1)")
        with socket.socket(fileno=os.dup(client.fileno())) as wire:
            swallow(wire)
        began = time.monotonic()
        with connection.cursor() as cursor:
            while True:
                cursor.execute("SELECT pg_try_advisory_lock(4711, 1)")
                if cursor.fetchone()[0]:
                    break
                assert time.monotonic() - began < 40, "the server keeps the lock of a client that is gone"
                time.sleep(0.5)
            cursor.execute("SELECT pg_advisory_unlock(4711, 1)")
        assert time.monotonic() - began > 5, "the client was gone, and not closed"

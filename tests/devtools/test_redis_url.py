"""Redis' address: the boot refuses one that lets strangers in, and every client gets the same server."""

import socket
import ssl
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from typing import Any

import pytest
import redis
from celery import Celery
from kombu.transport import TRANSPORT_ALIASES

from config.redis_url import broker_url, check_redis_url
from devtools.embedded import valkey
from devtools.serve import PROJECT
from tests.apiserver import make_certificate

PASSWORD = "canary-redis-51f0"


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:6379/0",
        "redis://user@127.0.0.1:6379/0",
        "redis://:@127.0.0.1:6379/0",
        "rediss://redis.example.com:6380/0",
        "redis://127.0.0.1:6379/0?password=x",
    ],
)
def test_an_address_without_a_password_stops_the_boot_and_says_what_to_do(url):
    with pytest.raises(ValueError, match="requirepass"):
        check_redis_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "", "127.0.0.1:6379", "http://:x@127.0.0.1/0", "redis://:x@", "redis://:x@host:0/0", "redis://:x@host:port/0",
        "unix://", "unix:///", "unix://relative/path", "redis+socket:///tmp/redis.sock", "sentinel://:x@host:1/0",
    ],
)  # fmt: skip
def test_an_address_of_another_form_stops_the_boot(url):
    if url == "unix://relative/path":
        url = "unix:relative/path"
    with pytest.raises(ValueError, match="must look like"):
        check_redis_url(url)


@pytest.mark.parametrize("how", ["none", "optional", "CERT_NONE", ""])
def test_tls_that_does_not_verify_stops_the_boot(how):
    if how:
        with pytest.raises(ValueError, match="verify"):
            check_redis_url(f"rediss://:x@host:1/0?ssl_cert_reqs={how}")
    check_redis_url("rediss://:x@host:1/0?ssl_cert_reqs=required")


def test_a_socket_needs_a_password_where_other_users_may_enter(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    file = folder / "valkey.sock"
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(file))
        file.chmod(0o777)
        check_redis_url(f"unix://{file}?db=0")
        folder.chmod(0o755)
        with pytest.raises(ValueError, match="chmod 700"):
            check_redis_url(f"unix://{file}?db=0")
        check_redis_url(f"unix://:{PASSWORD}@{file}?db=0")
        file.chmod(0o700)
        check_redis_url(f"unix://{file}?db=0")


def test_the_refusal_names_the_setting_and_not_the_address(monkeypatch):
    environment = {"REDIS_URL": f"redis://{PASSWORD}@127.0.0.1:6379/0", "PATH": "/usr/bin"}
    done = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=PROJECT,
        env={
            "SWITCHYARD_SECRET_KEY": "x" * 50,
            "SWITCHYARD_KEY_RING": "k:" + "YWFh" * 11,
            "DATABASE_URL": "postgresql://x@127.0.0.1/x",
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "REDIS_URL: has no password" in done.stderr
    assert PASSWORD not in done.stdout + done.stderr


def rings(url):
    """What the broker's own client makes of the address."""
    TRANSPORT_ALIASES["rings"] = "foundation.rings:Transport"
    app = Celery("probe", broker=broker_url(url, "rings"))
    with app.connection_for_read() as connection:
        connection.ensure_connection(max_retries=1, timeout=5)
        channel: Any
        with connection.channel() as channel:
            return channel.client.ping() and connection.as_uri()


@pytest.fixture
def server(tmp_path):
    service = valkey(tmp_path)
    process = service.start()
    yield service
    process.kill()
    process.wait()


@contextmanager
def relay(listener, port, context=None):
    """Passes connections on to the server's port; over TLS with a context."""
    threads = []

    def accept():
        while True:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=serve, args=(link,), daemon=True))
            threads[-1].start()

    def serve(link):
        try:
            if context:
                link = context.wrap_socket(link, server_side=True)
        except OSError:
            link.close()
            return
        with link, socket.create_connection(("127.0.0.1", port)) as onward:
            back = threading.Thread(target=copy, args=(onward, link), daemon=True)
            back.start()
            copy(link, onward)
            back.join(5)

    threads.append(threading.Thread(target=accept, daemon=True))
    threads[0].start()
    with listener:
        yield
        listener.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(5)


def copy(source, target):
    try:
        while part := source.recv(65_536):
            target.sendall(part)
        target.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


@pytest.fixture
def behind_tls(server, tmp_path):
    """The address over TLS, and the authority's file."""
    certificate, key = make_certificate("127.0.0.1")
    (tmp_path / "ca.pem").write_text(certificate)
    (tmp_path / "key.pem").write_text(key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "ca.pem", tmp_path / "key.pem")
    listener = socket.create_server(("127.0.0.1", 0))
    with relay(listener, server.port, context):
        credentials = server.url.removeprefix("redis://").partition("@")[0]
        yield f"rediss://{credentials}@127.0.0.1:{listener.getsockname()[1]}/0", tmp_path / "ca.pem"


def test_both_clients_speak_tls_to_a_server_that_they_verify(behind_tls):
    url, authority = behind_tls
    verified = f"{url}?ssl_ca_certs={authority}"
    check_redis_url(verified)
    with redis.Redis.from_url(verified) as client:
        assert client.ping()
    assert "**" in rings(verified)


def test_neither_client_believes_a_server_that_nobody_vouches_for(behind_tls):
    url, authority = behind_tls
    for unverified in (url, url.replace("127.0.0.1", "localhost") + f"?ssl_ca_certs={authority}"):
        with pytest.raises(redis.ConnectionError, match="certificate verify failed"):
            redis.Redis.from_url(unverified).ping()
        with pytest.raises(Exception, match="certificate verify failed"):
            rings(unverified)


def test_both_clients_reach_a_socket(server, tmp_path):
    file = tmp_path / "valkey.sock"
    credentials = server.url.removeprefix("redis://").partition("@")[0]
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(file))
    listener.listen()
    url = f"unix://{credentials}@{file}?db=0"
    check_redis_url(url)
    with relay(listener, server.port):
        with redis.Redis.from_url(url) as client:
            assert client.ping()
        assert rings(url)


def test_both_clients_read_a_password_with_signs_alike(server):
    address = f"redis://switchyard:p%40ss%2Fw%3Ard@{server.url.partition('@')[2]}"
    with pytest.raises(redis.AuthenticationError):
        redis.Redis.from_url(address).ping()
    with pytest.raises(Exception, match=r"(?i)wrongpass|invalid username"):
        rings(address)

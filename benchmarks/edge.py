"""The cost of an external attack for users: submits and health beside idle, slow and refused peers.

One gateway with gunicorn's own threads before its processes and one with the edge, in one run: both without an attack,
in turn, and the edge under each attack, with a quiet measurement before and after. Attackers are separate processes
on 127.0.0.2, bounded in number and time; everything stays on loopback, on the same cores as the gateway.
`make bench-edge`.

Under refused sign-ins, submits come at fixed rates, whether the last was answered or not, and each is timed from its
scheduled time. Eight connections that send as fast as they can would fill both cores. The guesser uses a part of the same
two cores, which it would not on a separate host. So submits are timed in three states in turn: without a guesser, while
the guesser asks a bystander that immediately answers 429, and while it asks the gateway. The last against the second is
the cost of the gateway's refusals; the last against the first also includes the guesser's own work.
"""

import argparse
import http.client
import json
import multiprocessing
import re
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import psycopg

from benchmarks import report
from benchmarks.api import burst, paced
from devtools.trial import Gateway, start_gateway

CONNECTIONS = 8
STRANGER, VISITOR = "127.0.0.2", "203.0.113.66"
FIRST_BYTES = {
    "silent": b"",
    "slow heads": b"GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\n",
    "slow bodies": b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{",
    "never read": b"GET /login/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "vanished": b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{",
}
DRIP = {"slow heads": b"X-Drip: 1\r\n", "slow bodies": b" "}
MOST_SECONDS = 120
SIGN_INS_A_SECOND = 200
GUESSERS = 8
PACES = (10, 20, 40)
"""Submits per second, while sign-ins are refused."""
PACED_SECONDS = 15
ROUNDS = 4
"""The states in turn, so that all have the same conditions of the host."""
QUIET, ELSEWHERE, FLOODED = "edge, no attack", "edge, 200/s sign-ins at a bystander", "edge, 200/s refused sign-ins"
TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


def hold(port: int, kind: str, count: int, ready: Any, stop: Any) -> None:
    """Keeps `count` connections of this kind open, and reopens closed ones, until `stop` is set."""
    sockets: dict[int, socket.socket] = {}
    until = time.monotonic() + MOST_SECONDS
    while not stop.is_set() and time.monotonic() < until:
        for number in range(count):
            try:
                if number not in sockets:
                    sockets[number] = _open(port, FIRST_BYTES[kind])
                elif kind in DRIP:
                    sockets[number].send(DRIP[kind])
                else:
                    _look(sockets[number], kind)
            except OSError:
                sockets.pop(number, None)
        ready.set()
        stop.wait(1)


def _open(port: int, first: bytes) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.bind((STRANGER, 0))
    sock.settimeout(5)
    sock.connect(("127.0.0.1", port))
    if first:
        sock.sendall(first)
    sock.setblocking(False)
    return sock


def _look(sock: socket.socket, kind: str) -> None:
    """OSError when the other side has ended the connection."""
    if kind == "vanished":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
        raise OSError
    with suppress(BlockingIOError):
        if sock.recv(1, socket.MSG_PEEK) == b"":
            raise OSError


def guess(port: int, form: tuple[str, str], ready: Any, stop: Any, answers: Any) -> None:
    """Refused sign-ins at a fixed rate, through a proxy that the gateway trusts."""
    counts: dict[int, int] = {}
    lock = threading.Lock()
    began = time.monotonic()

    def send(first: int) -> None:
        number = first
        while not stop.is_set() and time.monotonic() - began < MOST_SECONDS:
            time.sleep(max(0.0, began + number / SIGN_INS_A_SECOND - time.monotonic()))
            with suppress(OSError, ValueError):
                status = _guess_once(port, form, f"p{number % 50}@example.org")
                with lock:
                    counts[status] = counts.get(status, 0) + 1
            number += GUESSERS

    senders = [threading.Thread(target=send, args=[first]) for first in range(GUESSERS)]
    for sender in senders:
        sender.start()
    ready.set()
    for sender in senders:
        sender.join()
    answers.put((sum(counts.values()) / (time.monotonic() - began), counts))


def _guess_once(port: int, form: tuple[str, str], email: str) -> int:
    """As `sign_in`, at the least cost: the guesser's work is not the gateway's."""
    body = urlencode({"email": email, "password": "wrong", "csrfmiddlewaretoken": form[0]})
    head = (
        f"POST /login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-For: {VISITOR}\r\nCookie: {form[1]}\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), 30, source_address=(STRANGER, 0)) as sock:
        sock.sendall((head + body).encode())
        return int(sock.recv(4096).split(b" ", 2)[1])


def stand_by(listener: socket.socket) -> None:
    """Answers 429 to every connection, at the least cost."""
    while True:
        sock, _ = listener.accept()
        with sock, suppress(OSError):
            sock.recv(4096)
            sock.sendall(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@contextmanager
def bystander() -> Iterator[int]:
    """A listener that is not the gateway, in a separate process; yields its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        process = multiprocessing.Process(target=stand_by, args=[listener], daemon=True)
        process.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            process.terminate()
            process.join()


def _form(port: int, client: str) -> tuple[str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, 30, source_address=(STRANGER, 0))
    connection.request("GET", "/login/", headers={"X-Forwarded-For": client})
    answer = connection.getresponse()
    found = TOKEN.search(answer.read().decode())
    assert found is not None
    return found[1], (answer.getheader("Set-Cookie") or "").partition(";")[0]


def sign_in(port: int, client: str, form: tuple[str, str], email: str, password: str) -> int:
    """The status that a sign-in gets."""
    token, cookie = form
    connection = http.client.HTTPConnection("127.0.0.1", port, 30, source_address=(STRANGER, 0))
    headers = {"X-Forwarded-For": client, "Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}
    fields = {"email": email, "password": password, "csrfmiddlewaretoken": token}
    try:
        connection.request("POST", "/login/", urlencode(fields), headers)
        return connection.getresponse().status
    finally:
        connection.close()


@contextmanager
def attack(work: Callable[..., None], *arguments: Any) -> Iterator[None]:
    """The attacker, running in a separate process."""
    ready, stop = multiprocessing.Event(), multiprocessing.Event()
    attacker = multiprocessing.Process(target=work, args=[*arguments, ready, stop])
    attacker.start()
    try:
        assert ready.wait(60)
        yield
    finally:
        stop.set()
        attacker.join(30)


def measure(gateway: Gateway, name: str, jobs: int) -> dict[str, Any]:
    """Submits over eight connections, and the longest response time of health meanwhile."""
    stop, slowest = threading.Event(), [0.0, 0]
    port = gateway.environment.get("SWITCHYARD_HEALTH_PORT") or urlsplit(gateway.url).port

    def ask() -> None:
        while not stop.wait(0.2):
            began = time.perf_counter()
            connection = http.client.HTTPConnection("127.0.0.1", int(port or 0), 10)
            try:
                connection.request("GET", "/healthz", headers={"Host": "localhost"})
                slowest[1] += connection.getresponse().status != http.client.OK
            except OSError:
                slowest[1] += 1
            finally:
                connection.close()
            slowest[0] = max(slowest[0], (time.perf_counter() - began) * 1000)

    asker = threading.Thread(target=ask)
    asker.start()
    before = gateway.cpu_seconds()["web"]
    rate, latencies = burst(gateway, jobs, CONNECTIONS)
    web = (gateway.cpu_seconds()["web"] - before) * 1000 / jobs
    stop.set()
    asker.join()
    row = {
        "what": name, "submits/s": rate, "p50 ms": report.percentile(latencies, 0.5), "p99 ms": report.percentile(latencies, 0.99),
        "web CPU ms": web, "health at most ms": slowest[0], "health failed": slowest[1],
    }  # fmt: skip
    print(json.dumps(row), flush=True)
    return row


def audit_rows(gateway: Gateway) -> int:
    """Refused entries in the trail."""
    with psycopg.connect(gateway.environment["DATABASE_URL"]) as connection:
        row = connection.execute("SELECT count(*) FROM tenancy_auditentry WHERE outcome = 'refused'").fetchone()
    return int(row[0]) if row else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=800)
    parser.add_argument("--peers", type=int, default=600)
    parser.add_argument("--flood-only", action="store_true", help="only refused sign-ins")
    options = parser.parse_args()
    report.conditions(jobs=options.jobs, connections=CONNECTIONS, peers=options.peers)
    settings = {"SWITCHYARD_SOURCE_CONNECTIONS": "2000", "SWITCHYARD_TRUSTED_PROXIES": f"{STRANGER}/32"}
    settings |= {"SWITCHYARD_HEAD_SECONDS": "10"}
    rows: list[dict[str, Any]] = []
    figures: dict[str, Any] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="switchyard-bench-", dir="/var/tmp")))
        folder.chmod(0o755)
        plain = start_gateway(folder / "plain", GUNICORN_CMD_ARGS="--worker-class gthread", **settings)
        stack.callback(plain.stop)
        edge = start_gateway(folder / "edge", **settings)
        stack.callback(edge.stop)
        port = urlsplit(edge.url).port
        for gateway in (plain, edge):
            burst(gateway, 200, CONNECTIONS)
        for _ in range(3):
            rows.append(measure(plain, "gunicorn's threads, no attack", options.jobs))
            rows.append(measure(edge, "edge, no attack", options.jobs))
        for kind in () if options.flood_only else FIRST_BYTES:
            for count in (60, options.peers) if kind == "silent" else (options.peers,):
                with attack(hold, port, kind, count):
                    rows.append(measure(edge, f"edge, {count} {kind}", options.jobs))
                rows.append(measure(edge, "edge, no attack", options.jobs))
        figures |= _flooded(edge, rows)
    report.table(rows)
    quiet = [row for row in rows if row["what"] == "edge, no attack"]
    old = [row for row in rows if row["what"].startswith("gunicorn")]
    figures["edge_to_threads_web_cpu"] = report.median(r["web CPU ms"] for r in quiet[:3]) / report.median(
        r["web CPU ms"] for r in old
    )
    figures["edge_to_threads_rate"] = report.median(r["submits/s"] for r in quiet[:3]) / report.median(
        r["submits/s"] for r in old
    )
    figures["health_failed"] = sum(row.get("health failed", 0) for row in rows)
    report.last_line(figures)


def _flooded(edge: Gateway, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Under refused sign-ins; a person behind the same proxy signs in meanwhile."""
    port = int(urlsplit(edge.url).port or 0)
    edge.manage(
        "shell",
        "-c",
        "from tenancy.models import User; User.objects.create_user('me@acme.example', 'a long enough one')",
    )
    before = audit_rows(edge)
    form = _form(port, "203.0.113.7")
    latencies: dict[str, dict[int, list[float]]] = {
        state: {pace: [] for pace in PACES} for state in (QUIET, ELSEWHERE, FLOODED)
    }
    rates, statuses, person = [], Counter[int](), 0

    def time_submits(state: str) -> None:
        for pace in PACES:
            latencies[state][pace] += paced(edge, pace, PACED_SECONDS)

    with bystander() as elsewhere:
        for _ in range(ROUNDS):
            time_submits(QUIET)
            with _guesser(elsewhere, form):
                time_submits(ELSEWHERE)
            with _guesser(port, form) as told:
                time.sleep(10)  # the guesser's saved attempts to sign in are used up
                time_submits(FLOODED)
                person = sign_in(port, "203.0.113.7", form, "me@acme.example", "a long enough one")
            rate, counts = told.get(timeout=60)
            rates.append(rate)
            statuses.update(counts)
    for state, by_pace in latencies.items():
        rows += [_paced_row(state, pace, timed) for pace, timed in by_pace.items()]
    print(
        f"refused sign-ins: {min(rates):.0f}/s, answers by status {dict(statuses)}; the person's last sign-in: {person}"
    )
    figures: dict[str, Any] = {}
    for percent in (50, 95, 99):
        for name, state in (("quiet", QUIET), ("elsewhere", ELSEWHERE)):
            figures[f"flooded_p{percent}_to_{name}"] = _ratios(latencies[FLOODED], latencies[state], percent / 100)
    return figures | {
        "refused_per_second": min(rates),
        "audit_rows_added": audit_rows(edge) - before,
        "person_signed_in": person == http.client.FOUND,
    }


@contextmanager
def _guesser(port: int, form: tuple[str, str]) -> Iterator[Any]:
    """Guesses passwords there; yields the queue that contains its rate and answers afterwards."""
    ready, stop = multiprocessing.Event(), multiprocessing.Event()
    answers: Any = multiprocessing.Queue()
    attacker = multiprocessing.Process(target=guess, args=[port, form, ready, stop, answers])
    attacker.start()
    assert ready.wait(30)
    try:
        yield answers
    finally:
        stop.set()
    attacker.join()


def _paced_row(name: str, pace: int, latencies: Sequence[float]) -> dict[str, Any]:
    row = {
        "what": name, "submits/s": pace, "submits": len(latencies), "p50 ms": report.percentile(latencies, 0.5),
        "p95 ms": report.percentile(latencies, 0.95), "p99 ms": report.percentile(latencies, 0.99),
    }  # fmt: skip
    print(json.dumps(row), flush=True)
    return row


def _ratios(flooded: dict[int, list[float]], other: dict[int, list[float]], part: float) -> dict[int | str, float]:
    """The ratio of this percentile under attack to that of the others, by pace and in total."""

    def ratio(one: Sequence[float], two: Sequence[float]) -> float:
        return report.percentile(one, part) / report.percentile(two, part)

    by_pace: dict[int | str, float] = {pace: ratio(flooded[pace], other[pace]) for pace in flooded}
    return by_pace | {"all": ratio([*chain(*flooded.values())], [*chain(*other.values())])}


if __name__ == "__main__":
    main()

"""Web processes are replaced one by one under load, behind something that follows readiness late: no request is lost."""

import signal
import socket
import threading
import time
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import count

import pytest
from gunicorn.config import Config

from foundation.edge.front import Front
from foundation.edge.worker import HEALTH_BOUNDS, Door, start_threads

from .conftest import read_answer, running

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
A_SECOND = 20
DRAIN_SECONDS = 5
LATE_SECONDS = 1.0
PROBE_SECONDS = 0.1


class Balancer:
    """Sends to each process in turn that was ready a second ago: kube-proxy and load balancers learn of it no sooner."""

    def __init__(self):
        self.edges, self.said, self.outcomes = [], {}, Counter()
        self._stopping = threading.Event()
        self._turns = count()

    def ready(self, edge, late=LATE_SECONDS):
        """What the process's probe said so long ago."""
        at = time.monotonic() - late
        said = [is_ready for asked_at, is_ready in list(self.said.get(edge.port, ())) if asked_at <= at]
        return bool(said) and said[-1]

    @contextmanager
    def running(self):
        with ThreadPoolExecutor(A_SECOND * 2) as senders:
            workers = [senders.submit(self._probe), senders.submit(self._send, senders)]
            try:
                yield
            finally:
                self._stopping.set()
                for worker in workers:
                    worker.result()

    def _probe(self):
        while not self._stopping.wait(PROBE_SECONDS):
            for edge in list(self.edges):
                is_ready = False
                with suppress(OSError, AssertionError):
                    is_ready = edge.ask("/readyz", port=edge.health_port, seconds=2).status == 200
                self.said.setdefault(edge.port, deque()).append((time.monotonic(), is_ready))

    def _send(self, senders):
        while not self._stopping.wait(1 / A_SECOND):
            targets = [edge for edge in list(self.edges) if self.ready(edge)]
            if targets:
                turn = next(self._turns)
                # A few are under way for a second, so that some always are when a process is told to end.
                senders.submit(self._ask, targets[turn % len(targets)], "/test/slow" if turn % 7 == 0 else "/test/echo")

    def _ask(self, edge, path):
        try:
            self.outcomes[edge.ask(path, seconds=10).status] += 1
        except (OSError, AssertionError) as failure:
            self.outcomes[repr(failure)] += 1


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_roll_at_20_requests_a_second_loses_none(tmp_path):
    settings = {
        "SWITCHYARD_DRAIN_SECONDS": str(DRAIN_SECONDS),
        "SWITCHYARD_STRANGER_REQUESTS": "0",
        "SWITCHYARD_WEB_WORKERS": "2",
    }
    balancer = Balancer()
    # The stack ends last: the balancer sends to none of those that it ends.
    with ExitStack() as stack, balancer.running():
        for number in range(3):
            folder = tmp_path / str(number)
            folder.mkdir()
            edge = stack.enter_context(running(folder, **settings))
            balancer.edges.append(edge)
            wait_for(lambda edge=edge: balancer.ready(edge))
            if number:
                end(balancer, balancer.edges[number - 1])
        stack.callback(edge.process.send_signal, signal.SIGINT)
    assert set(balancer.outcomes) == {200}, balancer.outcomes
    assert balancer.outcomes[200] > A_SECOND * DRAIN_SECONDS


def end(balancer, edge):
    """Has the process end as a supervisor does, and waits until it has."""
    told_at = time.monotonic()
    edge.process.send_signal(signal.SIGTERM)
    wait_for(lambda: not balancer.ready(edge, late=0))
    assert edge.process.poll() is None, "it says no while it still serves"
    assert edge.ask("/test/echo").headers["connection"] == "close"
    assert edge.process.wait(30) == 0
    assert time.monotonic() - told_at >= DRAIN_SECONDS


def test_connections_that_wait_when_the_port_is_closed_are_served():
    def application(environ, start_response):
        start_response("200 OK", [("Content-Length", "2")])
        return [b"ok"]

    listener = socket.create_server(("127.0.0.1", 0))
    clients = [socket.create_connection(listener.getsockname()) for _ in range(5)]
    for client in clients:
        client.settimeout(10)
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    front = Front([listener], HEALTH_BOUNDS, cfg=Config())
    start_threads(1, front, Door(application, Config()).serve)
    runs = threading.Thread(target=front.run, args=[lambda: False])
    runs.start()
    try:
        assert [read_answer(client).status for client in clients] == [200] * 5
    finally:
        for client in clients:
            client.close()
        front.requests.put(None)
        runs.join(10)

"""Figures of real processes, scraped from each one's own port: what children count counts too."""

import signal
from contextlib import ExitStack

import httpx
import psutil
import pytest

from devtools.embedded import free_port
from tests.builders import bind, make_tenant, make_token, make_user

from .conftest import wait_for
from .test_observers import OBSERVER
from .test_turns import BEAT, WORKER, family, fleet, messages_of_others_are_gone, running

__all__ = ["fleet", "messages_of_others_are_gone"]
pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]
WEB = ("-m", "gunicorn", "--config", "python:config.gunicorn")


def total(port, metric, **headers):
    """The sum of the metric's samples, over all labels; 0 while nothing answers."""
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/metrics", headers={"Host": "10.9.8.7", **headers}, timeout=20)
    except httpx.TransportError:
        return 0
    assert answer.status_code == 200, answer.text
    samples = [line.rpartition(" ") for line in answer.text.splitlines() if not line.startswith("#")]
    return sum(float(value) for name, _, value in samples if name.partition("{")[0] == metric)


def is_ready(health_port):
    try:
        return httpx.get(f"http://127.0.0.1:{health_port}/readyz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def test_worker_bell_and_observer_serve_what_they_and_their_children_count(home, fleet):
    fleet(3, 10)
    commands = {"worker": WORKER, "beat": BEAT, "observer": OBSERVER}
    ports = {role: free_port() for role in commands}
    with ExitStack() as stack:
        processes = {
            role: stack.enter_context(running(home, *command, SWITCHYARD_METRICS_BIND=f"127.0.0.1:{ports[role]}"))
            for role, command in commands.items()
        }
        wait_for(lambda: total(ports["worker"], "switchyard_cycle_seconds_count"), "a cycle in a child")
        wait_for(lambda: total(ports["observer"], "switchyard_observations_total"), "the observer has seen pods")
        assert total(ports["beat"], "switchyard_rings_total")
        # A child that dies takes none of its figures with it.
        before = total(ports["worker"], "switchyard_cycle_seconds_count")
        for child in psutil.Process(processes["worker"].pid).children():
            child.send_signal(signal.SIGKILL)
        wait_for(lambda: len(family(processes["worker"])) >= 4, "children took their places")
        wait_for(lambda: total(ports["worker"], "switchyard_cycle_seconds_count") > before, "they count on")


def test_every_web_worker_tells_what_all_of_them_counted_and_the_state_of_the_database(home):
    user = make_user("ada@acme.example")
    bind(user, "acme", "admin")
    make_tenant("acme/research")
    token, ports = make_token(user), [free_port() for _ in range(3)]
    settings = {
        "SWITCHYARD_PORT": str(ports[0]),
        "SWITCHYARD_HEALTH_PORT": str(ports[1]),
        "SWITCHYARD_METRICS_BIND": f"127.0.0.1:{ports[2]}",
        "SWITCHYARD_METRICS_TOKEN": "scrape-me",
        "SWITCHYARD_WEB_WORKERS": "2",
    }
    job = {
        "tenant": "acme/research",
        "name": "train",
        "pod_sets": [{"name": "w", "image": "e.com/i:1", "cpu": "1", "memory": "1Gi"}],
    }
    scrape = {"Authorization": "Bearer scrape-me"}
    with running(home, *WEB, **settings):
        wait_for(lambda: is_ready(ports[1]), "it is ready")
        for number in range(12):
            # A connection each: the kernel spreads them over the workers.
            answer = httpx.post(
                f"http://127.0.0.1:{ports[0]}/api/v1/jobs", json=job | {"name": f"train-{number}"}, timeout=20,
                headers={"Authorization": f"Bearer {token}", "Host": "localhost", "Idempotency-Key": f"k-{number}"},
            )  # fmt: skip
            assert answer.status_code == 201, answer.text
        assert {total(ports[2], "switchyard_jobs_submitted_total", **scrape) for _ in range(12)} == {12}
        assert total(ports[2], "switchyard_jobs_queued", **scrape) == 12
        url = f"http://127.0.0.1:{ports[2]}"
        assert httpx.get(f"{url}/metrics").status_code == 404
        assert httpx.get(f"{url}/healthz", headers=scrape).status_code == 404

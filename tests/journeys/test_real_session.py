"""A session through a whole gateway: from its ticket over a real API server and kubelet to a program in a pod, and to its end."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from devtools.embedded import free_port
from devtools.localfleet import start_fleet, stop_fleet
from devtools.trial import Gateway, start_gateway
from tests.journeys.workload import Run, job, prepare, wait_for

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.long, pytest.mark.timeout(600)]
FLEET = """
clusters:
  - name: lab
    region: local
    nodes:
      - {name: cpu, count: 1, runs: true, cpu: 8, memory_gib: 16}
"""
PROGRAM = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Lab(BaseHTTPRequestHandler):
    def do_POST(self):
        said = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = f"{self.command} {self.path}\\n{self.headers}\\n".encode() + said
        self.send_response(200)
        self.send_header("Set-Cookie", "planted=1")
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_POST

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Lab).serve_forever()
"""


@pytest.fixture(scope="module")
def gateway(root: Path) -> Iterator[Gateway]:
    folder = root / "session"
    folder.mkdir(mode=0o755)
    fleet = folder / "fleet.yaml"
    fleet.write_text(FLEET)
    planes = start_fleet(["lab"], folder / "fleet", fleet_file=fleet)
    port = free_port()
    try:
        running = start_gateway(
            folder / "home", SWITCHYARD_PORT=str(port), SWITCHYARD_SESSION_ORIGIN=f"http://*.sessions.localhost:{port}"
        )
        try:
            running.register(planes[0])
            prepare(running)
            yield running
        finally:
            running.stop(quickly=True)
    finally:
        stop_fleet(planes)


def test_a_session_is_opened_through_everything_that_is_real(gateway: Gateway):
    port = free_port()
    spec = job("lab", gpu=None, labels={}, session={"port": port, "idle_seconds": 300}, deadline_seconds=3600)
    spec["pod_sets"][0] |= {"command": ["python", "-c", PROGRAM, str(port)], "cpu": "1", "memory": "256Mi"}
    id_ = Run(gateway).submit(spec)
    wait_for(lambda: gateway.get(f"/jobs/{id_}")["state"] == "running", "it runs")
    url = urlsplit(gateway.create(f"/jobs/{id_}/tickets", {})["url"])
    own = f"http://{url.netloc}"
    at = gateway.url.rstrip("/")
    with httpx.Client(base_url=at, headers={"Host": url.netloc}, timeout=60) as browser:
        assert browser.get("/api/v1/jobs", headers={"Authorization": f"Bearer {gateway.token}"}).status_code == 401
        opened = browser.post(url.path, data={"ticket": url.fragment}, headers={"Origin": own})
        assert opened.status_code == 303
        cookie = opened.cookies["switchyard-session"]
        sent = {"Cookie": f"switchyard-session={cookie}; sessionid=x", "Authorization": "Bearer swy_x"}
        wait_for(lambda: browser.get("/", headers=sent).status_code == 200, "its program listens")
        answer = browser.post("/a%2Fb//c?d=%00&e", content=b"\x00\xff" * 500_000, headers={**sent, "Origin": own})
        assert answer.status_code == 200
        assert answer.content.startswith(b"POST /a%2Fb//c?d=%00&e\nhost: " + url.netloc.encode())
        assert answer.content.endswith(b"\x00\xff" * 500_000)
        assert b"swy_x" not in answer.content
        assert b"cookie" not in answer.content.lower()
        assert "set-cookie" not in answer.headers
        assert browser.post("/", content=b"x" * 3_000_000, headers={**sent, "Origin": own}).status_code == 413
        assert browser.get("/", headers={"Cookie": "switchyard-session=x"}).status_code == 401
        gateway.create(f"/jobs/{id_}/cancel", {})
        wait_for(lambda: browser.get("/", headers=sent).status_code == 401, "it is closed")
    wait_for(lambda: gateway.get(f"/jobs/{id_}")["state"] == "cancelled", "it is cancelled")

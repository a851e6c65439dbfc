"""Sessions through a whole gateway: from the ticket over a real API server and kubelet to a program in a pod, and to their end."""

import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import sync_playwright

from devtools.browser import locate
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
        assert browser.post("/", content=b"x" * 2_000_000, headers={**sent, "Origin": own}).status_code == 413
        assert browser.get("/", headers={"Cookie": "switchyard-session=x"}).status_code == 401
        gateway.create(f"/jobs/{id_}/cancel", {})
        wait_for(lambda: browser.get("/", headers=sent).status_code == 401, "it is closed")
    wait_for(lambda: gateway.get(f"/jobs/{id_}")["state"] == "cancelled", "it is cancelled")


JUPYTER = [
    "python", "-m", "jupyter_server", "--no-browser", "--ServerApp.ip=127.0.0.1", "--ServerApp.allow_remote_access=True",
    "--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True", "--ServerApp.root_dir=/tmp",
]  # fmt: skip
CELL = """async ([id, protocols, code]) => {
  const socket = new WebSocket(`ws://${location.host}/api/kernels/${id}/channels?session_id=s`, protocols);
  const header = {msg_id: "m1", msg_type: "execute_request", username: "", session: "s", version: "5.3", date: ""};
  const content = {code, silent: false, store_history: true, user_expressions: {}, allow_stdin: false, stop_on_error: true};
  let said = "";
  window.whenClosed = new Promise((done) => { socket.onclose = (event) => done(event.code); });
  window.socket = socket;
  await new Promise((done, fail) => { socket.onopen = done; socket.onerror = () => fail(new Error("no WebSocket")); });
  const message = {header, parent_header: {}, metadata: {}, content, buffers: [], channel: "shell"};
  socket.send(JSON.stringify(message));
  await new Promise((done) => {
    socket.onmessage = (event) => {
      const told = JSON.parse(event.data);
      if (told.msg_type === "stream") said += told.content.text;
      if (told.content.execution_state === "idle" && told.parent_header.msg_id === "m1") done();
    };
  });
  return said;
}"""


@pytest.fixture(scope="module")
def notebook() -> None:
    """What the session's program is."""
    if find_spec("jupyter_server") is None or find_spec("ipykernel") is None:
        pytest.fail("Jupyter is missing: `make test-long` brings it, and so does `uv sync --group notebooks`")


def test_a_cell_runs_in_a_notebook_and_its_websocket_ends_with_the_right(notebook: None, gateway: Gateway):
    port = free_port()
    spec = job("notebook", gpu=None, labels={}, session={"port": port, "idle_seconds": 300}, deadline_seconds=3600)
    home = dict.fromkeys(("HOME", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR"), "/tmp")
    command = [*JUPYTER, f"--ServerApp.port={port}"]
    spec["pod_sets"][0] |= {"command": command, "cpu": "2", "memory": "1Gi", "env": home}
    id_ = Run(gateway).submit(spec)
    wait_for(lambda: gateway.get(f"/jobs/{id_}")["state"] == "running", "it runs")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=locate(), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        url = gateway.create(f"/jobs/{id_}/tickets", {})["url"]
        status = f"http://{urlsplit(url).netloc}/api/status"
        page.goto(url)
        page.wait_for_url("**/")
        wait_for(lambda: page.goto(status).status == 200, "its program listens")
        kernel = page.evaluate(
            "async () => (await (await fetch('/api/kernels', {method: 'POST', body: '{}'})).json()).id"
        )
        assert page.evaluate(CELL, [kernel, [], "print(6 * 7)"]) == "42\n"
        large = page.evaluate(CELL, [kernel, [], "print('x' * 2_000_000)"])
        assert len(large) == 2_000_001
        page.evaluate("window.socket.close(4000, 'enough')")
        assert page.evaluate("window.whenClosed") == 4000
        protocol = "v1.kernel.websocket.jupyter.org"
        page.evaluate(
            "([id, one]) => new Promise((done) => { const socket = new WebSocket(`ws://${location.host}/api/kernels/${id}/channels`, [one]);"
            " window.whenClosed = new Promise((ended) => { socket.onclose = (event) => ended(event.code); });"
            " window.socket = socket; socket.onopen = done; })",
            [kernel, protocol],
        )
        assert page.evaluate("window.socket.protocol") == protocol
        [me] = gateway.items("/people")
        began = time.monotonic()
        gateway.create(f"/people/{me['id']}/end-sessions", {})
        assert page.evaluate("window.whenClosed") == 1008
        assert time.monotonic() - began < 10
        assert page.goto(status).status == 401
        browser.close()
    gateway.create(f"/jobs/{id_}/cancel", {})
    wait_for(lambda: gateway.get(f"/jobs/{id_}")["state"] == "cancelled", "it is cancelled")

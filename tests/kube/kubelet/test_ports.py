"""HTTP with a program in a pod: from the gateway's driver through a real API server to a kubelet, with the published role."""

import asyncio
import socket
from uuid import uuid4

import pytest

from clusters.drivers import NotAnswered, PortRequest, port_http
from clusters.drivers.kubernetes import forwarding
from clusters.drivers.kubernetes.driver import KubernetesDriver
from devtools.localfleet.admin import client
from federation.engine.objects.rendering import Devices, Identity, namespace_labels, render_job
from foundation.ids import new_id
from tests.builders import stored_spec
from tests.contract.worlds import INSTALL, address_of, until
from tests.kube.conftest import gateway_token

pytestmark = pytest.mark.kube
PROGRAM = """
import socket, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/slow": time.sleep(60)
        if self.path == "/raw": return self.wfile.write(b"hello, I am no HTTP" + bytes([13, 10]) * 2)
        if self.path == "/cut":
            self.send_response(200); self.send_header("Content-Length", "100"); self.end_headers()
            self.wfile.write(b"short"); self.close_connection = True; return
        if self.path == "/away":
            self.send_response(302); self.send_header("Location", "http://127.0.0.1:1/"); self.send_header("Content-Length", "0")
            return self.end_headers()
        if self.path == "/switch":
            self.send_response(101); self.send_header("Upgrade", "websocket"); return self.end_headers()
        size = int(self.headers.get("Content-Length", 0))
        told = "|".join([self.command, self.path, self.headers.get("X-Mine", "")]).encode() + b"|" + self.rfile.read(size)
        body = b"x" * int(self.path[5:]) if self.path.startswith("/big/") else told
        self.send_response(201); self.send_header("Set-Cookie", "a=b"); self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD": self.wfile.write(body)
    do_POST = do_PUT = do_HEAD = do_GET
    def log_message(self, *_): pass

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Door).serve_forever()
"""


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture(scope="module")
def program(plane):
    """A driver's questions to one running pod: `ask(method, target, …)`."""
    with client(plane) as http:
        merge = {"Content-Type": "application/merge-patch+json"}
        http.patch("/api/v1/nodes/pretend", json={"spec": {"unschedulable": True}}, headers=merge).raise_for_status()
    port, loop = free_port(), asyncio.new_event_loop()
    driver = KubernetesDriver(address_of(plane, gateway_token(plane)), INSTALL)
    whose = Identity(INSTALL, uuid4(), "acme", new_id(), new_id(), 1, "0" * 32)
    command = {"image": "python", "command": ["python", "-c", PROGRAM, str(port)]}
    made = render_job(stored_spec(pod={"cpu": "100m", "memory": "64Mi", **command}), 0, whose, Devices())
    space, name = made["metadata"]["namespace"], made["metadata"]["name"]

    async def begin():
        await driver.ensure_namespace(space, namespace_labels(INSTALL, "t"))
        uid = await driver.create_job(made)
        await driver.release_job(space, name, uid, {"spec": {"nodeSelector": None}})

        async def running():
            pods = await driver.list_pods(space, name)
            return pods and pods[0].phase == "Running"

        await until(running)
        [pod] = await driver.list_pods(space, name)
        return uid, pod.name

    uid, pod = loop.run_until_complete(begin())

    def ask(method, target, headers=(), body=b"", at=port):
        return loop.run_until_complete(driver.ask_pod(space, pod, at, PortRequest(method, target, headers, body)))

    async def answers():
        try:
            return await driver.ask_pod(space, pod, port, PortRequest("GET", "/", [("Host", "x")]))
        except NotAnswered:
            return None

    loop.run_until_complete(until(answers))
    yield ask
    loop.run_until_complete(driver.delete_job(space, name, uid))
    loop.run_until_complete(driver.close())
    loop.close()
    with client(plane) as http:
        http.patch("/api/v1/nodes/pretend", json={"spec": {"unschedulable": False}}, headers=merge).raise_for_status()


def test_a_program_in_a_pod_is_asked_and_answers(program):
    host = ("Host", "here.example")
    answer = program("POST", "/a%20b?c=d&e=%00", [host, ("X-Mine", "1")], b"\x00\xffbody")
    assert (answer.status, answer.body) == (201, b"POST|/a%20b?c=d&e=%00|1|\x00\xffbody")
    assert ("set-cookie", "a=b") in answer.headers
    large = b"z" * 300_000
    assert program("PUT", "/x", [host], large).body.endswith(large)
    assert len(program("GET", "/big/5000000", [host]).body) == 5_000_000
    assert program("HEAD", "/", [host]).body == b""
    moved = program("GET", "/away", [host])
    assert (moved.status, moved.body) == (302, b"")  # not followed


def test_a_program_that_answers_wrongly_is_no_fault_of_its_cluster(program, monkeypatch):
    monkeypatch.setattr(forwarding, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(port_http, "MOST_ANSWER_BYTES", 1000)
    host = ("Host", "here.example")
    for target, reason in (
        ("/raw", "not HTTP"), ("/cut", "not complete"), ("/switch", "not HTTP"),
        ("/slow", "no answer within 1 s"), ("/big/2000", "larger than 1000 bytes"),
    ):  # fmt: skip
        with pytest.raises(NotAnswered, match=reason):
            program("GET", target, [host])
    with pytest.raises(NotAnswered, match="nothing answers on this port"):
        program("GET", "/", [host], at=free_port())


@pytest.mark.parametrize(
    ("target", "header"),
    [("/ HTTP/1.1\r\nX: y", ("A", "b")), ("/", ("A\r\nB", "c")), ("/", ("A", "b\r\nC: d")), ("/", ("A", "\x00"))],
)
def test_nothing_is_smuggled_into_a_request(program, target, header):
    with pytest.raises(NotAnswered, match="cannot be passed on"):
        program("GET", target, [("Host", "here.example"), header])

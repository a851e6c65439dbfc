"""A small API server over TLS on loopback: answers what a probe asks, and can be told to misbehave in every way."""

import contextlib
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from clusters.engine.permissions import ROLE
from foundation import clock

TOKEN = "canary-token-9f4c1b7e"
Answer = Callable[["Handler"], object]


def published_rules() -> list[dict[str, Any]]:
    """Resource rules as the published role gives them, with those that every account has."""
    return [
        {"apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]} for right in sorted(ROLE)
    ] + [
        {
            "apiGroups": ["authorization.k8s.io"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
            "verbs": ["create"],
        },
        {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
        {
            "apiGroups": ["certificates.k8s.io"],
            "resources": ["clustertrustbundles"],
            "verbs": ["get", "list", "watch"],
        },
    ]


def make_certificate(*names: str, days: int = 1) -> tuple[str, str]:
    """A self-signed certificate and its key in PEM, valid for these names and addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    start = clock.now() - timedelta(hours=1)
    alternatives: list[x509.GeneralName] = []
    for name in names:
        try:
            alternatives.append(x509.IPAddress(ip_address(name)))
        except ValueError:
            alternatives.append(x509.DNSName(name))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(serialization.Encoding.PEM).decode(),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
    )


def confined(path: str, body: dict[str, Any]) -> tuple[int, str]:
    """How the published admission policies answer a dry run, told by what the rehearsals turn."""
    metadata, text = body["metadata"], msgspec.json.encode(body).decode()
    where = metadata.get("namespace", metadata["name"])
    opens = (
        '"hostPID"', '"serviceAccountName"', '"tolerations"', '"ingress"', '"All"', '"privileged":true', '"LoadBalancer"', '"app"',
        "account-token",
    )  # fmt: skip
    is_labelled = path != "/api/v1/namespaces" or '"pod-security.kubernetes.io/enforce":"restricted"' in text
    if where.startswith("swy-") and is_labelled and not any(word in text for word in opens):
        return 201, ""
    return 403, "ValidatingAdmissionPolicy denied request"


def before_the_policies(path: str, body: dict[str, Any]) -> tuple[int, str]:
    """How a cluster with the first manifest answers: it looks at names alone, and has no namespace for the probe."""
    where = body["metadata"].get("namespace", body["metadata"]["name"])
    if not where.startswith("swy-"):
        return 403, "ValidatingAdmissionPolicy denied request"
    return (404, 'namespaces "swy-probe" not found') if where == "swy-probe" else (201, "")


class ApiServer:
    """What the server says. Change the attributes, or put a function into `answers` by path (without its query)."""

    def __init__(self, port: int, ca_pem: str) -> None:
        self.port = port
        self.ca_pem = ca_pem
        self.identity = f"uid-{port}"
        self.token = TOKEN
        self.groups = ["apps", "batch"]
        self.rules: list[dict[str, Any]] = published_rules()
        self.is_incomplete = False
        self.allowed: Callable[[dict[str, str]], bool] = lambda _: False
        """Decides each SelfSubjectAccessReview by its resource attributes."""
        self.dry_run: Callable[[str, dict[str, Any]], tuple[int, str]] = confined
        """Answers each dry run, by its path and body: a status, and what is said with it."""
        self.clock_offset = timedelta()
        self.answers: dict[str, Answer] = {}
        self.seen: list[tuple[str, str, dict[str, str]]] = []

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def paths(self) -> list[str]:
        return [path for _, path, _ in self.seen]

    def body(self, **changes: Any) -> dict[str, Any]:
        """A registration of this server, as it would be sent."""
        wanted = {"name": "east", "server": self.server, "ca_pem": self.ca_pem, "token": self.token}
        return {name: value for name, value in {**wanted, **changes}.items() if value is not None}


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    api: ApiServer

    def do_GET(self) -> None:
        self.take()

    def do_POST(self) -> None:
        self.take()

    def do_PATCH(self) -> None:
        self.take()

    def take(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.sent = self.rfile.read(length)
        path = self.path.partition("?")[0]
        self.api.seen.append((self.command, self.path, dict(self.headers)))
        own = self.api.answers.get(path)
        if own is not None:
            own(self)
        elif self.headers.get("Authorization") != f"Bearer {self.api.token}":
            self.say(401, {"kind": "Status", "message": "Unauthorized", "reason": "Unauthorized", "code": 401})
        else:
            self.usual(path)

    def usual(self, path: str) -> None:
        if "dryRun=All" in self.path:
            status, told = self.api.dry_run(path, msgspec.json.decode(self.sent))
            reason = "Forbidden" if status == 403 else ""
            self.say(status, {"kind": "Status", "message": told, "reason": reason, "code": status})
        elif path.endswith("/portforward"):
            # to a pod that is not there: what admission allows ends with 404
            *_, where, _, name, _ = path.split("/")
            status, told = self.api.dry_run(path, {"metadata": {"name": name, "namespace": where}})
            status, reason = (status, "Forbidden") if status == 403 else (404, "NotFound")
            self.say(status, {"kind": "Status", "message": told, "reason": reason, "code": status})
        elif path.endswith("/pods"):
            self.say(200, {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "strange"}}]})
        elif path == "/apis/resource.k8s.io":
            self.say(200, {"versions": [{"version": "v1"}]})
        elif path == "/version":
            self.say(200, {"gitVersion": "v1.36.2"})
        elif path == "/apis":
            self.say(200, {"kind": "APIGroupList", "groups": [{"name": name} for name in self.api.groups]})
        elif path == "/api/v1/namespaces/kube-system":
            self.say(200, {"metadata": {"name": "kube-system", "uid": self.api.identity}})
        elif path.endswith("/selfsubjectrulesreviews"):
            self.say(
                201,
                {
                    "status": {
                        "resourceRules": self.api.rules,
                        "nonResourceRules": [],
                        "incomplete": self.api.is_incomplete,
                    }
                },
            )
        elif path.endswith("/selfsubjectaccessreviews"):
            asked = msgspec.json.decode(self.sent)["spec"]["resourceAttributes"]
            self.say(201, {"status": {"allowed": self.api.allowed(asked)}})
        else:
            self.say(404, {"kind": "Status", "message": "not found", "reason": "NotFound", "code": 404})

    def say(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self.send_response_only(status)
        self.send_header("Date", format_datetime(clock.now() + self.api.clock_offset, usegmt=True))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Tests look at `seen`."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: object) -> None:
        """Clients that hang up are the point of some tests."""


@contextlib.contextmanager
def api_server(*names: str, tls: bool = True) -> Iterator[ApiServer]:
    """A running server whose certificate is for 127.0.0.1, or for `names`."""
    ca_pem, key_pem = make_certificate(*(names or ("127.0.0.1",)))
    server = _Server(("127.0.0.1", 0), type("BoundHandler", (Handler,), {}))
    api = ApiServer(server.server_address[1], ca_pem)
    server.RequestHandlerClass.api = api  # type: ignore[attr-defined]  # of the class made above
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile("w") as chain:
            Path(chain.name).write_text(ca_pem + key_pem)
            context.load_cert_chain(chain.name)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)

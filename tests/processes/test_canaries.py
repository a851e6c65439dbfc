"""Every secret of a real gateway is looked for everywhere after requests, refusals, failures and crashes."""

import base64
import json
import re
import shutil
import subprocess
import sys
import time
from contextlib import closing

import httpx
import psutil
import psycopg
import pytest
import redis

from devtools.embedded import free_port, owner_url
from devtools.scratch import scratch_folder
from devtools.serve import PROJECT
from devtools.trial import ADMIN, ORGANISATION, start_gateway
from tests.apiserver import TOKEN as CLUSTER_TOKEN
from tests.apiserver import api_server
from tests.processes.conftest import wait_for

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]
PASSWORD = "canary-password-7d2e correct horse"
RING_KEY = base64.b64encode(b"canary-key-ring-0123456789abcdef").decode()
GIVEN = {
    "SWITCHYARD_SECRET_KEY": "canary-secret-key-" + "s" * 50,
    "SWITCHYARD_KEY_RING": f"k1:{RING_KEY}",
    "SWITCHYARD_METRICS_TOKEN": "canary-metrics-token-88c1",
    "SWITCHYARD_POLICY_TOKEN": "canary-policy-token-51f0",
    "SWITCHYARD_POLICY_FAILS": "open",
    "SWITCHYARD_MAIL_URL": "smtps://gateway:canary-mail-password-9a37@127.0.0.1:9",
    "SWITCHYARD_MAIL_FROM": "switchyard@example.com",
    "SWITCHYARD_LOG_LEVEL": "DEBUG",
}
# Where secrets are kept, by design, for their owner alone.
KEPT = re.compile(r"environment\.json|secrets/.*|[^/]*\.password")
JOB = {
    "tenant": "acme",
    "name": "train",
    "pod_sets": [{"name": "worker", "count": 1, "image": "registry.example/train:1", "cpu": "8", "memory": "32Gi"}],
}


@pytest.fixture(scope="module")
def gateway():
    home = scratch_folder("canaries")
    running = start_gateway(home, SWITCHYARD_POLICY_URL=f"http://127.0.0.1:{free_port()}/review", **GIVEN)
    yield running
    running.stop(quickly=True)
    shutil.rmtree(home, ignore_errors=True)


def secrets_of(gateway):
    found = {
        name: GIVEN[name]
        for name in (
            "SWITCHYARD_SECRET_KEY", "SWITCHYARD_METRICS_TOKEN", "SWITCHYARD_POLICY_TOKEN",
        )
    }  # fmt: skip
    found |= {file.name: file.read_text().strip() for file in gateway.home.glob("*.password")}
    return {
        **found,
        "password of the mail server": "canary-mail-password-9a37",
        "key ring": RING_KEY,
        "key of the ring": "canary-key-ring-0123456789abcdef",
        "cluster token": CLUSTER_TOKEN,
        "API token": gateway.token,
        "password": PASSWORD,
        "password in a form": PASSWORD.replace(" ", "+"),
    }


class Walk:
    """Requests of a day, with what was answered."""

    def __init__(self, gateway):
        self.gateway, self.answers = gateway, []
        self.client = httpx.Client(base_url=gateway.url, timeout=30, follow_redirects=True)

    def close(self):
        self.client.close()

    def ask(self, method, path, **arguments):
        answer = self.client.request(method, path, **arguments)
        self.answers.append(f"{method} {path} {answer.status_code} {dict(answer.headers)} {answer.text}")
        return answer

    def api(self, method, path, body=None, token=None):
        return self.ask(
            method, f"/api/v1{path}", json=body, headers={"Authorization": f"Bearer {token or self.gateway.token}"}
        )

    def sign_in(self, email, password):
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', self.ask("GET", "/login/").text)
        form = {"email": email, "password": password, "csrfmiddlewaretoken": token[1] if token else ""}
        return self.ask("POST", "/login/", data=form, headers={"Referer": self.gateway.url})

    def requests_and_refusals(self, cluster):
        assert self.api("POST", "/clusters", cluster.body()).status_code == 201
        assert self.api("POST", "/jobs", JOB).status_code == 201
        for method, path, body in (
            ("GET", "/jobs", None), ("GET", "/clusters", None), ("GET", "/tokens", None), ("GET", "/audit", None),
            ("POST", "/jobs", {**JOB, "labels": 5}), ("POST", "/jobs", {"token": CLUSTER_TOKEN}),
            ("POST", "/clusters", cluster.body(name="west", token=CLUSTER_TOKEN + "\n")),
            ("POST", "/clusters", cluster.body(name="north", server="https://127.0.0.1:1")),
            ("POST", "/clusters", {"name": "south", "kubeconfig": f"users: [{{token: {CLUSTER_TOKEN}}}]"}),
            ("GET", f"/jobs?{CLUSTER_TOKEN}=1", None), ("GET", "/nowhere", None),
        ):  # fmt: skip
            answer = self.api(method, path, body)
            assert answer.status_code < 500
            if path.startswith("/jobs?"):
                self.answers.pop()  # it names the parameter that was sent
        self.api("GET", "/jobs", token=self.gateway.token[:-1] + "x")
        self.ask("GET", "/metrics", headers={"Authorization": "Bearer wrong"})
        self.ask("GET", "/metrics", headers={"Authorization": f"Bearer {GIVEN['SWITCHYARD_METRICS_TOKEN']}"})
        self.sign_in(ADMIN, f"{PASSWORD} not")
        self.sign_in(PASSWORD, PASSWORD)
        self.answers.pop()  # the form says again what was typed as the address
        assert self.sign_in(ADMIN, PASSWORD).status_code == 200
        for page in ("/", "/jobs", "/clusters", "/tokens", "/audit", "/admin/", "/admin/tenancy/user/"):
            self.ask("GET", page)


def break_things(gateway, walk, cluster):
    """A table that is gone, a member that repeats what it was sent, servers and processes that are killed."""
    with psycopg.connect(owner_url(gateway.home, gateway.environment["DATABASE_URL"]), autocommit=True) as owner:
        owner.execute("ALTER TABLE federation_job RENAME TO mislaid")
        assert walk.api("GET", "/jobs").status_code >= 500
        assert walk.api("POST", "/jobs", JOB).status_code >= 500
        time.sleep(3)  # routines fail meanwhile
        owner.execute("ALTER TABLE mislaid RENAME TO federation_job")
    for path in ("/version", "/api/v1/namespaces/kube-system", "/api/v1/nodes", "/apis"):
        cluster.answers[path] = lambda handler: handler.say(
            500, {"kind": "Status", "message": f"not you: {handler.headers.get('Authorization')}", "code": 500}
        )
    (east,) = gateway.items("/clusters")
    walk.api("POST", f"/clusters/{east['id']}/probe")
    gateway.kill("worker")
    gateway.kill("observer")
    next(p for p in psutil.Process(gateway.process.pid).children() if p.name() == "valkey-server").kill()
    walk.sign_in(ADMIN, f"{PASSWORD} not")
    wait_for(lambda: len(gateway.processes("worker")) > 1, "the worker comes back")
    for role in ("web", "beat"):
        gateway.kill(role)
    wait_for(lambda: is_answering(gateway), "the web process comes back")
    walk.api("GET", f"/clusters/{east['id']}")
    walk.api("GET", "/jobs")


def is_answering(gateway):
    try:
        return httpx.get(f"{gateway.url}/readyz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def test_no_secret_is_found_anywhere_but_where_it_is_kept(gateway):
    set_password(gateway)
    with closing(Walk(gateway)) as walk, api_server() as cluster:
        walk.requests_and_refusals(cluster)
        planted = look_at_redis(gateway)
        break_things(gateway, walk, cluster)
    words = [" ".join(process.cmdline()) for process in psutil.Process(gateway.process.pid).children(recursive=True)]
    places = {
        "answers": "\n".join(walk.answers),
        "command lines": "\n".join(words),
        "Redis": planted + look_at_redis(gateway),
        "rows": rows(gateway),
    }
    secrets = secrets_of(gateway)
    found = [(place, name) for place, text in places.items() for name, secret in secrets.items() if secret in text]
    for file in gateway.home.rglob("*"):
        if file.is_file() and not KEPT.fullmatch(str(file.relative_to(gateway.home))):
            content = file.read_bytes()
            found += [(str(file), name) for name, secret in secrets.items() if secret.encode() in content]
    assert not found
    assert len(walk.answers) > 30
    assert "Traceback" in "".join(file.read_text(errors="replace") for file in gateway.home.glob("*.log"))


def set_password(gateway):
    done = subprocess.run(
        [sys.executable, "manage.py", "add_user", ADMIN, "--password-stdin"],
        cwd=PROJECT, env=dict(gateway.environment), input=f"{PASSWORD}\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # A new password ends the tokens from before.
    made = gateway.manage("bootstrap", "--organisation", ORGANISATION, "--admin", ADMIN, "--new-token")
    gateway.token = json.loads(made)["token"]
    gateway.client.headers["Authorization"] = f"Bearer {gateway.token}"


def look_at_redis(gateway):
    """Every key and value, as text."""
    found = []
    with redis.Redis.from_url(gateway.environment["REDIS_URL"]) as client:
        for key in client.scan_iter():
            kind = client.type(key)
            value = client.lrange(key, 0, -1) if kind == b"list" else client.get(key) if kind == b"string" else kind
            found.append(f"{key!r} {value!r}")
    return "\n".join(found)


def rows(gateway):
    """Every row of every table, as text."""
    found = []
    with psycopg.connect(owner_url(gateway.home, gateway.environment["DATABASE_URL"]), autocommit=True) as owner:
        for (table,) in owner.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall():
            found += [json.dumps(row[0]) for row in owner.execute(f"SELECT t::text FROM {table} AS t").fetchall()]
    assert len(found) > 100
    return "\n".join(found)

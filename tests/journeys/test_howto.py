"""The pages of docs/howto as an operator follows them: their blocks as written, on a gateway of real processes.

Filled in are only what the pages leave to the reader: addresses, the file of a secret, keys. README's test follows the
pages on replays, on registering a cluster and on real jobs on a local cluster, and the test of real training the page on data.
"""

import json
import re
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from devtools.scratch import scratch_folder
from devtools.trial import Gateway, start_gateway
from tests.apiserver import ApiServer, api_server, make_certificate

from .workload import wait_for

PROJECT = Path(__file__).resolve().parents[2]
HOWTO = PROJECT / "docs" / "howto"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FOLLOWED_BY_README = {"replay.md", "run-real-jobs-locally.md"}
FOLLOWED_BY_TRAINING = {"read-and-write-data.md"}
FOLLOWED_HERE = {"a-cluster-is-gone.md", "policy-hook.md", "register-a-cluster.md"}
OLD_KEY = "b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb28="
READ_CREDENTIAL = """
import sys, uuid, django; django.setup()
from clusters.queries import address_of_registered
print(address_of_registered(uuid.UUID(sys.argv[1])))
"""
pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]


def blocks(page: str, language: str, heading: str = "") -> list[str]:
    """The page's blocks in a language, all of them or those below a heading."""
    text = (HOWTO / page).read_text()
    part = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0] if heading else text
    return [block for found, block in BLOCK.findall(part) if found == language]


def run(script: str, **environment: str) -> str:
    """What the commands print, in a shell that knows nothing but these variables."""
    script = script.replace(".venv/bin/python", sys.executable)
    done = subprocess.run(
        ["/bin/sh", "-ec", script], cwd=PROJECT, env={"PATH": "/usr/local/bin:/usr/bin:/bin", **environment},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass
class Hook:
    """A policy service that gives one answer and keeps what it was asked."""

    answer: str = '{"allow": true}'
    asked: list[dict[str, Any]] = field(default_factory=list)
    credentials: set[str | None] = field(default_factory=set)
    port: int = 0


@contextmanager
def serving(hook: Hook) -> Iterator[Hook]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hook.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            hook.credentials.add(self.headers["Authorization"])
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(hook.answer)))
            self.end_headers()
            self.wfile.write(hook.answer.encode())

        def log_message(self, *_: object) -> None:
            """Nothing of it in the tests' output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hook.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hook
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@dataclass
class Stand:
    """A gateway with the policy page's two hooks, and one cluster."""

    gateway: Gateway
    settings: dict[str, str]
    hook: Hook
    cluster: ApiServer
    cluster_id: str

    def restart(self, **settings: str) -> None:
        """All processes again, on the same home."""
        self.gateway.stop()
        self.gateway = start_gateway(self.gateway.home, **self.settings | settings)


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    folder = scratch_folder("howto")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def stand(root: Path) -> Iterator[Stand]:
    install_the_function(root / "packages")
    with serving(Hook()) as hook, api_server() as cluster:
        settings = settings_of_the_service(root, hook) | {
            "PYTHONPATH": str(root / "packages"),
            "SWITCHYARD_KEY_RING": f"2026:{OLD_KEY}",
        }
        stand = Stand(start_gateway(root / "home", **settings), settings, hook, cluster, "")
        try:
            stand.cluster_id = stand.gateway.create("/clusters", cluster.body())["id"]
            yield stand
        finally:
            stand.gateway.stop(quickly=True)


def install_the_function(folder: Path) -> None:
    """The page's function as a package beside the gateway, with the page's entry point."""
    [declared] = blocks("policy-hook.md", "toml")
    [code] = blocks("policy-hook.md", "python")
    groups = tomllib.loads(declared)["project"]["entry-points"]
    metadata = folder / "acme_rules-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rules\nVersion: 1\n")
    lines = [
        line for group, points in groups.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in points.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    (folder / "acme_rules.py").write_text(code)


def settings_of_the_service(root: Path, hook: Hook) -> dict[str, str]:
    """What the page's block sets, with this host's address and files."""
    [block] = blocks("policy-hook.md", "sh")
    (root / "policy-token").write_text("a-token-of-the-hook\n")
    (root / "ours.pem").write_text(make_certificate("127.0.0.1")[0])
    for named, ours in (
        ("https://policy.example.com/review", f"http://127.0.0.1:{hook.port}/review"),
        ("/run/secrets/policy-token", str(root / "policy-token")),
        ("/etc/ssl/ours.pem", str(root / "ours.pem")),
    ):
        assert named in block
        block = block.replace(named, ours)
    lines = run(f"set -a\n{block}env").splitlines()
    return dict(line.split("=", 1) for line in lines if line.startswith("SWITCHYARD_POLICY_"))


def submitted(stand: Stand, name: str, image: str = "registry.example.com/train:1") -> Any:
    pod_set = {"name": "worker", "count": 1, "image": image, "cpu": "1", "memory": "1Gi"}
    return stand.gateway.request("POST", "/jobs", json={"tenant": "acme", "name": name, "pod_sets": [pod_set]})


def test_every_page_with_commands_is_followed():
    assert {
        page.name for page in HOWTO.glob("*.md") if "```sh" in page.read_text()
    } == FOLLOWED_BY_README | FOLLOWED_BY_TRAINING | FOLLOWED_HERE


def test_the_page_on_policy_hooks_gives_a_function_and_a_service_that_work_as_it_says(stand: Stand):
    question, answers = blocks("policy-hook.md", "json")
    plain, changing, refusing = answers.splitlines()

    refused = submitted(stand, "foreign", image="docker.io/train:1")
    assert "Images come from registry.example.com only." in refused.text
    assert not stand.hook.asked, "the function runs first"

    stand.hook.answer = plain
    job = submitted(stand, "plain").json()
    assert job["spec"]["labels"] == {"cost-centre": "4711"}
    assert set(stand.hook.asked[-1]) == set(re.findall(r'"(\w+)":', question.partition('"spec"')[0])) | {"spec"}
    assert stand.hook.credentials == {"Bearer a-token-of-the-hook"}

    stand.hook.answer = changing
    changed = submitted(stand, "changed").json()
    for name, value in json.loads(changing)["changes"].items():
        assert changed["spec"][name] == value

    stand.hook.answer = refusing
    refused = submitted(stand, "refused")
    assert refused.is_client_error
    assert json.loads(refusing)["message"] in refused.text
    stand.hook.answer = plain


def test_the_script_for_pipelines_submits_once_and_exits_by_the_end(stand: Stand, root: Path):
    [script] = blocks("submit-from-a-pipeline.md", "python")
    (root / "submit.py").write_text(script)
    pod_set = {"name": "main", "count": 1, "image": "registry.example.com/train:1", "cpu": "1", "memory": "1Gi"}
    (root / "job.json").write_text(json.dumps({"tenant": "acme", "name": "from-ci", "pod_sets": [pod_set]}))
    (root / "refused.json").write_text("{}")
    given = {"SWITCHYARD": stand.gateway.url, "TOKEN": stand.gateway.token}

    def started(file: str) -> subprocess.Popen[str]:
        argv = [sys.executable, str(root / "submit.py"), str(root / file), f"run 7, {file}"]
        return subprocess.Popen(argv, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def those_from_ci() -> list[dict[str, Any]]:
        return [job for job in stand.gateway.items("/jobs") if job["name"] == "from-ci"]

    first, again, refused = started("job.json"), started("job.json"), started("refused.json")
    wait_for(those_from_ci, "the script submits", 60)
    time.sleep(1)
    [job] = those_from_ci()
    assert stand.gateway.request("POST", f"/jobs/{job['id']}/cancel").is_success
    for process, status, said in ((first, 1, "cancelled"), (again, 1, job["id"]), (refused, 2, "validation_failed")):
        assert said in process.communicate(timeout=120)[0]
        assert process.returncode == status


def test_the_section_on_the_key_ring_moves_credentials_to_a_new_key_and_the_old_one_can_go(stand: Stand):
    [block] = blocks("register-a-cluster.md", "sh", "5. Change the key that seals credentials")
    make, begin, rekey, end = block.splitlines()
    key = run(make).strip()
    begin, end = (line.replace("NEWKEY", key).replace("OLDKEY", OLD_KEY) for line in (begin, end))
    ring = run(f'{begin}\nprintf %s "$SWITCHYARD_KEY_RING"')
    home = {name: value for name, value in stand.gateway.environment.items() if name != "SWITCHYARD_KEY_RING"}
    read = f'{end}\nexec "$PYTHON" -c "$READ" {UUID(stand.cluster_id)}'
    reading = {**home, "PYTHON": sys.executable, "READ": READ_CREDENTIAL, "DJANGO_SETTINGS_MODULE": "config.settings"}

    stand.restart(SWITCHYARD_KEY_RING=ring)
    with pytest.raises(AssertionError, match="2026"):
        run(read, **reading)
    said = run(f"{begin}\n{rekey}", **home)
    assert "1 credentials and secrets moved to the current key, 0 already used it." in said
    assert run(read, **reading)
    probed = stand.gateway.request("POST", f"/clusters/{stand.cluster_id}/probe")
    assert probed.is_success, probed.text


def test_the_page_on_a_gone_cluster_gives_a_command_that_is_refused_until_the_cluster_is_silent(stand: Stand):
    [attest] = blocks("a-cluster-is-gone.md", "sh")
    given = {"SWITCHYARD": stand.gateway.url, "CLUSTER": stand.cluster_id, "TOKEN": stand.gateway.token}
    path = f"/clusters/{stand.cluster_id}"
    assert json.loads(run(attest, **given))["code"] == "cluster_answers"
    stand.cluster.answers |= {
        address: lambda handler: handler.connection.close()
        for address in ("/version", "/api/v1/namespaces/kube-system")
    }
    wait_for(lambda: "code" not in json.loads(run(attest, **given)), "the cluster is taken for silent", 60)
    assert stand.gateway.get(path)["state"] in {"unreachable", "cordoned"}
    assert stand.gateway.request("DELETE", path).is_success

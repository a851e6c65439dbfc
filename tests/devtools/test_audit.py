"""The audit of what the lock names, against a server that speaks the advisory database's protocol."""

import hashlib
import json
import re
import shutil
import subprocess
import threading
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from devtools import audit
from devtools.sbom import bill_of_materials
from devtools.serve import PROJECT
from foundation.clock import now

LOCK = """
version = 1
requires-python = ">=3.11"

[[package]]
name = "django"
version = "5.2.0"
source = { registry = "https://pypi.org/simple" }
sdist = { url = "https://files.example/django-5.2.tar.gz", hash = "sha256:00", size = 1 }

[[package]]
name = "here"
version = "0.1.0"
source = { virtual = "." }
dependencies = [{ name = "django" }]
"""
HOLE = {
    "id": "GHSA-aaaa-bbbb-cccc",
    "aliases": ["CVE-2026-1", "PYSEC-2026-1"],
    "summary": "SQL injection in something",
    "modified": "2026-01-01T00:00:00Z",
    "published": "2026-01-01T00:00:00Z",
    "affected": [
        {
            "package": {"name": "django", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "5.2.9"}]}],
        },
        {
            "package": {"name": "other", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"fixed": "9"}]}],
        },
    ],
}


class Database:
    """Advisories by (ecosystem, name, version); `status` and `body` replace every answer when set."""

    def __init__(self):
        self.holes = {("PyPI", "django", "5.2.0"): [HOLE]}
        self.asked, self.status, self.body, self.page_size = [], 200, None, None

    def batch(self, queries):
        return {"results": [self.answer(query) for query in queries]}

    def answer(self, query):
        key = (query["package"]["ecosystem"], query["package"]["name"], query["version"])
        self.asked.append(key)
        found = [{"id": hole["id"], "modified": "x"} for hole in self.holes.get(key, [])]
        if self.page_size is None:
            return {"vulns": found} if found else {}
        start = int(query.get("page_token") or 0)
        page = {"vulns": found[start : start + self.page_size]}
        return {**page, "next_page_token": str(start + self.page_size)} if start + self.page_size < len(found) else page

    def hole(self, name):
        return next(hole for holes in self.holes.values() for hole in holes if hole["id"] == name)


@contextmanager
def serving(database):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
            assert self.path == "/v1/querybatch"
            self.tell(database.batch(queries))

        def do_GET(self):
            self.tell(database.hole(self.path.removeprefix("/v1/vulns/")))

        def tell(self, told):
            body = database.body if database.body is not None else json.dumps(told).encode()
            self.send_response(database.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def database():
    return Database()


@pytest.fixture
def run(database, tmp_path, capsys):
    """`run(accepted="…")`: exit status and everything printed, for a lock with one vulnerable version."""
    lock, vendored, passes = tmp_path / "uv.lock", tmp_path / "vendored.json", tmp_path / "audit-accepted.toml"
    lock.write_text(LOCK)
    vendored.write_text("[]")

    def audited(accepted="", lock_text=LOCK, files=(), source=None):
        lock.write_text(lock_text)
        passes.write_text(accepted)
        vendored.write_text(json.dumps(list(files)))
        with serving(database) as url:
            code = audit.main(
                ["--lock", str(lock), "--vendored", str(vendored), "--accepted", str(passes), "--source", source or url]
            )
        said = capsys.readouterr()
        return code, said.out + said.err

    return audited


def accept(
    days=30, advisory="GHSA-aaaa-bbbb-cccc", package="django", reason="Only its XML reader, which we never call."
):
    until = (now() + timedelta(days=days)).date()
    return f'[[accepted]]\nadvisory = "{advisory}"\npackage = "{package}"\nuntil = {until}\nreason = "{reason}"\n'


def test_a_lock_with_a_vulnerable_version_fails_and_names_package_advisory_and_fix(run, database):
    code, said = run()
    assert code == 1
    assert (
        "django 5.2.0: GHSA-aaaa-bbbb-cccc = CVE-2026-1 = PYSEC-2026-1: SQL injection in something (fixed in 5.2.9)"
        in said
    )
    assert database.asked == [("PyPI", "django", "5.2.0")]


def test_a_lock_without_known_holes_passes(run, database):
    database.holes.clear()
    assert run()[0] == 0


def test_the_fixed_version_passes(run):
    assert run(lock_text=LOCK.replace("5.2.0", "5.2.9"))[0] == 0


def test_vendored_front_end_files_are_asked_about_too(run, database):
    database.holes[("npm", "htmx.org", "1.0.0")] = [{**HOLE, "id": "GHSA-npm", "affected": []}]
    code, said = run(files=[{"package": "htmx.org", "version": "1.0.0"}], lock_text=LOCK.replace("5.2.0", "5.2.9"))
    assert code == 1
    assert "htmx.org 1.0.0: GHSA-npm" in said
    assert "no known fix" in said


def test_a_withdrawn_advisory_counts_for_nothing(run, database):
    database.holes[("PyPI", "django", "5.2.0")] = [{**HOLE, "withdrawn": "2026-02-01T00:00:00Z"}]
    assert run()[0] == 0


def test_every_page_of_a_long_answer_is_read(run, database):
    database.page_size = 1
    database.holes[("PyPI", "django", "5.2.0")] = [
        {**HOLE, "id": f"GHSA-{number}", "aliases": []} for number in range(3)
    ]
    code, said = run()
    assert code == 1
    assert all(f"GHSA-{number}" in said for number in range(3))


@pytest.mark.parametrize("advisory", ["GHSA-aaaa-bbbb-cccc", "CVE-2026-1"])
def test_a_hole_may_be_let_pass_with_a_reason_and_an_end(run, advisory):
    code, said = run(accept(advisory=advisory))
    assert code == 0
    assert "accepted until" in said
    assert "Only its XML reader" in said


def test_an_acceptance_that_ended_fails_again(run):
    code, said = run(accept(days=-1))
    assert code == 1
    assert ", now expired: " in said


@pytest.mark.parametrize("other", [{"package": "flask"}, {"advisory": "CVE-1999-1"}])
def test_an_acceptance_passes_nothing_else_and_fails_when_nothing_needs_it(run, other):
    code, said = run(accept(**other))
    assert code == 1
    assert "SQL injection" in said
    assert "remove the entry" in said


@pytest.mark.parametrize(
    "text",
    ['[[accepted]]\nadvisory = "x"\n', accept(reason="because"), '[[accepted]]\nadvisory="a"\npackage="b"\nuntil="soon"\nreason="a good reason, surely"\n',
     "[[accepted]"],
)  # fmt: skip
def test_an_acceptance_without_end_or_reason_checks_nothing(run, text):
    code, said = run(text)
    assert code == 2
    assert "NOT CHECKED" in said


def test_a_source_that_cannot_be_reached_is_an_error_that_says_what_to_do(run):
    code, said = run(source="http://127.0.0.1:1")
    assert code == 2
    assert "NOT CHECKED" in said
    assert "nothing was checked" in said
    assert "make audit SOURCE=" in said


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, b"{}"), (403, b"no"), (200, b"<html>sign in to the network</html>"), (200, b"[]"), (200, b"{}"), (200, b'{"results": []}'),
     (200, b'{"results": [{"vulns": [{}]}]}'), (200, b'{"results": "x"}'), (200, b"")],
)  # fmt: skip
def test_an_answer_that_is_none_is_never_taken_for_safe(run, database, status, body):
    database.status, database.body = status, body
    code, said = run()
    assert code == 2, said
    assert "NOT CHECKED" in said


@pytest.mark.parametrize(
    "broken",
    [LOCK.replace('hash = "sha256:00", ', ""), LOCK.replace('registry = "https://pypi.org/simple"', 'git = "https://example.com/x"'), "nonsense ="],
)  # fmt: skip
def test_a_package_without_a_hash_or_from_elsewhere_checks_nothing(run, broken):
    assert run(lock_text=broken)[0] == 2


def test_uvs_own_audit_takes_the_test_server_for_a_database_and_finds_the_same(database, tmp_path):
    """The server of these tests is not merely what our own reader expects."""
    shutil.copy(PROJECT / "uv.lock", tmp_path)
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    name, version = next((c.name, c.version) for c in audit.locked(PROJECT / "uv.lock") if c.name == "django")
    database.holes = {("PyPI", name, version): [HOLE]}
    uv = subprocess.run(
        ["sh", "devtools/find_uv.sh"], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout.strip()
    with serving(database) as url:
        done = subprocess.run(
            [uv, "audit", "--frozen", "--service-url", url, "--preview-features", "audit-command"],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode != 0
    assert "GHSA-aaaa-bbbb-cccc" in done.stdout + done.stderr
    assert "5.2.9" in done.stdout + done.stderr


def test_the_projects_own_lock_is_read_whole():
    components = list(audit.locked(PROJECT / "uv.lock"))
    assert len(components) > 100
    assert {"django", "aiohttp", "pytest"} <= {component.name for component in components}
    assert not audit.accepted(PROJECT / "audit-accepted.toml")


VENDORED = json.loads((PROJECT / "static/vendor/vendored.json").read_text())


def test_every_vendored_file_is_the_one_that_is_listed():
    for entry in VENDORED:
        digest = hashlib.sha256((PROJECT / "static" / entry["path"]).read_bytes()).hexdigest()
        assert digest == entry["sha256"], entry["path"]


def test_every_file_below_vendor_is_listed_with_the_version_that_the_readme_names():
    found = {str(path.relative_to(PROJECT / "static")) for path in (PROJECT / "static/vendor").rglob("*.*")}
    ours = {"vendor/README.md", "vendor/vendored.json"}
    assert found - ours == {entry["path"] for entry in VENDORED if entry["path"].startswith("vendor/")}
    readme = (PROJECT / "static/vendor/README.md").read_text()
    for entry in VENDORED:
        assert re.search(rf"\| {re.escape(entry['version'])} \|.*`{re.escape(entry['package'])}`", readme), entry


def test_the_bill_of_materials_names_what_runs_and_nothing_of_the_workshop():
    bill = bill_of_materials()
    assert bill["bomFormat"] == "CycloneDX"
    names = {component["name"] for component in bill["components"]}
    assert {"django", "psycopg", "htmx.org", "@tabler/core"} <= names
    assert not {"pytest", "ruff", "playwright"} & names
    assert all(component["version"] for component in bill["components"])


def test_images_are_pinned_by_digest():
    dockerfile = (PROJECT / "Dockerfile").read_text()
    assert re.search(
        r"^ARG PYTHON_IMAGE=python:3\.12\.\d+-slim-bookworm@sha256:[0-9a-f]{64}$", dockerfile, re.MULTILINE
    )
    assert {line.split()[1] for line in dockerfile.splitlines() if line.startswith("FROM ")} == {"${PYTHON_IMAGE}"}
    services = yaml.safe_load((PROJECT / "docker-compose.yml").read_text())["services"]
    for name in ("postgres", "valkey"):
        assert re.fullmatch(r"\$\{[A-Z]+_IMAGE:-[a-z/]+:[0-9.]+@sha256:[0-9a-f]{64}\}", services[name]["image"]), name


def test_uv_comes_by_version_and_hash():
    pinned = (PROJECT / "devtools/uv.txt").read_text()
    assert re.match(r"uv==\d+\.\d+\.\d+ \\\n", pinned)
    assert pinned.count("--hash=sha256:") > 5
    for file in ("Dockerfile", "devtools/find_uv.sh"):
        text = (PROJECT / file).read_text()
        assert "--require-hashes" in text
        assert "uv.txt" in text


def test_workflows_use_actions_by_commit_and_hand_out_no_rights():
    workflows = sorted((PROJECT / ".github/workflows").glob("*.yml"))
    assert {path.stem for path in workflows} >= {"ci", "audit"}
    for path in workflows:
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {"contents": "read"}, path
        for job in workflow["jobs"].values():
            for step in job["steps"]:
                if "uses" in step:
                    assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), (path, step)
                if "checkout" in step.get("uses", ""):
                    assert step["with"]["persist-credentials"] is False


def test_the_audit_runs_every_day_and_for_every_proposal():
    workflow = yaml.safe_load((PROJECT / ".github/workflows/audit.yml").read_text())
    triggers = workflow[True]  # YAML reads `on` as true
    assert {"schedule", "pull_request"} <= set(triggers)
    assert "make audit" in [step.get("run") for step in workflow["jobs"]["audit"]["steps"]]

"""README, the page on replays and the one on real jobs as a new user follows them: a copy that stands alone, and the
commands as written.

Only the ports differ: another gateway may use 8000 on the host that runs the tests.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from devtools.embedded import free_port, tail

PROJECT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PASSWORD = "correct horse battery staple"
SECONDS = 300
pytestmark = [pytest.mark.kube, pytest.mark.timeout(900)]


def section(title: str) -> list[str]:
    """The command blocks below a heading of README."""
    readme = (PROJECT / "README.md").read_text()
    return BLOCK.findall(readme.partition(f"\n## {title}\n")[2].partition("\n## ")[0])


@pytest.fixture(scope="module")
def copy() -> Iterator[Path]:
    """The project's files in a folder of their own, without any environment of ours. The pages are followed one after the other
    in this one folder, as users do.
    """
    folder = Path(tempfile.mkdtemp(prefix="switchyard-readme-", dir="/var/tmp"))
    folder.chmod(0o755)
    files = subprocess.run(
        ["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in filter(None, files):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(PROJECT / name, target, follow_symlinks=False)
    assert "sync --frozen" in run("make --dry-run demo", folder, login_shell()), "the command makes the environment"
    run("make setup", folder, login_shell())
    [packages] = (folder / ".venv" / "lib").glob("*/site-packages")
    give_bytecode(PROJECT, folder)
    give_bytecode(Path(sysconfig.get_path("purelib")), packages)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def give_bytecode(ours: Path, theirs: Path) -> None:
    """Of the same files, which Python knows by their times: Django and all else need not be compiled again."""
    for compiled in ours.rglob("__pycache__/*.pyc"):
        folder = theirs / compiled.parent.relative_to(ours)
        if folder.parent.is_dir() and "-pytest-" not in compiled.name:
            folder.mkdir(exist_ok=True)
            _share(compiled, folder / compiled.name)


def _share(file: Path, name: Path) -> None:
    """Another name of the file costs a fifth of a copy, and there are some twenty thousand. Python replaces such a file, and never
    writes into it.
    """
    name.unlink(missing_ok=True)
    try:
        name.hardlink_to(file)
    except OSError:  # another file system
        shutil.copyfile(file, name)


def login_shell() -> dict[str, str]:
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": os.environ["HOME"]}


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def shell(port) -> dict[str, str]:
    """What a login shell has, and the ports."""
    ports = {
        "SWITCHYARD_PORT": str(port),
        "SWITCHYARD_HEALTH_PORT": str(free_port()),
        "SWITCHYARD_METRICS_PORT": "0",
    }
    return {**login_shell(), **ports}


@contextmanager
def foreground(command: str, folder: Path, shell: dict[str, str], until: str) -> Iterator[str]:
    """A command in a shell of its own, from when it says `until`; Ctrl-C at the end."""
    log = folder / f"{until.strip()}.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command], cwd=folder, env=shell, stdout=sink, stderr=sink, start_new_session=True
        )
    try:
        deadline = time.monotonic() + SECONDS
        while until not in log.read_text():
            assert process.poll() is None, tail(log)
            assert time.monotonic() < deadline, tail(log)
            time.sleep(0.5)
        yield log.read_text()
    finally:
        assert process.poll() is None, tail(log)
        family = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
        _, alive = psutil.wait_procs(family, timeout=30)
        assert not alive, alive


def run(script: str, folder: Path, shell: dict[str, str]) -> str:
    done = subprocess.run(
        ["/bin/sh", "-ec", script], cwd=folder, env=shell, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def post_form(browser: httpx.Client, path: str, **fields: str) -> httpx.Response:
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', browser.get(path).text)
    assert token is not None
    return browser.post(path, data=fields | {"csrfmiddlewaretoken": token[1]})


def signed_in_by(link: str) -> httpx.Client:
    """A browser in which somebody opens the link, sets a password and signs in with it."""
    address, _, secret = link.partition("#")
    browser = httpx.Client(base_url=address.partition("/sign-in/")[0], follow_redirects=True, timeout=60)
    post_form(browser, "/sign-in/link/", link=secret, step="password", password=PASSWORD, password_again=PASSWORD)
    if browser.get("/").url.path == "/login/":
        post_form(browser, "/login/", email="you@acme.example", password=PASSWORD)
    return browser


def follow_the_page_on_replays(copy: Path, shell: dict[str, str]) -> None:
    text = (copy / "docs/howto/replay.md").read_text()
    decision, trace = BLOCK.findall(text)
    run(decision, copy, shell)
    [fleet] = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (copy / "fleet.yaml").write_text(fleet)
    [export] = re.findall(r"`(manage\.py export_trace [^`]+)`", text)
    run(f".venv/bin/python {export}\n{trace}", copy, shell)
    assert (copy / "jobs-out.csv").read_text().startswith("job,")
    assert "<html" in (copy / "report.html").read_text()


def test_the_demo_starts_shows_its_fleet_and_says_that_all_is_made_up(copy, shell, port):
    [demo] = section("Try it")
    with foreground(demo, copy, shell, "password ") as said:
        assert "All data is made up: 40 simulated clusters" in said
        page = httpx.get(f"http://127.0.0.1:{port}/login/", timeout=60)
        assert page.status_code == httpx.codes.OK
    assert (copy / ".switchyard-demo").is_dir()
    assert not (copy / ".switchyard").exists()


def test_readmes_commands_lead_to_a_job_that_ran_on_a_real_cluster_and_to_a_signed_in_page(copy, shell, port):
    blocks = [block.replace(":8000", f":{port}") for block in section("Run a job on a real cluster")]
    serve, fleet, *rest = blocks
    with foreground(serve, copy, shell, "switchyard is ready"), foreground(fleet, copy, shell, "kubectl"):
        people, *others = rest
        run(people, copy, shell)
        exports = "\n".join(line for line in people.splitlines() if line.startswith("export "))
        link = json.loads((copy / "bootstrap.json").read_text())["link"]
        with closing(signed_in_by(link)) as browser:
            said = run("\n".join((exports, *others)), copy, shell)
            page = browser.get("/jobs/")
        follow_the_page_on_replays(copy, shell)
    assert page.url.path == "/jobs/"
    assert "train" in page.text
    assert re.search(r" train +acme +succeeded +8 H100-80GB +east ", said), said
    assert re.search(r"swy-acme\S* +swy-\S+ +Complete", said), said


def test_the_page_on_real_jobs_leads_to_a_pod_that_ran_on_this_host(copy, shell):
    [block] = BLOCK.findall((copy / "docs/howto/run-real-jobs-locally.md").read_text())
    fleet, _, rest = block.partition("\n")
    with foreground(fleet, copy, shell, "\nkubectl "):
        said = run(rest, copy, shell)
    assert said.splitlines()[-1].endswith(" hello"), said


def test_the_page_on_registering_a_cluster_gives_the_commands_of_readme():
    account, register, *_ = BLOCK.findall((PROJECT / "docs/howto/register-a-cluster.md").read_text())
    assert any(account + register in block for block in section("Run a job on a real cluster"))


def test_the_commands_that_test_the_project_exist():
    """They are this suite: `make` says what each would run, and nothing is run."""
    for line in "".join(section("Test it")).splitlines():
        command = line.partition("#")[0].strip()
        assert command.startswith("make ")
        subprocess.run(["/bin/sh", "-c", f"{command} --dry-run"], cwd=PROJECT, check=True, capture_output=True)

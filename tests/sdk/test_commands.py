"""The command line against the gateway itself: jobs of simulated clusters, submitted, followed and explained."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import httpx
import pytest
from django.core.handlers.wsgi import WSGIHandler

from federation.models import Job, Move
from federation.operations import run_scheduling_cycle
from switchyard import NotConfigured, Problem, profiles
from switchyard import client as client_module
from switchyard.cli import following
from switchyard.client import Client
from tests.builders import make_limit, make_token
from tests.live import gpu_job, observe_until, simulated_cluster
from tests.rooms.federation.test_reports import takes_reports

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["takes_reports"]


@pytest.fixture
def turns(cluster, monkeypatch):
    """While a command waits, the gateway works until the job's state has changed."""

    def work(_seconds):
        before = Job.objects.get().state
        observe_until(lambda: Job.objects.get().state != before)

    monkeypatch.setattr(client_module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=work))


@pytest.fixture
def reporting(run, cluster, takes_reports, tmp_path):
    """The id of a job that runs and reports."""
    job = run("submit", file_of(tmp_path, gpu_job(seconds=100_000) | {"reports": True})).out.strip()
    observe_until(lambda: Job.objects.get().state == "running")
    return job


def file_of(tmp_path, spec):
    path = tmp_path / "job.json"
    path.write_text(json.dumps(spec))
    return str(path)


def test_a_pipeline_submits_waits_reads_the_logs_and_exits_as_the_program_did(run, turns, tmp_path):
    file = file_of(tmp_path, gpu_job(exit_code=7))
    done = run("submit", file, "--key", "build-42", "--wait", "--logs")
    job = Job.objects.get()
    assert (done.status, job.state) == (7, "failed")
    assert "ended with exit code 7" in done.out
    assert f"Job {job.id}" in done.err
    assert "  running" in done.err
    # a runner that died begins again with the same file and key
    again = run("-o", "json", "submit", file, "--key", "build-42", "--wait")
    assert (again.status, json.loads(again.out)["id"], Job.objects.count()) == (7, str(job.id), 1)
    shown = run("show", str(job.id)).out
    assert f"id         {job.id}\n" in shown
    assert "exit code  7\n" in shown
    assert "running" in run("events", str(job.id)).out
    assert json.loads(run("-o", "json", "logs", str(job.id)).out)["attempt_number"] == 1
    assert run("rerun", str(job.id)).status == 0
    assert Job.objects.count() == 2


def test_a_job_of_options_runs_and_another_is_cancelled(run, turns):
    done = run("run", "-t", "acme/research", "--gpus", "8", "--label", "sim.switchyard.dev/run-seconds=1", "--wait", "x/y:1",
               "--", "python", "train.py")  # fmt: skip
    assert done.status == 0, done.err
    pod_set = Job.objects.get().spec["pod_sets"][0]
    assert (pod_set["command"], pod_set["gpu"]["count"]) == (["python", "train.py"], 8)
    assert "succeeded" in run("jobs", "-s", "succeeded").out


def test_a_job_of_options_is_the_same_job_with_the_same_key(run):
    command = ("run", "-t", "acme/research", "x/y:1")
    first, again = (run(*command, "--key", "build-42").out for _ in range(2))
    assert first == again
    assert run(*command).out not in {first, run(*command).out}
    assert len(set(Job.objects.values_list("name", flat=True))) == Job.objects.count() == 3


def test_cancelled_jobs_have_a_status_of_their_own_and_refusals_stop_no_other(run, tmp_path):
    first, second = (run("submit", file_of(tmp_path, gpu_job(name))).out.strip() for name in ("one", "two"))
    unknown = "0" * 8 + "-0000-0000-0000-" + "0" * 12
    done = run("cancel", first, unknown, second)
    assert done.status == 125
    assert done.out == f"{first}  cancelled\n{second}  cancelled\n"
    assert f"{unknown}: The object does not exist" in done.err
    assert run("wait", first).status == 126
    assert run("wait", first, "--logs").err.endswith("There are no logs: no pod has started.\n")
    assert run("suspend", first).status == 125


def test_time_out_and_interrupt_leave_the_job_unless_it_is_to_end_with_the_command(run, cluster, monkeypatch, tmp_path):
    job = run("submit", file_of(tmp_path, gpu_job())).out.strip()
    done = run("wait", job, "--timeout", "0")
    assert done.status == 124
    assert f"switchyard wait {job}" in done.err

    def interrupt(_seconds):
        os.kill(os.getpid(), signal.SIGTERM)  # as a pipeline does that is cancelled

    monkeypatch.setattr(client_module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=interrupt))
    assert run("wait", job).status == 130
    assert Job.objects.get().state == "queued"
    assert run("wait", job, "--cancel-with-me").status == 130
    assert Job.objects.get().state == "cancelled"


def test_a_waiting_job_is_explained_and_a_quote_submits_nothing(run, cluster, tmp_path):
    make_limit("acme/research", nominal="4")
    file = file_of(tmp_path, gpu_job(count=1, gpus=4))
    offered = run("quote", file)
    assert "east" in offered.out
    assert not Job.objects.exists()
    job = run("submit", file, "--name", "other", "--label", "run=42").out.strip()
    assert Job.objects.get().labels["run"] == "42"
    assert "queued: Not yet considered." in run("why", job).out
    third = run("submit", file, "--name", "third").out.strip()
    run_scheduling_cycle()
    why = run("why", third).out
    assert why.startswith("queued: ")
    assert "Quota: acme/research holds 4 of 4 gpu; the job needs 4 more\n  held by acme/research" in why
    assert "CLUSTER" in why
    table = run("jobs", "--label", "run=42").out
    assert "other" in table
    assert "1 GPU" not in table
    assert "4 GPU" in table
    assert run("jobs", "--label", "run=43").err == "There is no such job.\n"
    assert "acme/research" in run("quotas").out
    assert "4" in run("fits", "-t", "acme/research", "--gpus", "1").out
    assert "H100-80GB" in run("clusters").out
    assert run("usage").err == "Nothing ran in this time.\n"
    assert "ada@acme.example" in run("whoami").out


@pytest.mark.parametrize(
    ("arguments", "given", "says"),
    [
        (["submit", "-"], "a: 1\na: 2\n", "stands twice"),
        (["submit", "-"], "[]", "not one job"),
        (["submit", "-"], "a: [", "not valid YAML"),
        (["submit", "-"], "a: !!python/object/apply:os.system [id]", "not valid YAML"),
        (["submit", "-"], "a: .nan", "write it in quotes"),
        (["submit", "-"], "a: 2026-01-01", "write it in quotes"),
        (["submit", "/there/is/none"], "", "No such file"),
        (["submit", "-", "--timeout", "3"], "{}", "need --wait"),
        (["submit", "-", "--name", "x"], "{apiVersion: batch/v1, kind: Job}", "manifest"),
        (["submit", "-", "--label", "x"], "{}", "KEY=VALUE"),
        (["run", "image"], "", "--tenant says"),
        (["run", "-t", "acme", "--model", "H100", "image"], "", "needs --gpus"),
        (["usage", "--month", "2026"], "", "YYYY-MM"),
        *(
            (["suspend", "x", "--wait-for-checkpoint", wait], "", "10m, 1h, or")
            for wait in ("", "-1", "1.5h", "soon", "٣m", "9999999")
        ),
        (["move", "x", "--wait-for-checkpoint", "1d"], "", "10m, 1h, or"),
    ],
)
def test_wrong_usage_says_what_to_do_and_asks_the_gateway_nothing(run, client, monkeypatch, arguments, given, says):
    monkeypatch.setattr(client, "_ask", lambda *_, **__: pytest.fail("the gateway was asked"))
    done = run(*arguments, given=given)
    assert done.status == 2
    assert says in " ".join(done.err.replace("│", "").split())


@pytest.mark.parametrize(("wait", "seconds"), [("600", 600), ("90s", 90), ("10m", 600), ("10min", 600), ("1h", 3600)])
def test_a_suspension_waits_for_a_checkpoint_and_resume_withdraws_that(run, reporting, wait, seconds):
    done = run("suspend", reporting, "--wait-for-checkpoint", wait)
    job = Job.objects.get()
    assert (done.status, (job.stop_latest_at - job.stop_wished_at).total_seconds()) == (0, seconds)
    assert done.out.startswith(f"{reporting}  running; suspended at its next checkpoint, ")
    assert "stop       suspended at its next checkpoint, " in run("show", reporting).out
    assert run("resume", reporting).out == f"{reporting}  running\n"
    assert "stop " not in run("show", reporting).out
    assert run("suspend", reporting, "--wait-for-checkpoint", "2h").status == 125


def test_jobs_are_moved_to_named_clusters_now_or_at_their_next_checkpoint(run, reporting):
    simulated_cluster("west")
    assert "no checkpoint" in run("move", reporting).err
    words = ("move", reporting, "--to", "west", "--lose-work", "--reason", "slow", "--key", "once")
    done = run(*words, "--wait-for-checkpoint", "10m")
    assert f"{reporting}  running; moved at its next checkpoint, " in done.out
    wish = Job.objects.get().stop_wish
    assert (wish["then"], wish["reason"], wish["lose_work"]) == ("move", "slow", True)
    assert run("move", reporting, "--to", "north", "--lose-work").status == 125
    assert run(*words[:-1], "other").status == 0
    assert not Job.objects.filter(stop_wish__isnull=False).exists()
    assert Move.objects.count() == 1
    # the same key is the same request
    assert run(*words[:-1], "other").out == f"{reporting}  running\n"
    assert Move.objects.count() == 1


def test_a_manifest_of_kubernetes_is_a_job_too(run):
    manifest = """
apiVersion: batch/v1
kind: Job
metadata: {name: from-kubernetes}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: "x/y:1", resources: {requests: {cpu: "1", memory: 1Gi}}}]
"""
    done = run("submit", "-", "--tenant", "acme/research", given=manifest)
    assert done.status == 0, done.err
    assert Job.objects.get().name == "from-kubernetes"


def test_a_login_is_tried_before_it_is_stored_for_its_owner_alone(run, user, monkeypatch):
    real = Client.__init__
    monkeypatch.setattr(
        Client, "__init__", lambda *args, **more: real(*args, **more, transport=httpx.WSGITransport(WSGIHandler()))
    )
    refused = refusal_of(lambda: run("login", "http://localhost", "--token-stdin", given="swy_wrong"))
    assert "not_authenticated" in refused
    assert not profiles.file().exists()
    done = run(
        "--profile", "work", "login", "http://localhost", "--token-stdin", given=f"{make_token(user, 'write')}\n"
    )
    assert done.status == 0
    assert "ada@acme.example" in done.err
    assert profiles.file().stat().st_mode & 0o077 == 0
    with pytest.raises(NotConfigured):
        profiles.access("default", {})
    assert profiles.access("work", {}).address == "http://localhost"
    # a token that was stored for one gateway is not sent to another
    with pytest.raises(NotConfigured):
        profiles.access("work", {profiles.ADDRESS: "https://elsewhere.example"})
    assert run("--profile", "work", "logout").err == "The address and the token are forgotten.\n"
    assert run("--profile", "work", "logout").err == "No login was stored.\n"


def refusal_of(call):
    """The code of the refusal that the call ends with."""
    with pytest.raises(Problem) as caught:
        call()
    return caught.value.code


def test_the_environment_goes_before_what_is_stored(tmp_path):
    file = tmp_path / "token"
    file.write_text("swy_b\n")
    profiles.store("default", profiles.Access("https://one.example", "swy_a"))
    assert profiles.access("default", {}).token == "swy_a"
    other = profiles.access("default", {profiles.ADDRESS: "https://two.example/", profiles.TOKEN_FILE: str(file)})
    assert (other.address, other.token) == ("https://two.example", "swy_b")
    assert "swy" not in repr(other)
    profiles.file().write_text("{")
    with pytest.raises(NotConfigured, match="Mend it"):
        profiles.access("default", {})


def test_the_program_says_what_is_missing_and_needs_nothing_of_the_gateway(tmp_path):
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "switchyard", "jobs"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (125, "")
    assert "Run `switchyard login ADDRESS`" in done.stderr
    wrong = subprocess.run(
        [sys.executable, "-m", "switchyard", "jobs", "--limit", "x"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert wrong.returncode == 2
    assert "Traceback" not in wrong.stderr
    script = "import switchyard.cli, sys; print({'django', 'celery', 'kubernetes'} & set(sys.modules))"
    assert (
        subprocess.check_output([sys.executable, "-c", script], env=environment, text=True, cwd=tmp_path) == "set()\n"
    )


@pytest.mark.parametrize("is_applied", [False, True])
@pytest.mark.parametrize("cancels", [False, True])
def test_a_pipeline_that_is_cancelled_while_it_submits_leaves_no_job_it_does_not_know(
    run, client, monkeypatch, tmp_path, is_applied, cancels
):
    submit, calls = client.submit, []

    def interrupted(*arguments, **more):
        calls.append(more["key"])
        if len(calls) > 1 or is_applied:
            answer = submit(*arguments, **more)
        if len(calls) == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return answer

    monkeypatch.setattr(client, "submit", interrupted)
    options = ["--wait", "--cancel-with-me"] if cancels else []
    done = run("submit", file_of(tmp_path, gpu_job()), *options)
    assert done.status == 130
    assert len(set(calls)) == 1
    states = list(Job.objects.values_list("state", flat=True))
    assert states == (["cancelled"] if cancels else ["queued"] * is_applied)
    assert cancels or f"--key {calls[0]}" in done.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_program_ends_with_130_when_it_is_interrupted(tmp_path, number):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "SWITCHYARD": address,
            "SWITCHYARD_TOKEN": "swy_x",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "switchyard", "jobs"],
            env=environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with silent.accept()[0] as asked:
            asked.recv(1)
            process.send_signal(number)
            assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == 130


@pytest.mark.parametrize(("state", "code", "status"), [
    ("succeeded", 0, 0), ("succeeded", None, 0), ("failed", 1, 1), ("failed", 255, 255), ("failed", None, 1), ("failed", 0, 1),
    ("failed", 256, 1), ("failed", -9, 1), ("cancelled", 143, 126),
])  # fmt: skip
def test_the_exit_status_is_that_of_the_program(state, code, status):
    assert following.status_of({"state": state, "exit_code": code}) == status

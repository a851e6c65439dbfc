"""A live cycle's input, taken out of the database and decided again elsewhere."""

import json
import os
import subprocess
import sys
from decimal import Decimal

import pytest
import time_machine
from django.core.management import CommandError, call_command

from federation.models import Attempt, Job
from federation.operations.cycle import run_scheduling_cycle
from federation.queries.queue import QUEUE_DEPTH
from federation.queries.snapshot import load_snapshot
from foundation import clock
from placement.answers.recording import decisions_text
from placement.cycle.cycle import decide
from tests.builders import (
    actor_for,
    bind,
    make_cluster,
    make_flavor,
    make_limit,
    make_node,
    make_spec,
    make_user,
    submit,
)
from tests.house.source import ROOT

pytestmark = pytest.mark.django_db(transaction=True)
SECRET = "hunter2-very-secret"


@pytest.fixture(autouse=True)
def busy_gateway():
    """Three clusters, quota, and more gangs and single jobs than there is room for."""
    user = make_user()
    bind(user, "acme")
    for name in ("east", "north", "west"):
        cluster = make_cluster(name=name)
        make_flavor(cluster)
        make_flavor(cluster, "a100", gpu_model="A100-80GB")
        for number in range(3):
            devices = [{"flavor": "h100" if number else "a100", "units": 8}]
            make_node(cluster, f"{name}-{number}", devices=devices, domain=["z", "b", f"r{number // 2}"])
    make_limit("acme/ml", nominal="20")
    actor = actor_for(user)
    for number in range(12):
        gpu = {"count": 1 + number % 8, **({"models": ["H100-80GB"]} if number % 3 else {})}
        pod = {"count": 1 + number % 2, "gpu": gpu, "env": {"TOKEN": SECRET}, "command": [SECRET]}
        tenant = "acme/ml" if number % 2 else "acme"
        submit(actor, {**make_spec(name=f"job-{number}", pod=pod), "tenant": tenant})


def export(tmp_path):
    path = tmp_path / "cycle.json"
    call_command("snapshot", "--out", str(path))
    return path


def replay_elsewhere(path, seed):
    """The bytes that another process prints, without a database to talk to."""
    environment = {**os.environ, "PYTHONHASHSEED": seed, "DATABASE_URL": "postgresql://nobody:x@127.0.0.1:1/none"}
    done = subprocess.run(
        [sys.executable, "manage.py", "replay", "--snapshot", str(path)],
        cwd=ROOT, env=environment, capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_another_process_decides_byte_for_byte_what_the_live_cycle_decided(tmp_path):
    with time_machine.travel(clock.now(), tick=False):
        path = export(tmp_path)
        expected = decisions_text(decide(load_snapshot(clock.now(), QUEUE_DEPTH)))
        run_scheduling_cycle()
    assert replay_elsewhere(path, "1") == replay_elsewhere(path, "4242") == expected
    decisions = json.loads(expected)["decisions"]
    assert decisions["placements"]
    assert decisions["waits"]
    for placed in decisions["placements"]:
        attempt = Attempt.objects.get(job_id=placed["job_id"])
        assert str(attempt.cluster_id) == placed["cluster_id"]
        (pod_set,) = placed["pod_sets"]
        assert attempt.remote_objects.get().assumed_nodes == pod_set["nodes"]
        assert (attempt.flavor, attempt.domain) == (pod_set["flavor"], "/".join(pod_set["domain"]))
    for wait in decisions["waits"]:
        job = Job.objects.get(id=wait["job_id"])
        assert (job.state, job.reason_code, job.reason_message) == ("queued", wait["code"], wait["message"])
    assert Attempt.objects.count() == len(decisions["placements"])


def test_the_export_is_the_same_each_time_and_holds_no_secrets(tmp_path, capsysbinary):
    with time_machine.travel(clock.now(), tick=False):
        first = export(tmp_path).read_bytes()
        assert export(tmp_path).read_bytes() == first
        call_command("snapshot")
    assert capsysbinary.readouterr().out == first
    assert SECRET.encode() not in first
    assert b"registry.example" not in first


def test_an_empty_gateway_has_a_snapshot_too(tmp_path):
    path = tmp_path / "none.json"
    call_command("snapshot", "--depth", "0", "--out", str(path))
    assert json.loads(path.read_bytes())["snapshot"]["queue"] == []
    assert json.loads(replay_elsewhere(path, "0"))["decisions"] == {"placements": [], "waits": [], "kept": []}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "not valid JSON at line 1"),
        (b"\xff", "not UTF-8"),
        (b'{"format": "switchyard/snapshot",\n "version": 1, "snapshot": {"now": NaN}}', "NaN"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b"[" * 5000, "nested deeper"),
        (b'{"format": "other"}', "not a recorded snapshot"),
        (b'{"format": "switchyard/snapshot", "version": 1}', "snapshot: expected an object"),
    ],
)
def test_a_file_that_is_no_snapshot_is_refused_and_nothing_is_written(tmp_path, content, told):
    path, out = tmp_path / "bad.json", tmp_path / "out.json"
    path.write_bytes(content)
    with pytest.raises(CommandError, match=told) as caught:
        call_command("replay", "--snapshot", str(path), "--out", str(out))
    assert caught.value.returncode == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["bad.json"]


def test_a_place_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    with pytest.raises(CommandError, match="No such file"):
        call_command("snapshot", "--out", str(tmp_path / "nowhere" / "x.json"))
    (tmp_path / "taken").mkdir()
    with pytest.raises(CommandError, match="taken"):
        call_command("snapshot", "--out", str(tmp_path / "taken"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["taken"]
    with pytest.raises(CommandError, match="negative") as caught:
        call_command("snapshot", "--depth", "-1")
    assert caught.value.returncode == 2


def test_an_unpriced_fleet_and_a_priced_one_keep_their_difference(tmp_path):
    document = json.loads(export(tmp_path).read_bytes())["snapshot"]
    prices = {flavor["unit_price"] for cluster in document["clusters"] for flavor in cluster["flavors"].values()}
    assert prices == {None}
    assert Decimal(document["limits"][0]["cap"]) == 20_000

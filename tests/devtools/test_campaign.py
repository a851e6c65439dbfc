"""The parts of `make campaign`: its schedule is a seed's, and its judges find one of each kind of what may not be."""

import json
import random
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import benchmarks.campaign.__main__ as command
from benchmarks.campaign.conductor import WAYS, Happened
from benchmarks.campaign.judging import Outcome, WrongClocks, accelerating, survival
from benchmarks.campaign.load import drawn, from_trace, jobs
from benchmarks.campaign.sampling import p99_between
from benchmarks.campaign.schedule import FAULTS, Planned, breaks, plan
from benchmarks.campaign.slopes import Bound, Sample
from benchmarks.campaign.slopes import judge as judge_slopes
from devtools.oracle import Verdict, judge, judge_usage, read_witness

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
JOB, OBJECT, POD = "a-job", "an-object", "a-pod"
BOUNDS = {"memory": Bound("MiB", 24, 8)}


@pytest.mark.parametrize("seed", range(20))
def test_a_schedule_of_one_round_has_every_fault_and_breaks_one_thing_at_a_time(seed: int):
    schedule = plan(seed, 300, 8)
    assert {planned.fault for planned in schedule} == set(FAULTS)
    assert [planned.at for planned in schedule] == sorted(planned.at for planned in schedule)
    for one, other in combinations(schedule, 2):
        if breaks(one) == breaks(other) != "":
            assert one.until < other.at, (one, other)


def test_a_schedule_is_decided_by_its_seed():
    assert plan(3, 900, 8) == plan(3, 900, 8) != plan(4, 900, 8)
    assert "F5" not in {planned.fault for planned in plan(3, 900, 8, ["F5"])}


def test_a_campaign_without_time_for_every_fault_is_refused():
    with pytest.raises(ValueError, match="there is no time for"):
        plan(1, 60, 8)


def test_every_way_of_every_fault_is_known_and_comes_in_a_long_schedule():
    names = {way.name for ways in FAULTS.values() for way in ways}
    assert names == WAYS.keys()
    assert {planned.way for planned in plan(1, 7200, 8)} == names


def test_jobs_are_decided_by_the_seed_and_lied_about_while_clusters_lie():
    schedule = [Planned(20, "F2", "a cluster lies about what becomes of requests", "release", 20)]
    wanted = jobs(drawn(5, 200), 5, 100, schedule)
    assert wanted == jobs(drawn(5, 200), 5, 100, schedule)
    assert len({one.tag for one in wanted}) == 200
    assert (wanted[0].at, wanted[-1].at) == (0, pytest.approx(100))
    lied = [one for one in wanted if one.lie is not None]
    assert lied
    assert all(20 <= one.at <= 40 and one.lie.step == "release" for one in lied)
    assert {one.cancel_after is not None for one in wanted} == {True, False}


def test_a_trace_gives_arrivals_durations_and_sizes_and_begins_again_at_its_end(tmp_path: Path):
    trace = tmp_path / "trace.csv"
    trace.write_text("job,submitted_at,seconds,pods,gpus\na,0,60,1,1\nb,10,600,2,8\nc,20,,1,1\nd,30,6,1,0\n")
    shapes = from_trace(trace, 5)
    assert [(shape.at, shape.gpus) for shape in shapes] == [(0, 1), (10, 16), (30, 0), (40, 1), (50, 16)]
    wanted = jobs(shapes, 1, 50, [])
    assert [one.spec["pod_sets"][0]["count"] for one in wanted] == [1, 4, 1, 1, 4]
    assert [one.at for one in wanted] == [0, 10, 30, 40, 50]


def log_of(tmp_path: Path, change: Callable[[list[dict[str, Any]]], object]) -> Path:
    """The audit log of a job that was released and ran for ten seconds, after `change`."""
    labels = {"switchyard.dev/job": JOB, "switchyard.dev/attempt": "an-attempt"}
    job = {
        "kind": "Job",
        "metadata": {"uid": OBJECT, "name": "job", "labels": labels},
        "spec": {"suspend": False},
    }
    owner = [{"kind": "Job", "uid": OBJECT}]
    pod = {
        "kind": "Pod",
        "metadata": {
            "uid": POD,
            "labels": labels | {"batch.kubernetes.io/job-completion-index": "0"},
            "ownerReferences": owner,
        },
        "spec": {"nodeName": "n", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        "status": {
            "phase": "Succeeded",
            "startTime": at(0),
            "containerStatuses": [{"state": {"terminated": {"finishedAt": at(10)}}}],
        },
    }
    objects: list[dict[str, Any]] = [job, pod]
    change(objects)
    log = tmp_path / "audit.log"
    log.write_text(
        "".join(json.dumps({"responseStatus": {"code": 200}, "responseObject": one}) + "\n" for one in objects)
    )
    return log


def at(seconds: int) -> str:
    return f"{NOON + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def run_again(objects: list[dict[str, Any]]) -> None:
    job, pod = (json.loads(json.dumps(one)) for one in objects)
    job["metadata"]["uid"] = pod["metadata"]["ownerReferences"][0]["uid"] = "another-object"
    pod["metadata"]["uid"] = "another-pod"
    pod["status"]["startTime"] = at(5)
    objects += [job, pod]


def run_longer(objects: list[dict[str, Any]]) -> None:
    objects[1]["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = at(11)


def judged(tmp_path: Path, cluster: str, change: Callable[[list[dict[str, Any]]], object]) -> Verdict:
    witness = read_witness({cluster: log_of(tmp_path, change)})
    attempts = [{"cluster": "east", "started_at": "then", "objects": [{"uid": OBJECT}]}]
    told = {JOB: {"id": JOB, "name": "job", "state": "succeeded", "attempts": attempts, "spec": {}}}
    verdict = judge([JOB], told, witness)
    judge_usage(verdict, {JOB: 10_000}, witness)
    return verdict


@pytest.mark.parametrize(
    ("cluster", "change", "found"),
    [
        ("east", lambda objects: None, set()),
        ("east", lambda objects: objects.pop(), {"lost"}),
        ("east", run_again, {"ran_twice", "misplaced", "misbilled"}),
        ("west", lambda objects: None, {"misplaced"}),
        ("east", run_longer, {"misbilled"}),
    ],
    ids=["as it was", "nothing ran", "it ran twice", "it ran elsewhere", "it ran longer"],
)
def test_a_doctored_log_is_found_out(tmp_path: Path, cluster: str, change: Callable, found: set[str]):
    verdict = judged(tmp_path, cluster, change)
    assert {kind for kind in ("lost", "ran_twice", "misplaced", "misbilled") if getattr(verdict, kind)} == found


def happened(way: str, target: str, *, fault: str = "F8", began: float = 0, healed: float = 10) -> Happened:
    planned = Planned(20, fault, way, target, 10)
    return Happened(planned, NOON.timestamp() + began, NOON.timestamp() + healed, had_effect=True, probe="probe")


@pytest.mark.parametrize(
    ("cluster", "began", "billed", "is_allowed"),
    [("east", 0, 69_000, True), ("east", 0, 71_000, False), ("west", 0, 12_000, False), ("east", 600, 12_000, False)],
    ids=["within a minute", "beyond a minute", "another cluster's clock", "at another time"],
)
def test_beside_a_wrong_clock_a_bill_may_be_wrong_by_a_minute(
    tmp_path: Path, cluster: str, began: float, billed: int, is_allowed: bool
):
    clocks = WrongClocks([happened("a cluster's clock is wrong", f"{cluster}+7200", began=began, healed=began + 30)])
    witness = read_witness({"east": log_of(tmp_path, lambda objects: None)})
    verdict = Verdict()
    judge_usage(verdict, {JOB: billed}, witness, slack_ms=clocks.slack_ms)
    assert (verdict.is_clean, bool(verdict.estimated)) == (is_allowed, is_allowed)


@pytest.mark.parametrize(
    ("broken", "is_survived"),
    [({}, True), ({"had_effect": False}, False), ({"probe": "another"}, False), ({"failure": "OSError"}, False)],
    ids=["as it was", "without effect", "the job after it did not end rightly", "it could not be made"],
)
def test_a_fault_is_survived_if_it_had_an_effect_and_the_job_after_it_ended_rightly(
    broken: dict[str, Any], is_survived: bool
):
    one = happened("an API server is killed", "east", fault="F10")
    for name, value in broken.items():
        setattr(one, name, value)
    survived, sentences = survival([one], {"probe"})
    assert (survived, bool(sentences)) == ({"F10": is_survived}, not is_survived)


def series(value: Callable[[float], float], seconds: int = 1200, run: str = "1") -> list[Sample]:
    return [Sample("memory of worker", run, second, value(second)) for second in range(0, seconds, 10)]


def grows(samples: list[Sample]) -> bool:
    return any(slope.grows for slope in judge_slopes(samples, BOUNDS, 120))


def test_a_leak_is_found_in_noise_and_over_restarts():
    noise = random.Random(1)
    assert grows(series(lambda second: 100 + second / 60 + noise.gauss(0, 3)))
    restarted = [series(lambda second: 100 + second / 30, 600, run) for run in "123"]
    assert grows([sample for each in restarted for sample in each])


@pytest.mark.parametrize(
    "value",
    [
        lambda second, noise: 100 + noise.gauss(0, 10),
        lambda second, noise: 100 + min(second, 110),
        lambda second, noise: 100 + 50 * (second == 600),
        lambda second, noise: 100 + 6 * (second > 600),
        lambda second, noise: 100 + second * 20 / 3600,
    ],
    ids=["noise", "warming up", "one peak", "one small step", "less than the bound"],
)
def test_what_does_not_grow_is_no_finding(value: Callable[[float, random.Random], float]):
    noise = random.Random(2)
    assert not grows(series(lambda second: value(second, noise)))


def test_too_few_samples_are_not_judged():
    assert judge_slopes(series(lambda second: second, 250), BOUNDS, 120) == []


def test_a_table_that_takes_more_and_more_for_a_job_is_found():
    straight = [(float(n), 8192.0 * n) for n in range(60)]
    bent = [(float(n), 400.0 * n * n) for n in range(60)]
    assert accelerating({"straight": straight}) == []
    assert len(accelerating({"straight": straight, "bent": bent})) == 1


def test_the_p99_of_cycles_is_that_of_the_time_between_two_readings():
    inf = float("inf")
    before = {0.1: 100.0, 1.0: 100.0, inf: 100.0}
    assert p99_between(before, {0.1: 199.0, 1.0: 200.0, inf: 200.0}) == 0.1
    assert p99_between(before, {0.1: 198.0, 1.0: 200.0, inf: 200.0}) == 1.0
    assert p99_between(before, before) is None
    assert p99_between(before, {0.1: 5.0, 1.0: 5.0, inf: 5.0}) is None


def test_every_kind_of_finding_is_told_and_counted():
    one = judge_slopes(series(lambda second: second), BOUNDS, 120)
    verdict = Verdict(["l"], ["r"], ["p"], ["b"], ["e"], ["d"])
    outcome = Outcome(9, verdict, ["f"], ["k"], ["o"], one, ["a"], {"F1": False, "F2": True}, ["s"])
    assert len(outcome.findings) == 10
    figures = outcome.figures
    assert (figures["lost"], figures["ran_twice"], figures["misbilled"], figures["growing"]) == (1, 1, 1, 2)
    assert figures["faults_survived"] == "1/2"


def test_the_command_prints_the_figures_that_the_page_names_as_json(monkeypatch, capsys):
    slopes = judge_slopes(series(lambda _second: 1), BOUNDS, 120)
    clean = Outcome(9, Verdict(), [], [], [], slopes, [], {"F1": True}, [])
    wished = []
    monkeypatch.setattr(command, "run", lambda _root, wish: wished.append(wish) or clean)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["campaign", "--minutes", "15", "--seed", "3"])
    assert command.main() == 0
    assert (wished[0].seconds, wished[0].seed) == (900, 3)
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    named = {"campaign_minutes": 15, "lost": 0, "ran_twice": 0, "misbilled": 0}
    assert named.items() <= figures.items()

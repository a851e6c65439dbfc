"""Steps of simulated runs are steps of the protocol model, and doctored ones are not. What the model judges needs Rust."""

import json
from collections import defaultdict
from copy import deepcopy
from typing import Any

import pytest

from devtools.model import accept

from .conftest import simulate

SEEDS = 12
DOCTORED = []


def doctored(change):
    """Adds a change of a job's steps that the model must refuse: it gives the changed steps, or None."""
    DOCTORED.append(change)
    return change


def jobs_in(paths):
    """The steps of each job."""
    for path in paths:
        jobs = defaultdict(list)
        for line in path.read_text().splitlines():
            step = json.loads(line)
            jobs[step["job"]].append(step)
        yield from jobs.values()


def written(steps, folder):
    path = folder / "steps.jsonl"
    path.write_text("\n".join(map(json.dumps, steps)))
    return path


def of_attempts(step):
    """The changes of attempts by number."""
    return step.get("set", {}).get("attempts", {})


def first(steps, is_it, after=-1):
    """The index of the first such step; None if there is none."""
    return next((at for at, step in enumerate(steps) if at > after and is_it(step)), None)


def becomes(state, number="0"):
    return lambda step: of_attempts(step).get(number, {}).get("state") == state


def shows(phase, number="0"):
    return lambda step: step.get("set", {}).get("objects", {}).get(number, {}).get("here", {}).get("phase") == phase


def runs(uids, number="0"):
    return lambda step: step.get("set", {}).get("objects", {}).get(number, {}).get("runs") == uids


def stops(reason, number="0"):
    return lambda step: of_attempts(step).get(number, {}).get("stop") == reason


def is_settled(step):
    return of_attempts(step).get("0", {}).get("settled") is True


def change(parts, kind="database", **more):
    return {"at": 0, "kind": kind, "what": "doctored", "set": parts, **more}


def inserted(steps, at, *new):
    return [*steps[:at], *({"job": steps[0]["job"], **one} for one in new), *steps[at:]]


def moved(steps, of, to):
    """The step `of` comes before the step `to`."""
    left = [*steps[:of], *steps[of + 1 :]]
    return [*left[:to], steps[of], *left[to:]]


@doctored
def a_release_before_starting_is_committed(steps):
    committed, released = first(steps, becomes("starting")), first(steps, shows("active"))
    return None if committed is None or released is None else moved(steps, released, committed)


@doctored
def a_release_that_nothing_asked_for(steps):
    committed, created = first(steps, becomes("starting")), first(steps, shows("suspended"))
    if committed is None or created is None or created > committed:
        return None
    return inserted(steps, created + 1, change({"objects": {"0": {"here": {"phase": "active", "uid": 1}}}}, "cluster"))


@doctored
def two_attempts_of_which_the_first_was_not_removed(steps):
    released, returned = first(steps, shows("active")), first(steps, becomes("preempted"))
    if released is None or returned is None or first(steps, shows("active", "1")) is None:
        return None
    is_of_the_first = lambda step: step["kind"] == "cluster" and "0" in step["set"]["objects"]  # noqa: E731
    return [step for at, step in enumerate(steps) if at <= released or not is_of_the_first(step)]


@doctored
def a_release_after_the_object_is_gone(steps):
    released = first(steps, shows("active"))
    gone = None if released is None else first(steps, shows("absent"), released)
    if gone is None:
        return None
    return inserted(steps, gone + 1, change({"objects": {"0": {"here": {"phase": "active", "uid": 1}}}}, "cluster"))


@doctored
def an_adoption_with_another_uid(steps):
    created = first(steps, becomes("created"))
    created = first(steps, becomes("starting")) if created is None else created
    if created is None or not of_attempts(steps[created])["0"].get("uid"):
        return None
    steps = deepcopy(steps)
    of_attempts(steps[created])["0"]["uid"] = 2
    return steps


@doctored
def a_settlement_before_the_pod_is_over(steps):
    begun, settled = first(steps, runs([1])), first(steps, is_settled)
    over = None if begun is None else first(steps, runs([]), begun)
    seen = first(steps, becomes("succeeded"))
    return None if None in (begun, over, settled, seen) or settled < over else moved(steps, settled, over)


@doctored
def a_job_that_waits_again_while_its_attempt_is_unknown(steps):
    for number in ("0", "1", "2"):
        unknown = first(steps, becomes("unknown", number))
        if unknown is not None:
            again = change({"job": "queued", "attempts": {number: {"state": "preempted"}}})
            return inserted(steps, unknown + 1, again)
    return None


@doctored
def a_commitment_by_a_worker_whose_claim_was_taken(steps):
    committed = first(steps, becomes("starting"))
    if committed is None or "visit" not in steps[committed]:
        return None
    return inserted(steps, committed, change({}, "claim", attempt=0, visit=10**6))


@doctored
def a_start_after_a_cancel(steps):
    committed = first(steps, becomes("starting"))
    cancel = change({"job": "cancelling", "attempts": {"0": {"stop": "cancel"}}})
    return None if committed is None or first(steps, stops("cancel")) else inserted(steps, committed, cancel)


@doctored
def a_cancelled_job_that_succeeds(steps):
    ended = first(steps, lambda step: step.get("set", {}).get("job") == "succeeded")
    cancel = change({"job": "cancelling", "attempts": {"0": {"stop": "cancel"}}})
    return None if ended is None or "0" not in of_attempts(steps[ended]) else inserted(steps, ended, cancel)


@doctored
def a_second_live_attempt(steps):
    begun = first(steps, becomes("running"))
    new = {"state": "reserved", "stop": "none", "uid": 0, "settled": False, "cluster": 2}
    if begun is None or first(steps, becomes("reserved", "1")) is not None:
        return None
    return inserted(steps, begun + 1, change({"attempts": {"1": new}}))


@doctored
def an_ended_attempt_that_runs_again(steps):
    ended = first(steps, becomes("succeeded"))
    again = change({"job": "running", "attempts": {"0": {"state": "running"}}})
    return None if ended is None else inserted(steps, ended + 1, again)


@doctored
def a_placement_while_dispatch_is_closed(steps):
    placed = first(steps, becomes("reserved"))
    return None if placed is None else inserted(steps, placed, change({"standstill": True}))


@doctored
def an_end_without_evidence(steps):
    ended = first(steps, becomes("succeeded"))
    over = first(steps, runs([]))
    return None if None in (ended, over) or ended < over else moved(steps, ended, over)


@pytest.fixture(scope="module")
def histories(tmp_path_factory):
    folder = tmp_path_factory.mktemp("steps")
    simulate("--from", "1", "--seeds", str(SEEDS), "--history", str(folder))
    return sorted(folder.glob("steps-*.jsonl"))


@pytest.mark.long
def test_the_steps_of_simulated_runs_are_steps_of_the_model(histories):
    verdict = accept(*histories)
    assert verdict.refusals == ""
    assert verdict.figures["runs"] == SEEDS
    assert verdict.figures["steps"] > 50 * SEEDS


@pytest.mark.long
@pytest.mark.parametrize("change", DOCTORED, ids=lambda change: change.__name__)
def test_doctored_steps_are_refused(histories, tmp_path, change):
    tried = [(steps, changed) for steps in jobs_in(histories) if (changed := change(steps)) is not None]
    sound = (pair for pair in tried if accept(written(pair[0], tmp_path)).figures["refused"] == 0)
    _, changed = next(sound)
    assert accept(written(changed, tmp_path)).figures["refused"] == 1


def test_steps_are_written_of_each_run(beside):
    """Without the model: each job begins to wait, and most jobs never leave the model."""
    paths = [path.with_name(path.name.replace("told", "steps")) for path in beside.histories]
    jobs = list(jobs_in(paths))
    assert len(jobs) > len(paths)
    assert all(steps[0]["set"]["job"] == "queued" or steps[0]["kind"] == "leaves" for steps in jobs)
    assert sum(steps[-1]["kind"] == "leaves" for steps in jobs) < len(jobs) / 2
    assert any(first(steps, becomes("starting")) is not None and first(steps, shows("active")) for steps in jobs)


JOB: dict[str, Any] = {"id": "job", "name": "train", "state": "queued", "spec": {}}
PLACED: dict[str, Any] = {
    "id": "attempt", "job_id": "job", "cluster_id": "east", "state": "reserved", "claim_token": 0, "stop_reason": "",
    "stop_requested_at": None, "settled_at": None, "released_at": None,
}  # fmt: skip
OBJECT: dict[str, Any] = {"attempt_id": "attempt", "position": 0, "name": "swy", "uid": "", "stretches": []}
TABLES = {"job": "federation_job", "attempt": "federation_attempt", "object": "federation_remoteobject"}


def steps_after(*transactions, noted=()):
    """The steps of a run with these transactions, each of which gives rows by their kind."""
    from devtools.simulation.judges.protocol_steps import Change, Run, steps_of  # noqa: PLC0415
    from devtools.simulation.judges.steps import Noted  # noqa: PLC0415

    rows = [(str(at), TABLES[kind], row) for at, each in enumerate(transactions) for kind, row in each.items()]
    changes = [Change(number, number, at, "worker", what, found) for number, (at, what, found) in enumerate(rows, 1)]
    return list(steps_of(Run(0, {"east": 1}, changes, [Noted(at, at, kind, found=found) for at, kind, found in noted])))


def test_an_attempt_that_was_settled_in_commits_that_were_lost_is_not_settled_after_the_restore():
    placed = {"job": JOB | {"state": "dispatching"}, "attempt": PLACED, "object": OBJECT}
    ended = {"attempt": PLACED | {"state": "abandoned", "settled_at": "now"}, "job": JOB}
    known = {"rows": [{"what": TABLES[kind], **row} for kind, row in placed.items()]}
    noted = [(4, "backup", {}), (6, "restore", known)]
    *_, settled, last = steps_after({"job": JOB}, placed, ended, noted=noted)
    assert of_attempts(settled)["0"]["settled"] is True
    assert last["kind"] == "restore"
    assert of_attempts(last)["0"] == {"state": "reserved", "settled": False}


@pytest.mark.parametrize(
    ("stretches", "released_at", "leaves"), [(["a"], "now", True), (["a"], None, False), ([], "now", False)]
)
def test_a_job_leaves_the_model_when_the_gates_of_its_ordered_pods_may_not_be_opened(stretches, released_at, leaves):
    placed = {"attempt": PLACED, "object": OBJECT | {"stretches": stretches}}
    released = PLACED | {"state": "starting", "released_at": released_at}
    refused = released | {"stop_requested_at": "now", "stop_reason": "refused_by_cluster"}
    *_, last = steps_after({"job": JOB}, placed, {"attempt": released}, {"attempt": refused})
    assert (last["kind"] == "leaves") == leaves

"""What clients were told in simulated runs is linearizable, as Porcupine judges it; doctored histories of each kind are not."""

import json

import pytest

from devtools.porcupine.checking import check


@pytest.fixture(scope="module")
def histories(beside):
    return beside.histories


def operations(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def doctored(histories, folder, change):
    """The first history that `change` makes impossible: it gives the changed operations, or None."""
    for path in histories:
        moves, *lines = operations(path)
        changed = change(lines)
        if changed is not None:
            told = folder / "doctored.jsonl"
            told.write_text("\n".join(map(json.dumps, [moves, *changed])))
            return told
    raise AssertionError("no history has what is to be changed")


def a_second_job_for_one_key(lines):
    for line in lines:
        if line["op"] == "submit" and line.get("answer", {}).get("job"):
            later = {name: line[name] + 10**12 for name in ("called", "returned")}
            return [*lines, line | later | {"answer": {"job": "another", "replayed": True}}]
    return None


def a_state_after_the_last_one(lines):
    for line in reversed(lines):
        if line["op"] == "read" and line["answer"]["state"] == "succeeded":
            later = {name: line[name] + 10**12 for name in ("called", "returned")}
            return [*lines, line | later | {"answer": {"state": "running"}}]
    return None


def test_what_clients_were_told_is_linearizable(beside, histories):
    assert len(histories) == beside.figures["seeds"]
    verdict = check(*histories)
    assert verdict.refused == ()
    assert verdict.operations > len(histories) * 10
    assert {line["op"] for path in histories for line in operations(path)[1:]} == {"submit", "cancel", "read"}


@pytest.mark.parametrize("change", [a_second_job_for_one_key, a_state_after_the_last_one])
def test_a_doctored_history_is_refused(histories, tmp_path, change):
    assert check(doctored(histories, tmp_path, change)).refused != ()

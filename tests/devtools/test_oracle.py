"""The judge itself: which second run of a pod is another attempt after an interruption, and which is a promise broken."""

from datetime import UTC, datetime, timedelta

import pytest

from devtools.oracle import SeenObject, SeenPod, Verdict, Witness, judge, judge_usage

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
JOB = "a-job"


def witness_of(*pods: SeenPod) -> Witness:
    found = Witness(pods={pod.uid: pod for pod in pods})
    for pod in pods:
        uid = pod.object_uid
        found.objects[uid] = SeenObject(pod.cluster, uid, uid, JOB, f"attempt of {uid}", was_released=True)
    return found


def pod(attempt: str, start: int, end: int | None, *, index: str = "0", was_disrupted: bool = False) -> SeenPod:
    """A pod that ran from so many seconds after noon to so many."""
    until = None if end is None else NOON + timedelta(seconds=end)
    return SeenPod("east", f"{attempt}-{index}-{start}", JOB, attempt, index, 1, "n", True, was_disrupted,
                   NOON + timedelta(seconds=start), until)  # fmt: skip


def runs_twice(
    *pods: SeenPod, retries: dict[str, int] | None = None, unknown: str = "", end_reason: str = "completed"
) -> bool:
    """`end_reason`: of all attempts, as the gateway shows them."""
    attempts = [
        {
            "id": f"attempt of {uid}",
            "cluster": "east",
            "started_at": "then",
            "end_reason": end_reason,
            "objects": [{"uid": uid}],
        }
        for uid in dict.fromkeys(pod.object_uid for pod in pods if pod.object_uid != unknown)
    ]
    told = {"id": JOB, "name": "job", "state": "succeeded", "attempts": attempts, "spec": {"retries": retries or {}}}
    return bool(judge([JOB], {JOB: told}, witness_of(*pods)).ran_twice)


def test_another_attempt_after_an_interruption_is_no_second_run():
    assert not runs_twice(pod("first", 0, 10, was_disrupted=True), pod("second", 10, 20))


@pytest.mark.parametrize(
    "end_reason",
    [
        "suspended",
        "migrated",
        "preempted_for_job",
        "maintenance_began",
        "limit_lowered",
        "started_in_part",
        "blocked_in_part",
    ],
)
def test_another_attempt_after_one_that_the_gateway_stopped_is_no_second_run(end_reason: str):
    assert not runs_twice(pod("first", 0, 10), pod("second", 10, 20), end_reason=end_reason)
    assert runs_twice(pod("first", 0, 10), pod("second", 9, 20), end_reason=end_reason)
    assert runs_twice(pod("first", 0, None), pod("second", 30, 40), end_reason=end_reason)
    assert runs_twice(pod("first", 0, 10), pod("first", 10, 20), end_reason=end_reason)


def test_the_peers_of_an_interrupted_pod_may_run_again_too():
    first = [pod("first", 0, 10, was_disrupted=True), pod("first", 0, 11, index="1")]
    assert not runs_twice(*first, pod("second", 11, 20), pod("second", 11, 20, index="1"))


@pytest.mark.parametrize(
    "pods",
    [
        [pod("first", 0, 10), pod("second", 10, 20)],
        [pod("first", 0, 10, was_disrupted=True), pod("second", 9, 20)],
        [pod("first", 0, None, was_disrupted=True), pod("second", 30, 40)],
        [pod("first", 0, 10, was_disrupted=True), pod("first", 10, 20)],
        [pod("first", 0, 10, was_disrupted=True), pod("first", 0, 15, index="1"), pod("second", 12, 20)],
        [pod("first", 0, 5, was_disrupted=True), pod("second", 6, 10), pod("third", 11, 20)],
    ],
    ids=["uninterrupted", "overlapping", "never ended", "inside one attempt", "beside a peer", "the second was not"],
)
def test_every_other_second_run_is_one(pods: list[SeenPod]):
    assert runs_twice(*pods)


def test_a_run_of_which_the_gateway_knows_nothing_counts_too():
    assert runs_twice(pod("forgotten", 0, 10), pod("second", 10, 20), unknown="forgotten")


def test_two_pods_that_one_job_had_at_the_same_time_are_the_clusters_own_doing_and_one_is_billed():
    pods = [pod("first", 0, 10), pod("first", 4, 7), pod("first", 0, 10, index="1")]
    for one in pods:
        one.first_finished_at = one.finished_at
    assert not runs_twice(*pods)
    verdicts = {billed: Verdict() for billed in (13_000, 20_000, 12_999, 20_001, 23_000)}
    for billed, verdict in verdicts.items():
        judge_usage(verdict, {JOB: billed}, witness_of(*pods))
    assert [billed for billed, verdict in verdicts.items() if verdict.is_clean] == [13_000, 20_000]


def test_two_jobs_that_ran_at_the_same_time_are_a_second_run():
    assert runs_twice(pod("first", 0, 10), pod("second", 4, 7))


def test_a_failed_program_may_run_again_where_its_spec_says_so():
    pods = [pod("first", 0, 10), pod("second", 10, 20)]
    assert runs_twice(*pods)
    assert not runs_twice(*pods, retries={"program": 1})


@pytest.mark.parametrize(("billed", "is_right"), [(10_000, True), (9_999, False), (10_001, False), (0, False)])
def test_a_bill_is_right_to_the_millisecond_or_wrong(billed: int, is_right: bool):
    one = pod("first", 0, 10)
    one.first_finished_at = one.finished_at
    verdict = Verdict()
    judge_usage(verdict, {JOB: billed}, witness_of(one))
    assert verdict.is_clean == is_right


def test_of_two_ends_that_a_cluster_tells_of_one_pod_either_may_be_billed():
    one = pod("first", 0, 14)
    one.first_finished_at = NOON + timedelta(seconds=10)
    verdicts = {billed: Verdict() for billed in (10_000, 14_000, 15_000)}
    for billed, verdict in verdicts.items():
        judge_usage(verdict, {JOB: billed}, witness_of(one))
    assert [billed for billed, verdict in verdicts.items() if verdict.is_clean] == [10_000, 14_000]


@pytest.mark.parametrize(
    ("billed", "is_called_estimate", "is_clean"),
    [(25_000, True, True), (25_000, False, False), (9_999, True, False), (200_000, True, False)],
)
def test_an_estimate_may_be_too_high_within_bounds_where_it_is_called_one(
    billed: int, is_called_estimate: bool, is_clean: bool
):
    one = pod("first", 0, 10)
    one.first_finished_at = one.finished_at
    verdict = Verdict()
    judge_usage(verdict, {JOB: billed}, witness_of(one), lambda _: is_called_estimate)
    assert verdict.is_clean == is_clean
    assert bool(verdict.estimated) == is_clean


@pytest.mark.parametrize(
    ("removed", "billed", "misplaced", "misbilled", "unseen"),
    [({JOB}, 0, 0, 0, 2), ({JOB}, 700, 0, 1, 1), ({"another"}, 0, 1, 1, 0), ((), 0, 1, 1, 0)],
    ids=["unseen", "seen, and billed wrongly", "of another job", "of none"],
)
def test_only_what_others_removed_unseen_is_no_error(removed, billed, misplaced, misbilled, unseen):
    told = {"id": JOB, "name": "job", "state": "failed", "attempts": [], "spec": {"retries": {}}}
    one = pod("first", 0, 10)
    one.first_finished_at = one.finished_at
    witness = witness_of(one)
    verdict = judge([JOB], {JOB: told}, witness, removed)
    judge_usage(verdict, {JOB: billed}, witness)
    assert [len(each) for each in (verdict.misplaced, verdict.misbilled, verdict.unseen)] == [
        misplaced,
        misbilled,
        unseen,
    ]

"""Jobs get GPUs that are known to be what they need."""

from dataclasses import replace

import pytest

from placement.answers.recording import plain, read
from placement.cycle.cycle import decide
from placement.ranking.feasibility import never_fits
from placement.values.gpu_needs import GpuNeeds
from placement.values.model import Snapshot

from .fleets import NOW, cluster, flavor, job, node, pods, snapshot
from .other_resources_worlds import NEW, OLD, RDMA, H, asking, need_on, outcome, why, with_others


def test_kept_nodes_count_only_if_their_gpus_are_good_enough():
    made = cluster(1, [with_others(node("n1", H), OLD), with_others(node("n2", H), NEW), node("n3", H)], [H])
    for count, gpus in ((1, 1), (2, 1)):
        state, need = need_on(made, asking(needs=GpuNeeds(driver=(550,)), count=count, gpus=gpus))
        state.hide([0, 2])
        assert not state.had_hidden(need, reserved=False) or count == 2
        state, need = need_on(made, asking(needs=GpuNeeds(driver=(550,)), count=count, gpus=8))
        state.hide([2, 0, 1])
        assert state.had_hidden(need, reserved=False) is (count == 1)


@pytest.mark.parametrize("others", [[], [replace(pods(gpus=0), name="driver")]])
def test_each_cluster_is_searched_for_nodes_of_its_own_that_are_good_enough(others):
    full = cluster(1, [with_others(node("a", H), OLD), with_others(node("b", H, free=0), NEW)], [H])
    free = cluster(2, [with_others(node("a", H), NEW), with_others(node("b", H), OLD)], [H])
    asked = job(asking(needs=GpuNeeds(driver=(550,)), gpus=1), *others)
    [placed] = outcome(asked, clusters=[full, free]).placements
    assert (placed.cluster, set(placed.pod_sets[0].nodes)) == ("c2", {"a"})


def test_a_waiting_gang_has_only_nodes_kept_that_are_good_enough():
    nodes = [with_others(node(f"n{n}", H, free=8 if n < 2 else 4), OLD if n < 2 else NEW) for n in range(4)]
    gang = job(asking(needs=GpuNeeds(driver=(550,)), gpus=8, count=2), submitted_at=NOW.replace(hour=1))
    later = job(asking(gpus=1), strategy="pack")
    decisions = outcome(gang, later, clusters=[cluster(1, nodes, [H])])
    [wait] = decisions.waits
    assert "are kept for it" in wait.message
    assert set(decisions.placements[0].pod_sets[0].nodes) <= {"n0", "n1"}


def test_gpus_must_be_known_to_be_what_the_job_needs():
    nodes = [node("n1", H), with_others(node("n2", H), OLD), with_others(node("n3", H), NEW)]
    made = cluster(1, nodes, [H])
    for needs in (
        GpuNeeds(driver=(550,)), GpuNeeds(cuda=(12, 4)), GpuNeeds(compute=(8, 9)), GpuNeeds(memory_mib=49152),
        GpuNeeds(architectures=("hopper",)),
    ):  # fmt: skip
        placed = outcome(job(asking(needs=needs, gpus=8)), clusters=[made]).placements[0]
        assert placed.pod_sets[0].nodes == {"n3": 1}
        decisions = outcome(job(asking(needs=needs, gpus=8, count=2)), clusters=[made])
        assert not decisions.placements
    placed = outcome(job(asking(gpus=8, count=3)), clusters=[made]).placements[0]
    assert set(placed.pod_sets[0].nodes) == {"n1", "n2", "n3"}


@pytest.mark.parametrize(
    ("needs", "code", "message"),
    [
        (GpuNeeds(driver=(560,)), "gpu_driver_too_old", "has GPU, but driver 550.54.15 is older than 560"),
        (GpuNeeds(cuda=(13,)), "gpu_cuda_too_old", "has GPU, but CUDA 12.4 is older than 13"),
        (GpuNeeds(compute=(10, 0)), "gpu_compute_too_low", "has GPU, but compute capability 9.0 is lower than 10.0"),
        (GpuNeeds(memory_mib=90 * 1024), "gpu_memory_too_small", "has GPU, but 79.6 GiB of memory is less than 90 GiB"),
        (
            GpuNeeds(architectures=("ampere",)),
            "gpu_architecture_excluded",
            "has GPU, but architecture hopper is not ampere",
        ),
    ],
)
def test_a_reason_names_the_need_that_is_not_met(needs, code, message):
    made = cluster(1, [with_others(node(f"n{n}", H), NEW) for n in range(2)], [H])
    assert why(outcome(job(asking(needs=needs)), clusters=[made])) == (code, message)
    [reason] = never_fits(job(asking(needs=needs)), [made])
    assert (reason.code, reason.is_for_good) == (code, True)


def test_a_reason_counts_the_nodes_that_differ():
    nodes = [with_others(node(f"n{n}", H), OLD) for n in range(3)] + [node("n9", H)]
    decisions = outcome(job(asking(needs=GpuNeeds(driver=(550,)))), clusters=[cluster(1, nodes, [H])])
    assert why(decisions) == (
        "gpu_driver_too_old",
        (
            "has GPU, but driver 535.54.3 is older than 550 (3 nodes), "
            "nothing reports the driver version, and the job needs at least 550 (1 node)"
        ),
    )


def test_a_reason_names_nodes_that_are_not_good_enough_beside_those_that_are_full():
    nodes = [with_others(node("n1", H, free=0), NEW), with_others(node("n2", H), OLD)]
    decisions = outcome(job(asking(needs=GpuNeeds(driver=(550,)))), clusters=[cluster(1, nodes, [H])])
    code, message = why(decisions)
    assert code == "not_enough_free"
    assert message.endswith("; nodes that cannot be used: 1 because driver 535.54.3 is older than 550")


def test_the_cores_that_a_reason_counts_are_those_beside_gpus_that_are_good_enough():
    nodes = [
        with_others(node("n1", H, free_cpu_millicores=2000), NEW),
        with_others(node("n2", H, free_cpu_millicores=7000), OLD),
        node("n3", H, free_cpu_millicores=6000),
    ]
    asked = replace(asking(needs=GpuNeeds(driver=(550,)), gpus=1), cpu_millicores=8000)
    code, message = why(outcome(job(asked), clusters=[cluster(1, nodes, [H])]))
    assert (code, message.partition(" and ")[0]) == ("not_enough_free", "needs 8 cores")
    assert "at most 2 cores and" in message


def test_needs_are_recorded_with_a_snapshot():
    asked = snapshot(
        [cluster(1, [with_others(node("n1", H), NEW, rdma=2)], [H])],
        [job(asking((RDMA, 1), needs=GpuNeeds(driver=(550, 54))))],
    )
    again = read(Snapshot, plain(asked), "snapshot")
    assert again.queue == asked.queue
    assert decide(again) == decide(asked)


def test_parts_of_gpus_that_are_not_good_enough_do_not_count_as_room():
    divisible = flavor(sharing="divisible")
    nodes = [with_others(node(f"n{n}", divisible, total=2), facts) for n, facts in enumerate((OLD, NEW, OLD))]
    asked = job(asking(needs=GpuNeeds(driver=(550,)), fraction=500, gpus=0, count=5))
    decisions = outcome(asked, clusters=[cluster(1, nodes, [divisible])])
    assert "needs 5 pods of 0.5 of a time-sliced GPU at the same time; there is room for 4;" in why(decisions)[1]

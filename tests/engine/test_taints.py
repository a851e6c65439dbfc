"""Taints: which node takes which of our pods, and what a job is told that they keep out."""

from datetime import timedelta

import pytest

from clusters.engine.taints import Standing, standing, tolerations_for
from placement.cycle.cycle import decide
from placement.ranking.feasibility import never_fits

from .fleets import H100, NOW, cluster, flavor, job, node, pods, snapshot

GPU = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
TEAM = {"key": "team", "value": "a", "effect": "NoSchedule"}
ILL = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
NO_CPU = {"": "with taint nvidia.com/gpu=present:NoSchedule"}
NOBODY = {"": "with taint team=a:NoSchedule", "H100-80GB-whole-on_demand": "with taint team=a:NoSchedule"}
CPU_ONLY = flavor("")
GPUS = flavor()


def stands(*taints, vendor="nvidia", bought="on_demand"):
    return standing(is_ready=True, is_schedulable=True, taints=taints, flavors={"f": (vendor, bought)})


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (stands(), Standing("", {})),
        (stands(GPU), Standing("", NO_CPU)),
        (stands(GPU, vendor="amd"), Standing("with taint nvidia.com/gpu=present:NoSchedule", {})),
        (stands(GPU, vendor=""), Standing("with taint nvidia.com/gpu=present:NoSchedule", {})),
        (stands(GPU, TEAM), Standing("with taint team=a:NoSchedule", {})),
        (stands(ILL), Standing("with taint node.kubernetes.io/unreachable:NoExecute", {})),
        (stands({**GPU, "effect": "NoExecute"}), Standing("with taint nvidia.com/gpu=present:NoExecute", {})),
        (stands({**TEAM, "effect": "PreferNoSchedule"}), Standing("", {})),
        (stands({"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NoSchedule"}, bought="spot"), Standing("", {})),
        (stands({}, {"key": "", "effect": "?"}), Standing("", {})),
    ],
)  # fmt: skip
def test_a_taint_closes_a_node_to_those_who_do_not_tolerate_it(found, expected):
    assert found == expected


@pytest.mark.parametrize(
    ("vendor", "bought", "keys"),
    [
        ("nvidia", "on_demand", ["nvidia.com/gpu", "sku", "accelerator"]),
        ("amd", "", ["amd.com/gpu", "sku", "accelerator"]),
        ("google", "", ["google.com/tpu"]),
        ("intel", "", ["gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi"]),
        ("", "reserved", ["switchyard.dev/capacity-type"]),
        ("", "spot", ["cloud.google.com/gke-spot", "cloud.google.com/gke-preemptible", "cloud.google.com/gke-provisioning",
                      "kubernetes.azure.com/scalesetpriority", "karpenter.sh/capacity-type",
                      "eks.amazonaws.com/capacityType", "switchyard.dev/capacity-type"]),
        ("", "", []),
    ],
)  # fmt: skip
def test_pods_tolerate_what_their_devices_and_capacity_are_known_by(vendor, bought, keys):
    expected = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]
    assert list(tolerations_for(vendor, bought)) == expected


def test_a_node_of_two_vendors_stays_open_to_the_one_that_tolerates():
    flavors = {"a": ("amd", "on_demand"), "n": ("nvidia", "on_demand")}
    found = standing(is_ready=True, is_schedulable=True, taints=[GPU], flavors=flavors)
    assert found == Standing("", NO_CPU | {"a": "with taint nvidia.com/gpu=present:NoSchedule"})
    assert standing(is_ready=False, is_schedulable=True, taints=[GPU], flavors=flavors) == Standing("not ready", {})


def fleet(*, cpu_nodes=1, repels=NO_CPU):
    plain = [node(f"cpu-{n}", CPU_ONLY, 0, cpu=4000) for n in range(cpu_nodes)]
    tainted = [node(f"gpu-{n}", GPUS, cpu=64_000, repels=repels) for n in range(2)]
    return [cluster(1, [*plain, *tainted], [CPU_ONLY, GPUS])]


def large(count=1, **more):
    return job(pods(count, 0, cpu=32_000), **more)


def test_gpu_pods_use_a_node_tainted_for_its_gpus_and_others_do_not():
    queue = [job(pods(2, 8)), job(pods(1, 0, cpu=4000))]
    first, second = decide(snapshot(fleet(), queue)).placements
    assert first.pod_sets[0].nodes == {"gpu-0": 1, "gpu-1": 1}
    assert second.pod_sets[0].nodes == {"cpu-0": 1}


@pytest.mark.parametrize("strategy", ["balanced", "cheapest", "soonest", "pack", "spread"])
@pytest.mark.parametrize("count", [1, 2])
def test_no_strategy_puts_a_cpu_pod_there(strategy, count):
    (wait,) = decide(snapshot(fleet(), [large(count, strategy=strategy)])).waits
    (reason,) = wait.per_cluster
    assert (wait.code, reason.code, reason.is_for_good) == ("waiting_for_capacity", "tainted", False)
    assert reason.message == (
        "no node accepts pods without a GPU: 2 with taint nvidia.com/gpu=present:NoSchedule (flavor H100-80GB-whole-on_demand)"
    )


def test_where_plain_nodes_are_merely_full_the_taint_is_told_as_well():
    queue = [job(pods(1, 0, cpu=4000)), job(pods(1, 0, cpu=2000))]
    (wait,) = decide(snapshot(fleet(), queue)).waits
    assert wait.per_cluster[0].code == "not_enough_free"
    assert wait.per_cluster[0].message.endswith(
        "at most 0 cores and 1023 GiB are free there (flavor cpu-whole-on_demand); elsewhere no node accepts pods without a GPU: "
        "2 with taint nvidia.com/gpu=present:NoSchedule"
    )


def test_only_the_nodes_that_are_closed_to_these_pods_are_told_as_such():
    """A GPU node tainted for its GPUs is closed to pods without one, and open to the others."""
    mixed = [node("tainted", GPUS, 8, 1, repels=NO_CPU), node("open", GPUS, 8, 1, cpu=4000)]
    told = [
        decide(snapshot([cluster(1, mixed, [GPUS])], [job(asked)])).waits[0].per_cluster[0].message
        for asked in (pods(1, 0, cpu=8000), pods(1, 4))
    ]
    closed = "nodes that cannot be used: 1 with taint nvidia.com/gpu=present:NoSchedule"
    assert [closed in message for message in told] == [True, False]


def test_a_taint_may_go_so_it_is_never_never():
    assert never_fits(large(), fleet()) is None
    assert never_fits(job(pods(gpus=8)), fleet(repels=NOBODY)) is None


def test_gpus_behind_another_taint_are_not_given_away():
    (wait,) = decide(snapshot(fleet(repels=NOBODY), [job(pods(gpus=1))])).waits
    (reason,) = wait.per_cluster
    assert (reason.code, reason.message) == ("tainted", "no node accepts pods of 1 GPU: 2 with taint team=a:NoSchedule")


def test_a_job_of_both_kinds_keeps_its_cpu_pods_off():
    both = job(pods(1, 8, name="worker"), pods(1, 0, cpu=1000, name="driver"))
    (placement,) = decide(snapshot(fleet(), [both])).placements
    assert [placed.nodes for placed in placement.pod_sets] == [{"gpu-0": 1}, {"cpu-0": 1}]
    (wait,) = decide(snapshot(fleet(cpu_nodes=0), [both])).waits
    assert wait.per_cluster[0].code == "tainted"


def test_a_gang_of_cpu_pods_that_waited_long_keeps_no_tainted_node():
    patient = large(2, submitted_at=NOW - timedelta(hours=1))
    decisions = decide(snapshot(fleet(), [patient, job(pods(gpus=8, models=[H100]))]))
    (placement,) = decisions.placements
    assert placement.pod_sets[0].flavor == GPUS.name
    assert "kept for it" not in decisions.waits[0].message


def test_a_thousand_different_taints_make_no_endless_sentence():
    nodes = [node(f"n{n}", GPUS, repels={"": f"with taint t=v{n:03d}:NoSchedule"}) for n in range(1000)]
    (wait,) = decide(snapshot([cluster(1, nodes, [GPUS])], [large()])).waits
    assert wait.message.endswith("1 with taint t=v003:NoSchedule, 996 for other reasons")

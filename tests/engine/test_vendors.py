"""Requests and vendors: nothing lands on devices that its image was not built for, nor leaves an accelerator's slice."""

from dataclasses import replace

import pytest

from clusters.engine.topology import LABELS
from federation.engine.intake.normal_form import gpu_request_of, spec_json
from federation.engine.intake.reading import Refused
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from placement.cycle.cycle import decide
from placement.fleet.siting import within_slice
from placement.ranking.feasibility import never_fits
from placement.values.model import GpuRequest, PodSetRequest, Topology
from tests.builders import make_spec

from .fleets import H100, cluster, flavor, job, node, snapshot, uniform

MI300X = replace(flavor("MI300X", price="0.10"), vendor="amd")
TPU = replace(flavor("tpu-v6e-slice", name="tpu-4x4"), vendor="google", slice_hosts=4)


def wants(count=1, pods=1, **more) -> PodSetRequest:
    return PodSetRequest("worker", pods, 1000, 1024, GpuRequest(count, **more))


def only(decisions):
    (placement,) = decisions.placements
    return placement


@pytest.mark.parametrize("strategy", ["cheapest", "balanced", "pack", "spread", "soonest"])
def test_a_request_without_vendor_and_model_is_for_nvidias(strategy):
    fleet = [uniform(1, of=MI300X), uniform(2)]
    assert only(decide(snapshot(fleet, [job(wants(), strategy=strategy)]))).cluster == "c2"
    (wait,) = decide(snapshot(fleet[:1], [job(wants(), strategy=strategy)])).waits
    (reason,) = wait.per_cluster
    assert (reason.code, reason.is_for_good) == ("no_such_model", True)
    assert reason.is_for_good
    assert reason.message == "has no GPU of nvidia; to use those of amd, name the vendor or model"


@pytest.mark.parametrize("request_", [wants(vendor="amd"), wants(models=("MI300X",)), wants(models=(H100, "MI300X"))])
def test_others_are_taken_by_vendor_or_by_model(request_):
    fleet = [uniform(1, of=MI300X), uniform(2, of=flavor(H100, price="9"))]
    assert only(decide(snapshot(fleet, [job(request_, strategy="cheapest")]))).cluster == "c1"


def test_a_model_of_another_vendor_than_named_is_nowhere():
    (reason,) = never_fits(job(wants(models=("MI300X",), vendor="nvidia")), [uniform(1, of=MI300X)])
    assert reason.code == "no_such_model"


def test_what_cannot_be_placed_is_told_and_never_taken():
    shown = replace(flavor(), unplaceable="it is for show")
    fleet = [uniform(1, of=shown)]
    (reason,) = never_fits(job(wants()), fleet)
    assert (reason.code, reason.message) == ("not_placeable", "has GPU, but it is for show")
    assert reason.is_for_good
    (wait,) = decide(snapshot(fleet, [job(wants())])).waits
    assert (wait.per_cluster[0].code, wait.per_cluster[0].is_for_good) == ("not_placeable", True)


def slices(*free):
    """Slices of four hosts each, with so many hosts free."""
    nodes = [
        node(f"s{number}-h{host}", TPU, 4, 4 if host < count else 0, clique=f"pool-{number}", domain=("z", "", ""))
        for number, count in enumerate(free)
        for host in range(4)
    ]
    return [cluster(1, nodes, [TPU])]


def test_a_gang_stays_in_one_slice_though_it_did_not_ask_to():
    gang = wants(4, pods=4, vendor="google")
    placement = only(decide(snapshot(slices(2, 4, 3), [job(gang)])))
    assert {name[:2] for name in placement.pod_sets[0].nodes} == {"s1"}
    assert (placement.pod_sets[0].level, placement.pod_sets[0].domain[-1]) == ("clique", "pool-1")
    (wait,) = decide(snapshot(slices(3, 3), [job(gang)])).waits
    assert wait.per_cluster[0].code == "topology_not_met"
    assert "needs 4 pods inside one slice; the roomiest z///pool-0 has room for 3" in wait.per_cluster[0].message
    assert never_fits(job(wants(4, pods=5, vendor="google")), slices(4, 4))[0].code == "topology_not_met"


@pytest.mark.parametrize("level", ["cluster", "zone", "block", "rack", "clique", "node"])
@pytest.mark.parametrize("mode", ["required", "preferred"])
def test_a_slice_narrows_what_a_job_asks_and_never_widens_it(level, mode):
    kept = within_slice(Topology(level, mode), 4)
    assert kept == Topology("node" if (level, mode) == ("node", "required") else "clique", "required")
    assert within_slice(Topology(level, mode), 1) == Topology(level, mode)


def test_pods_without_a_device_may_spread_over_slices():
    bare = PodSetRequest("driver", 16, 100_000, 1024)
    assert len(only(decide(snapshot(slices(4, 4, 4, 4), [job(bare)]))).pod_sets[0].nodes) == 16


def test_the_spec_keeps_the_vendor_and_refuses_others():
    stored = spec_json(read_spec(make_spec(pod={"gpu": {"count": 2, "vendor": "amd"}}), Rules()))
    assert stored["pod_sets"][0]["gpu"] == {"count": 2, "models": [], "vendor": "amd"}
    assert gpu_request_of(stored["pod_sets"][0]["gpu"]) == GpuRequest(2, vendor="amd")
    plain = spec_json(read_spec(make_spec(pod={"gpu": {"count": 2}}), Rules()))
    assert plain["pod_sets"][0]["gpu"] == {"count": 2, "models": []}
    for bad in ("AMD", "", 1, ["amd"], {"a": 1}, "nvidia\u0000", "cerebras"):
        with pytest.raises(Refused) as caught:
            read_spec(make_spec(pod={"gpu": {"count": 2, "vendor": bad}}), Rules())
        assert [(fault.field, fault.code) for fault in caught.value.faults] == [
            ("pod_sets[0].gpu.vendor", "unknown_value")
        ]


def test_tpu_pools_are_not_taken_for_nvlink_cliques():
    assert "cloud.google.com/gke-nodepool" not in LABELS["clique"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (wants(), "has no GPU of nvidia; to use those of amd, google, name the vendor or model"),
        (wants(models=("H100-80GB", "A100-80GB")), "has no H100-80GB or A100-80GB"),
        (wants(vendor="intel"), "has no intel GPU"),
        (wants(mig="1g.10gb", models=("H100-80GB",)), "has no MIG slice 1g.10gb of H100-80GB"),
    ],
)
def test_what_a_cluster_lacks_is_told_by_what_was_named(asked, message):
    mixed = cluster(1, [node("a", MI300X), node("t", TPU)], [MI300X, TPU])
    (wait,) = decide(snapshot([mixed], [job(asked)])).waits
    (reason,) = wait.per_cluster
    assert (reason.code, reason.message) == ("no_such_model", message)

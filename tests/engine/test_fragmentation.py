"""The cost of leaving GPUs idle where no usual pod can use them, in cases that can be worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.fleet.fleet import FleetIndex
from placement.ranking.fragmentation import Fragmentation, typical_of
from placement.ranking.leftovers import STEPS, usual_waste
from placement.ranking.misfits import NOT_SERVED, Misfits
from placement.values.model import TypicalPod
from tests.laws import examples

from .fleets import A100, H100, cluster, flavor, job, node, pods


def meter(clusters, *wanted):
    """Against pods of these kinds; each is (weight, pod)."""
    fleet = FleetIndex().fleet(clusters)
    return fleet, Fragmentation(fleet, [TypicalPod(pod, weight) for weight, pod in wanted])


def one_pool(of, *wanted):
    return meter([cluster(1, [node("n", of)], [of])], *wanted)[1]


def column(*values):
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize(
    ("gpus", "cpu", "expected"),
    [
        (2, 2000, 0.25 * 2),
        (2, 1500, 0.25 * 2 + 0.5),
        (2, 999, 2 + 2 - 0.999),
        (4, 4000, 0),
        (4, 3999, 0.25 * 4 + 0.001),
        (0, 0, 0),
    ],
)
def test_idle_gpus_count_for_the_kinds_that_cannot_use_them_and_beyond_what_the_cores_can_feed(gpus, cpu, expected):
    """Three kinds in four ask for one GPU and a core, one for four of each: a core per GPU."""
    found = one_pool(flavor(), (3, pods(1, 1, cpu=1000)), (1, pods(1, 4, cpu=4000)))
    assert found.stranded(0, column(gpus), None, column(cpu)).tolist() == [pytest.approx(expected)]


def test_only_the_first_part_is_weighted():
    found = one_pool(flavor(), (3, pods(1, 1, cpu=1000)), (1, pods(1, 4, cpu=4000)))
    assert found.stranded(0, column(2), None, column(1500), 3.0).tolist() == [pytest.approx(3 * 0.5 + 0.5)]


def test_pods_without_gpus_use_no_gpu_but_cores():
    found = one_pool(flavor(), (1, pods(1, 1, cpu=1000)), (1, pods(1, 0, cpu=3000)))
    assert found.stranded(0, column(2), None, column(8000)).tolist() == [0.5 * 2]
    assert found.stranded(0, column(2), None, column(4000)).tolist() == [0.5 * 2 + 1]
    assert one_pool(flavor(), (1, pods(1, 0))).stranded(0, column(2), None, column(1)).tolist() == [2 + 1]


def test_of_another_model_a_pod_uses_nothing():
    found = one_pool(flavor(A100), (1, pods(1, 1, models=(H100,))))
    assert found.stranded(0, column(2), None, column(64_000)).tolist() == [2]


def test_the_rarest_pod_in_twenty_does_not_count():
    for weights, expected in (((19, 1), 0), ((18, 1), 2 / 19)):
        found = one_pool(flavor(), (weights[1], pods(1, 4)), (weights[0], pods(1, 1)))
        assert found.stranded(0, column(2), None, column(64_000)).tolist() == [pytest.approx(expected)]


def test_leftovers_of_a_device_count_what_usually_stays_of_them():
    found = one_pool(flavor(sharing="divisible"), (1, pods(1, 1, fraction=500, cpu=0)))
    devices = np.array([[1000], [490], [500]], dtype=np.int64)
    waste = [usual_waste(((50, 1, 1),))[step] for step in (100, 49, 50)]
    assert waste == [0, 49, 0]
    unusable = 0.3 * 0.49
    assert found.stranded(0, column(1), devices, column(64_000)).tolist() == [pytest.approx(unusable + 0.49)]


def test_a_device_is_idle_in_full_where_fewer_are_left_than_a_pod_needs():
    found = one_pool(flavor(sharing="divisible"), (1, pods(1, 2, cpu=0)))
    for devices, lost in (([[1000], [1000]], 0.0), ([[1000], [999]], 1.999)):
        state = np.array(devices, dtype=np.int64)
        waste = sum(usual_waste(((STEPS, 2, 1),))[one[0] * STEPS // 1000] for one in devices) / STEPS
        assert found.stranded(0, column(1), state, column(64_000)).tolist() == [pytest.approx(0.3 * lost + waste)]


def test_scarcity_is_the_wanted_share_over_the_free_share_of_the_pools_that_could_serve():
    h100, a100, cut = flavor(), flavor(A100), flavor(A100, sharing="mig:1g.10gb")
    fleet, found = meter(
        [cluster(1, [node("h", h100, 8, 4), node("a", a100), node("m", cut, 7), node("c", flavor(""), 0)],
                 [h100, a100, cut, flavor("")])],
        (1, pods(1, 2, models=(H100,))), (2, pods(1, 1)), (9, pods(1, 1, mig="1g.10gb")), (9, pods(1, 1, fraction=100)),
        (9, pods(1, 0)),
    )  # fmt: skip
    by_pool = {
        (pool.flavor.gpu_model, pool.flavor.sharing): scarcity
        for pool, scarcity in zip(fleet.pools, found.scarcity, strict=True)
    }
    assert by_pool == {
        (H100, "whole"): pytest.approx(0.5 * 12 / 4 + 0.5 * 12 / 12),
        (A100, "whole"): pytest.approx(0.5 * 12 / 12),
        (A100, "mig:1g.10gb"): 0,
        ("", "whole"): 0,
    }


def test_what_is_wanted_but_nowhere_free_makes_nothing_scarce():
    _, found = meter([cluster(1, [node("h", flavor(), 8, 0)], [flavor()])], (1, pods(1, 1)))
    assert found.scarcity.tolist() == [0]


def test_the_kinds_of_a_queue_are_counted_by_their_pods():
    queue = [job(pods(2, 1), pods(3, 2)), job(pods(4, 1, name="other"))]
    assert [(kind.pod.gpu.count, kind.weight) for kind in typical_of(queue)] == [(1, 6), (2, 3)]


def test_the_usual_waste_is_the_same_on_every_host():
    """Of pods of which three ask for 0.47 of a device, one for 0.19 and one for two whole ones."""
    waste = usual_waste(((19, 1, 1), (47, 1, 3), (100, 2, 1)))
    assert usual_waste(()) == (0.0,) * 101
    assert [round(waste[step], 3) for step in (0, 18, 19, 34, 47, 53, 62, 81, 100)] == [
        0.0,
        18.0,
        19.0,
        15.0,
        9.0,
        7.422,
        11.766,
        14.232,
        3.918,
    ]


some_nodes = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 7), st.integers(0, 6)), max_size=6)


@pytest.mark.law
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5), st.integers(0, 9), st.booleans()), max_size=8), st.data()
)
@examples(100)
def test_the_part_that_does_not_fit_is_what_counting_kind_by_kind_finds(kinds, data):
    """Each kind has a weight, cores, units and whether the second pool serves it; 0 units stand for no GPU."""
    requests = [(units, served) for _, _, units, served in kinds]
    served = [[units or NOT_SERVED, (units if second else 0) or NOT_SERVED] for units, second in requests]
    table = Misfits(
        column(*(weight for weight, *_ in kinds)),
        column(*(cpu for _, cpu, *_ in kinds)),
        np.arange(len(kinds)),
        np.array(served, dtype=np.int64).reshape(-1, 2),
        most_units=7,
    )
    for _ in range(3):
        nodes = data.draw(some_nodes)
        pools, units, cpu = (column(*values) for values in zip(*nodes, strict=True)) if nodes else (column(),) * 3
        total = sum(weight for weight, *_ in kinds)
        expected = [
            sum(w for (w, c, *_), own in zip(kinds, served, strict=True) if not 0 <= own[pool] <= free or c > cores)
            / total
            if total
            else 0
            for pool, free, cores in nodes
        ]
        assert table.share(pools, units, cpu).tolist() == [pytest.approx(one) for one in expected]
        for pool in (0, 1):
            here = [n for n, one in enumerate(nodes) if one[0] == pool]
            alone = table.share(pool, units[here], cpu[here]).tolist()
            assert alone == [pytest.approx(expected[n]) for n in here]


def test_usual_pods_of_no_weight_fit_everywhere():
    table = Misfits(column(0), column(1000), column(0), np.array([[1]]), 8)
    assert table.share(0, column(0, 8), column(0, 2000)).tolist() == [0.0, 0.0]

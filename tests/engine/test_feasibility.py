"""What could never run is told from what cannot run now."""

import pytest

from placement.ranking.feasibility import never_fits

from .fleets import A100, H100, cluster, flavor, job, node, pods, uniform


def codes(job_, clusters):
    found = never_fits(job_, clusters)
    return None if found is None else [(reason.cluster, reason.code) for reason in found]


def test_a_full_or_closed_cluster_is_not_never():
    assert codes(job(pods(4, 8)), [uniform(1, free=0)]) is None
    assert codes(job(), [uniform(1, state="cordoned")]) is None
    assert codes(job(), [uniform(1, state="unreachable")]) is None


def test_sick_nodes_may_get_well():
    of = flavor()
    sick = node("n", of, 8, 0, is_usable=False)
    assert codes(job(pods(gpus=8)), [cluster(1, [sick], [of])]) is None


def test_without_any_cluster_nothing_is_refused():
    assert codes(job(), []) is None
    assert codes(job(), [uniform(1, owner_path="globex")]) is None


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (job(pods(gpus=16)), "never_fits"),
        (job(pods(5, 8)), "fragmented"),
        (job(pods(40, 1)), "not_enough_free"),
        (job(pods(3, 8), level="rack", mode="required"), "topology_not_met"),
        (job(pods(models=[A100])), "no_such_model"),
        (job(pods(mig="1g.10gb")), "no_such_model"),
        (job(pods(fraction=500)), "no_such_model"),
        (job(clusters=("nowhere",)), "cluster_excluded"),
        (job(regions=("us-*",)), "region_excluded"),
        (job(pods(1, 8), pods(4, 8, name="more")), "never_fits"),
    ],
)
def test_what_an_empty_fleet_could_not_hold_is_refused(asked, code):
    found = never_fits(asked, [uniform(1, nodes=4, per_rack=2)])
    expected = "not_enough_free" if code == "fragmented" else code
    assert [(reason.code, reason.is_for_good) for reason in found] == [(expected, True)]


def test_every_visible_cluster_has_its_reason():
    fleet = [uniform(1), uniform(2, of=flavor(A100)), uniform(3, owner_path="globex")]
    assert codes(job(pods(gpus=9, models=[H100])), fleet) == [("c1", "never_fits"), ("c2", "no_such_model")]

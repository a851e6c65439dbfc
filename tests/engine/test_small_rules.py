"""Small rules that tests of larger parts pass by."""

from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_network
from uuid import UUID

import numpy as np
import pytest

from clusters.engine.addresses import LINK_LOCAL, NEVER_REACHED, NOT_PUBLIC, translated
from clusters.engine.clocks import JUST_NOW, Reading
from federation.engine.intake.init_and_sidecars import containers_of, with_secrets
from federation.engine.intake.priority_classes import ClassesHere, ClassHere
from placement.answers.quotes import capacity
from placement.fleet.siting import in_fewest
from placement.fleet.totals import Capacities, totals_of
from placement.ranking.reason_words import kind_of
from placement.values.preemption import RoomClaim
from quotas.engine.origin import Origin

from .fleets import NOW, cluster, flavor, job, node, pods, reservation, snapshot, uniform
from .preemption_worlds import planned
from .test_reclaim import GPU, borrowing, lent, of_b, stopped


def test_an_ipv4_block_is_closed_as_its_nat64_addresses_too():
    assert translated(ip_network("10.0.0.0/8")) == ip_network("64:ff9b::a00:0/104")
    assert translated(ip_network("fe80::/10")) == ip_network("fe80::/10")
    for closed in (NOT_PUBLIC, NEVER_REACHED):
        assert {translated(block) for block in closed if block.version == 4} <= set(closed)
    assert set(LINK_LOCAL) <= set(NEVER_REACHED)


def test_a_reading_explains_the_time_that_has_passed_since():
    reading = Reading(NOW, 100.0)
    for off in (timedelta(0), JUST_NOW, -JUST_NOW):
        assert reading.explains(NOW + timedelta(seconds=30) + off, 130.0)
    for off in (JUST_NOW, -JUST_NOW):
        assert not reading.explains(NOW + timedelta(seconds=30) + off * 1.01, 130.0)


def test_the_containers_of_a_pod_are_its_own_its_steps_and_its_sidecars():
    pod_set = {
        "name": "main",
        "init": [{"secrets": True}, {}],
        "sidecars": [{"name": "logs", "secrets": True}, {"name": "x"}],
    }
    assert containers_of(pod_set) == ["main", "init-1", "init-2", "logs", "x"]
    assert with_secrets(pod_set) == {"init-1", "logs"}
    assert (containers_of({"name": "main"}), with_secrets({"name": "main"})) == (["main"], frozenset())


def test_a_class_replaces_only_runs_of_lower_priority_and_only_if_it_may():
    high, low = (ClassHere(UUID(int=value), f"c{value}", value, is_default=False, is_open=True) for value in (100, 10))
    here = ClassesHere("acme", (replace(high, preempts=True), low))
    assert [here.replaces(value) for value in (99, 100, 101)] == [True, False, False]
    assert not ClassesHere("acme", (high, low)).replaces(0)
    assert here.named("c10") is low


def test_pods_fill_the_roomiest_places_and_the_rest_goes_where_it_fits_most_tightly():
    for count, placed in ((2, [(2, 2)]), (3, [(1, 3)]), (8, [(0, 8)]), (10, [(0, 8), (2, 2)]), (11, [(0, 8), (1, 3)])):
        assert in_fewest(np.array([8, 3, 2]), count) == placed


def test_pods_without_a_gpu_ask_for_a_node():
    assert [kind_of(pods(gpus=gpus)) for gpus in (0, 1)] == ["node", "GPU"]


def test_capacity_for_a_reservation_that_has_not_begun_names_the_clusters_outside():
    named = reservation(7, "c1-n000", starts=10)
    asked = job(pods(1, 1), reservation=str(named.id))
    found = capacity(asked, snapshot([uniform(1), uniform(2)], [], reservations=[named]))
    assert [(room.why_none.code, room.why_none.is_for_good) for room in found.clusters] == [
        ("waiting_for_reservation", False), ("outside_reservation", True),
    ]  # fmt: skip


@pytest.mark.parametrize(("own", "is_own"), [(5, True), (4, False), (0, False)])
def test_an_amount_is_a_tenants_own_if_nothing_of_it_is_borrowed(own, is_own):
    assert Origin("acme", "gpu", (), 5, own, (), ()).is_own is is_own


def test_beyond_the_exact_search_only_those_are_stopped_who_may_all_end_together():
    runs = of_b(1, 0, minutes=10), of_b(2, 1, minutes=600)
    assert stopped(planned(borrowing(*runs))) == stopped(planned(borrowing(*runs), exact=0)) == {1}
    small = [of_b(number, number // 3, gpus=4, minutes=10 * number) for number in range(1, 4)]
    for exact in (10, 0):
        given = borrowing(*small, limits=lent(small, whole=12), waiting=job(pods(1, 4), tenant="acme/a"))
        assert stopped(planned(given, exact=exact)) == {1}


def test_what_is_kept_for_a_waiting_job_is_no_debt_of_others():
    runs, other = (of_b(1, 0), of_b(2, 1)), job(pods(1, 8), tenant="acme/b")
    kept = RoomClaim(
        UUID(int=7), other.id, UUID(int=1), "c1", (), NOW + timedelta(minutes=9), 1, amounts={"gpu": 8 * GPU}
    )
    given = borrowing(runs[0], limits=lent([runs[0]], whole=16))
    assert stopped(planned(replace(given, queue=(*given.queue, other), claims=(kept,)))) is None


def test_a_path_may_use_what_serves_it_and_what_serves_only_tenants_below_it():
    owned = [
        ("", 1.0),
        ("acme", 10.0),
        ("acme/ml", 100.0),
        ("acme/ml", 200.0),
        ("acme/ml/x", 1000.0),
        ("globex", 5000.0),
    ]
    found = Capacities(
        [(uniform(number, owner_path=path), (size, 2 * size, 3 * size)) for number, (path, size) in enumerate(owned)]
    )
    for path, size in (
        ("acme", 1311.0), ("acme/ml", 1311.0), ("acme/web", 11.0), ("acme/ml/x", 1311.0), ("acme/ml/y", 311.0),
        ("globex", 5001.0), ("other", 1.0),
    ):  # fmt: skip
        assert found.at(path) == (size, 2 * size, 3 * size)
    assert Capacities([]).at("acme") == (0.0, 0.0, 0.0)


def test_all_that_a_cluster_has_counts_whether_free_or_not():
    of, sliced = flavor(), flavor(sharing="mig:1g.10gb")
    nodes = [
        node("a", [of, sliced], [4, 14], [0, 14], cpu=3000, memory=50),
        node("b", flavor(""), 0, cpu=500, memory=5, is_usable=False),
    ]
    kinds = [of, sliced, flavor("")]
    assert totals_of(cluster(1, nodes, kinds)) == (6000.0, 3500.0, 55.0)

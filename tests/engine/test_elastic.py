"""Elastic jobs: how many pods they may have, and with how many they start."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given

from federation.engine.intake.elastic import elastic_of, spec_of_run
from federation.engine.intake.manifest import read_manifest
from federation.engine.intake.normal_form import request_of, shape_of, spec_json
from federation.engine.intake.reading import Refused
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.objects.meeting import meeting_of
from federation.engine.objects.rendering import Devices, Identity, render_job
from placement.answers.moves import quoted
from placement.answers.quotes import Quoter, quote
from placement.cycle.cycle import decide
from placement.values.decisions import Placement
from placement.values.elastic import Elastic
from placement.values.model import Release
from placement.values.preemption import RoomClaim
from placement.values.sizes import largest, pace_of_size, resized, running_size
from tests.laws import examples

from .fleets import NOW, job, limit, pods, snapshot, uniform
from .preemption_worlds import full, planned, run_on, world
from .test_manifest import MANIFEST
from .test_placement_laws import elastic_jobs, snapshots

POD = {"name": "main", "image": "registry.example/train:1", "cpu": "1", "memory": "1Gi"}
SIDE = POD | {"name": "side", "count": 2}
ID = UUID(int=1)


def spec(elastic, *, count=8, more=(), **fields):
    return {"name": "train", "pod_sets": [POD | {"count": count}, *more], "elastic": elastic, **fields}


def stored(elastic=None, **asked):
    return spec_json(read_spec(spec({"min_count": 4} if elastic is None else elastic, **asked), Rules()))


def elastic(fewest, most, gpus=8, **more):
    return job(pods(fewest, gpus), elastic=Elastic(0, fewest, most), **more)


def sizes_of(decisions):
    return [sum(placed.pod_sets[0].nodes.values()) for placed in decisions.placements]


def test_the_only_pod_set_needs_no_name_and_the_stored_spec_has_it():
    assert stored()["elastic"] == {"pod_set": "main", "min_count": 4}
    assert stored({"min_count": 8})["elastic"] == {"pod_set": "main", "min_count": 8}
    grows = stored({"min_count": 4, "grow": True}, checkpoint_seconds=60)
    assert grows["elastic"] == {"pod_set": "main", "min_count": 4, "grow": True}
    assert stored({"min_count": 4, "grow": False})["elastic"] == {"pod_set": "main", "min_count": 4}
    several = stored({"min_count": 1, "pod_set": "side"}, more=[SIDE])
    assert elastic_of(several) == Elastic(1, 1, 2)
    assert read_spec(several, Rules()) == read_spec(spec({"min_count": 1, "pod_set": "side"}, more=[SIDE]), Rules())
    assert "elastic" not in stored_without()


def stored_without():
    plain = spec(None)
    del plain["elastic"]
    return spec_json(read_spec(plain, Rules()))


@pytest.mark.parametrize(
    ("told", "more", "at", "code"),
    [
        ({}, (), "elastic.min_count", "required"),
        ({"min_count": 0}, (), "elastic.min_count", "out_of_range"),
        ({"min_count": 9}, (), "elastic.min_count", "out_of_range"),
        ({"min_count": 10**12}, (), "elastic.min_count", "out_of_range"),
        ({"min_count": True}, (), "elastic.min_count", "wrong_type"),
        ({"min_count": "4"}, (), "elastic.min_count", "wrong_type"),
        ({"min_count": 4.0}, (), "elastic.min_count", "wrong_type"),
        ({"min_count": 4}, (SIDE,), "elastic.pod_set", "required"),
        ({"min_count": 4, "pod_set": "other"}, (), "elastic.pod_set", "unknown_value"),
        ({"min_count": 4, "pod_set": "No"}, (), "elastic.pod_set", "bad_format"),
        ({"min_count": 4, "max_count": 8}, (), "elastic.max_count", "unknown_field"),
        ({"min_count": 4, "grow": "yes"}, (), "elastic.grow", "wrong_type"),
        ({"min_count": 4, "grow": True}, (), "elastic.grow", "conflict"),
        ([4], (), "elastic", "wrong_type"),
        (4, (), "elastic", "wrong_type"),
    ],
)
def test_what_is_no_size_of_a_pod_set_is_refused(told, more, at, code):
    with pytest.raises(Refused) as refused:
        read_spec(spec(told, more=more), Rules())
    assert (at, code) in {(fault.field, fault.code) for fault in refused.value.faults}


def test_it_may_stand_beside_a_manifest_whose_pods_have_to_complete_once_each():
    read = spec_json(read_manifest(MANIFEST, {"elastic": {"min_count": 2}}, Rules()))
    [pod_set] = read["pod_sets"]
    assert (pod_set["count"], read["completions"], read["elastic"]["min_count"]) == (8, None, 2)
    of_run = spec_of_run(stored(completions=8), [3])
    assert (of_run["pod_sets"][0]["count"], of_run["completions"]) == (3, None)


def test_a_waiting_job_asks_for_its_fewest_pods():
    request = request_of(stored(), job_id=ID, tenant_path="acme", shape="")
    assert (request.pod_sets[0].count, request.elastic) == (4, Elastic(0, 4, 8))
    assert len({shape_of(stored()), shape_of(stored({"min_count": 5})), shape_of(stored_without())}) == 3


def test_a_run_is_rendered_with_the_pods_that_were_chosen_for_it():
    of_run = spec_of_run(stored(), [6])
    identity = Identity("i", ID, "acme", ID, ID, 1, "h")
    [template] = [render_job(of_run, 0, identity, Devices())["spec"]]
    assert (template["parallelism"], template["completions"]) == (6, 6)
    environment = {one["name"]: one.get("value") for one in template["template"]["spec"]["containers"][0]["env"]}
    assert environment["WORLD_SIZE"] == "6"
    assert meeting_of(spec_of_run(stored({"min_count": 1}), [1]), ID, "n").size == 1, (
        "its program asks for the variables"
    )
    tasks = spec_of_run(stored(completions=100), [6])
    assert (tasks["completions"], tasks["pod_sets"][0]["count"]) == (100, 6)
    assert spec_of_run(stored_without(), [6])["pod_sets"][0]["count"] == 8


@pytest.mark.parametrize(("free", "placed"), [(10, [8]), (8, [8]), (6, [6]), (4, [4]), (3, [])])
def test_it_starts_with_the_most_pods_that_fit(free, placed):
    asked = elastic(4, 8)
    decisions = decide(snapshot([uniform(1, free)], [asked]))
    assert sizes_of(decisions) == placed
    for one in decisions.placements:
        assert one.amounts["gpu"] == placed[0] * 8000
        assert one.hourly_cost == placed[0] * 16
        assert one.pace == 4 / placed[0]
    for wait in decisions.waits:
        assert "4" in wait.message


def test_quota_bounds_its_size_as_room_does():
    limits = [limit("acme/ml", "gpu", 47_999)]
    assert sizes_of(decide(snapshot([uniform(1, 10)], [elastic(4, 8)], limits))) == [5]
    limits = [limit("acme/ml", "gpu", 31_999)]
    (wait,) = decide(snapshot([uniform(1, 10)], [elastic(4, 8)], limits)).waits
    assert wait.code == "waiting_for_quota"


def test_its_size_comes_before_its_strategy_and_the_strategy_decides_among_places_of_that_size():
    small, large, dear = uniform(1, 5), uniform(2, 6), uniform(3, 6)
    cheap = decide(snapshot([small, large, dear], [elastic(4, 8, strategy="cheapest")]))
    assert sizes_of(cheap) == [6]
    assert cheap.placements[0].cluster in ("c2", "c3")


def test_jobs_behind_it_get_what_it_leaves():
    queue = [elastic(2, 3, shape="e"), elastic(2, 3, shape="e"), elastic(2, 3, shape="e"), job(pods(1, 8))]
    decisions = decide(snapshot([uniform(1, 6)], queue))
    assert sizes_of(decisions) == [3, 3]
    assert {wait.job_id for wait in decisions.waits} == {queue[2].id, queue[3].id}
    decisions = decide(snapshot([uniform(1, 8)], queue))
    assert sizes_of(decisions) == [3, 3, 2]


def test_more_pods_take_less_time():
    asked = elastic(4, 8, estimated_seconds=7200)
    found = quote(asked, snapshot([uniform(1, 6)], []))
    (offer,) = found.offers
    assert (offer.estimate.seconds, offer.size) == (4800, "6 of 4 to 8 pods")
    assert offer.estimated_cost == 6 * 16 * 4800 // 3600
    later = quote(asked, replace(snapshot([uniform(1, 6, free=0)], []), releases=(release(6),)))
    assert [one.size for one in later.later] == ["4 of 4 to 8 pods"]


def release(nodes):
    names = {f"c1-n{number:03d}": 1 for number in range(nodes)}
    return Release(NOW + timedelta(hours=1), UUID(int=1), "H100-80GB-whole-on_demand", 8, 1000, 1024, names)


def test_others_are_stopped_for_its_fewest_pods_only():
    runs = [run_on(number, {f"c1-n{number}": 1}, gpus=8) for number in range(4)]
    found = planned(world([full("aaaa", runs)], runs, elastic(2, 4, priority=100)))
    assert len(found.decision.victims) == 2
    assert found.decision.amounts["gpu"] == 16_000


def shrunk(asked, runs, requests, racks="aaa", limits=()):
    given_world = world([full(racks, runs)], runs, asked, limits)
    return planned(replace(given_world, shrinking=tuple(requests))).decision


def running(number, fewest, most, nodes, **more):
    """An elastic job that runs with a pod on each of these nodes, and its request."""
    run = run_on(number, dict.fromkeys(nodes, 1), gpus=8, **more)
    return run, elastic(fewest, most, id=run.job_id)


@pytest.mark.parametrize(("fewest", "kept"), [(1, 2), (2, 2), (3, None)])
def test_a_stopped_job_keeps_what_the_urgent_one_leaves_if_its_fewest_pods_fit(fewest, kept):
    run, request = running(1, fewest, 4, ["c1-n0", "c1-n1", "c1-n2"])
    decision = shrunk(job(pods(1, 8), priority=100), [run], [request])
    (victim,) = decision.victims
    if kept is None:
        assert victim.kept is None
        return
    assert (len(victim.kept.nodes), victim.kept.amounts["gpu"], victim.kept.pods) == (2, 16_000, 2)
    assert not set(victim.kept.nodes) & set(decision.nodes)


def test_two_stopped_jobs_keep_places_beside_each_other():
    first, second = running(1, 1, 2, ["c1-n0", "c1-n1"]), running(2, 1, 2, ["c1-n2", "c1-n3"], priority=10)
    decision = shrunk(job(pods(3, 8), priority=100), [first[0], second[0]], [first[1], second[1]], racks="aaaa")
    kept = {victim.run.attempt_id.int: victim.kept for victim in decision.victims}
    assert (kept[1], len(kept[2].nodes)) == (None, 1), "the more urgent one first"
    decision = shrunk(job(pods(2, 8), priority=100), [first[0], second[0]], [first[1], second[1]], racks="aaaa")
    places = [set(victim.kept.nodes) for victim in decision.victims if victim.kept]
    assert len(set(decision.nodes).union(*places)) == len(decision.nodes) + sum(map(len, places))


def test_quota_bounds_what_is_kept_and_a_larger_size_is_not_kept():
    run, request = running(1, 1, 8, ["c1-n0", "c1-n1"])
    (victim,) = shrunk(job(pods(3, 8), priority=100), [run], [request], racks="aaaaaaaa"[:4]).victims
    assert victim.kept.pods == 1, "also if more nodes are free"
    limits = [limit("acme", "gpu", 24_000, 16_000)]
    (victim,) = shrunk(job(pods(2, 8), priority=100), [run], [request], racks="aaaa", limits=limits).victims
    assert victim.kept.amounts["gpu"] == 8000
    limits = [limit("acme", "gpu", 23_999, 16_000)]
    (victim,) = shrunk(job(pods(2, 8), priority=100), [run], [request], racks="aaaa", limits=limits).victims
    assert victim.kept is None
    plain = replace(request, elastic=None)
    (victim,) = shrunk(job(pods(3, 8), priority=100), [run], [plain], racks="aaaa").victims
    assert victim.kept is None


def test_a_stopped_job_without_a_smaller_place_takes_none_from_the_next():
    larger, request = running(1, 1, 2, ["c1-n0", "c1-n1"], priority=10)
    smaller, stays = run_on(2, {"c1-n2": 2}, gpus=4), run_on(3, {"c1-n3": 1}, gpus=4, priority=100)
    requests = [request, elastic(1, 2, gpus=4, id=smaller.job_id)]
    decision = shrunk(job(pods(3, 8), priority=100), [larger, smaller, stays], requests, racks="aaaa")
    kept = {victim.run.attempt_id.int: victim.kept for victim in decision.victims}
    assert kept[1] is None
    assert kept[2].nodes == ("c1-n3",)


def test_a_node_is_not_kept_for_two_jobs():
    run = run_on(1, {"c1-n0": 2}, gpus=4)
    decision = shrunk(job(pods(1, 4), priority=100), [run], [elastic(1, 2, gpus=4, id=run.job_id)], racks="a")
    assert (decision.nodes, decision.victims[0].kept) == (("c1-n0",), None)


def test_a_kept_place_is_closed_to_others_and_its_job_gets_it_or_a_better_one():
    run, request = running(1, 1, 4, ["c1-n0", "c1-n1", "c1-n2"])
    decision = shrunk(job(pods(1, 8), priority=100), [run], [request])
    (victim,) = decision.victims
    claim = RoomClaim(
        UUID(int=7), run.job_id, UUID(int=1), "c1", victim.kept.nodes, NOW + timedelta(minutes=9), 0,
        amounts=victim.kept.amounts, kind="shrunk",
    )  # fmt: skip
    thief = job(pods(2, 8), priority=50)
    after_it = replace(snapshot([full("aaa", [])], [thief, request]), claims=(claim,))
    decisions = decide(after_it)
    assert [placed.job_id for placed in decisions.placements] == [request.id]
    assert sizes_of(decisions) == [3]
    assert decisions.waits[0].code == "kept_for_urgent"
    assert "is stopped for a more urgent one" in decisions.waits[0].message


def test_a_move_continues_with_the_most_pods_that_fit_there_and_costs_what_its_run_costs_here():
    run = run_on(1, {"c1-n0": 1, "c1-n1": 1, "c1-n2": 1}, gpus=8)
    asked = elastic(2, 8, exclude_clusters=("c1",))
    given_snapshot = replace(snapshot([full("aaa", [run]), uniform(2, 5)], []), running=(run,))
    outcome = Quoter(given_snapshot).move(asked, run, {})
    assert isinstance(outcome, Placement)
    assert (outcome.cluster, sum(outcome.pod_sets[0].nodes.values())) == ("c2", 5)
    assert quoted(given_snapshot, asked, run, outcome).hourly_cost == 3 * 16


def test_sizes_of_a_request():
    asked = elastic(4, 8, shape="s")
    assert resized(asked, 4) is asked
    assert (resized(asked, 6).pod_sets[0].count, resized(asked, 6).shape, pace_of_size(resized(asked, 8))) == (
        6, "s with 6 pods", 0.5,
    )  # fmt: skip
    plain = job(pods(3))
    assert (resized(plain, 7), pace_of_size(plain)) == (plain, 1)
    for pods_now, expected in ((2, 4), (5, 5), (9, 8)):
        sized = running_size(asked, run_on(1, {f"n{number}": 1 for number in range(pods_now)}))
        assert sized.pod_sets[0].count == expected
    for wrong in (3, 9):
        with pytest.raises(ValueError, match="4 to 8"):
            resized(asked, wrong)


@pytest.mark.parametrize("most", range(4, 12))
@pytest.mark.parametrize("fits", range(3, 13))
def test_the_largest_size_is_found_with_few_trials(most, fits):
    tried = []

    def attempted(sized):
        tried.append(sized.pod_sets[0].count)
        return tried[-1] if tried[-1] <= fits else None

    found = largest(elastic(4, most), attempted)
    assert (None if found is None else found[1]) == (min(fits, most) if fits >= 4 else None)
    assert len(tried) == len(set(tried)) <= 5


@pytest.mark.law
@given(snapshots, elastic_jobs())
@examples(150)
def test_its_size_is_the_largest_with_which_a_job_of_one_size_would_be_placed(given_snapshot, asked):
    world_of_one = replace(given_snapshot, queue=(asked,))
    own = asked.elastic

    def fits(count):
        sized = tuple(
            replace(one, count=count) if place == own.position else one for place, one in enumerate(asked.pod_sets)
        )
        alike = replace(asked, elastic=None, pod_sets=sized)
        return bool(decide(replace(given_snapshot, queue=(alike,))).placements)

    placements = decide(world_of_one).placements
    possible = [count for count in range(own.fewest, own.most + 1) if fits(count)]
    if own.fewest not in possible:
        assert not placements
        return
    (placed,) = placements
    count = sum(placed.pod_sets[own.position].nodes.values())
    assert count in possible
    assert count + 1 not in possible
    if len(asked.pod_sets) == 1:
        assert count == max(possible)

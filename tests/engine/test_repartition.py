"""Recommendations to partition GPUs otherwise: what a GPU can hold, and laws of the plans for many fleets and queues."""

from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.engine.gpu_models import usual_memory_mib
from clusters.engine.mig import PROFILES, fewest_gpus, holds, mix_of, most_of, profiles_of
from placement.answers.repartition import WHOLE, Sliceable, Waiting, proposals
from tests.laws import among, examples

EAST, WEST = UUID(int=1), UUID(int=2)
MODEL = "A100-80GB"
LONG = timedelta(hours=10)


@pytest.mark.parametrize(
    ("slices", "is_one"),
    [
        ({}, True),
        ({"1g.10gb": 7}, True),
        ({"1g.10gb": 8}, False),
        ({"2g.20gb": 3}, True),
        ({"2g.20gb": 3, "1g.10gb": 1}, True),
        ({"2g.20gb": 4}, False),
        ({"1g.20gb": 4}, True),
        ({"1g.20gb": 4, "1g.10gb": 1}, False),
        ({"3g.40gb": 2}, True),
        ({"3g.40gb": 2, "1g.10gb": 1}, False),
        ({"4g.40gb": 1, "3g.40gb": 1}, True),
        ({"4g.40gb": 2}, False),
        ({"4g.40gb": 1, "2g.20gb": 1, "1g.10gb": 1}, True),
        ({"3g.40gb": 1, "1g.10gb": 4}, True),
        ({"3g.40gb": 1, "1g.10gb": 5}, False),
        ({"7g.80gb": 1}, True),
        ({"7g.80gb": 1, "1g.10gb": 1}, False),
        ({"1g.5gb": 1}, False),
        ({"1g.10gb": -1}, False),
    ],
)
def test_a_gpu_holds_what_the_vendor_lists(slices, is_one):
    assert holds(MODEL, mix_of(slices)) is is_one


@pytest.mark.parametrize("model", PROFILES)
def test_a_profile_is_named_by_its_slices_and_its_part_of_the_models_memory(model):
    """As NVIDIA names them: memory by the places that a slice takes, rounded to whole gigabytes."""
    profiles, gigabytes = PROFILES[model], usual_memory_mib(model) // 1024
    # slices, places, and how many of them one GPU can have
    shapes = [(1, 1, 7), (1, 2, 4), (2, 2, 3), (3, 4, 2), (4, 4, 1), (7, 8, 1)]
    if model == "A30":
        shapes = [(1, 1, 4), (2, 2, 2), (4, 4, 1)]
    whole = shapes[-1][1]
    names = tuple(f"{slices}g.{(2 * gigabytes * places + whole) // (2 * whole)}gb" for slices, places, _ in shapes)
    assert profiles_of(model) == names
    assert [(one.places, most_of(model, one.name)) for one in profiles] == [shape[1:] for shape in shapes]
    assert all(0 <= start <= whole - one.places for one in profiles for start in one.starts)


def test_models_without_slices_hold_none():
    assert profiles_of("L4") == ()
    assert not holds("L4", (("1g.10gb", 1),))
    assert holds("L4", ())
    assert fewest_gpus("L4", {"1g.10gb": 1}) is None
    assert fewest_gpus(MODEL, {"1g.10gb": 9}) == 2
    assert fewest_gpus("A30", {"1g.6gb": 4}) == 1
    assert fewest_gpus(MODEL, {}) == 0


def waiting(number, profile="1g.10gb", **fields):
    usual: dict[str, Any] = {
        "models": frozenset(),
        "slices_per_pod": 1,
        "pods": 1,
        "lasts": LONG,
        "clusters": frozenset([EAST]),
    }
    return Waiting(job_id=UUID(int=100 + number), profile=profile, **usual | fields)


def node(name="a", slices=None, used=None, **fields):
    usual: dict[str, Any] = {"cluster_id": EAST, "model": MODEL, "gpus": 1}
    return Sliceable(name=name, slices=slices or {WHOLE: 1}, used=used or {}, **usual | fields)


def test_no_demand_no_plan():
    assert proposals([], [node(), node("b", {"3g.40gb": 2})], {}) == ()


def test_an_idle_node_is_named_with_the_jobs_that_start():
    [found] = proposals([waiting(1, pods=7), waiting(2, pods=7)], [node()], {})
    assert (found.node.name, found.mixes, found.job_ids) == ("a", ((("1g.10gb", 7),),), (waiting(1).job_id,))
    assert not found.drains


def test_jobs_that_fit_into_free_slices_wait_for_something_else():
    assert proposals([waiting(1)], [node(), node("b", {"1g.10gb": 7}, {"1g.10gb": 6})], {}) == ()


def test_what_was_in_use_lately_remains():
    two = [node(), node("b")]
    assert len(proposals([waiting(1)], two, {(EAST, MODEL, WHOLE): 1})) == 1
    assert proposals([waiting(1)], two, {(EAST, MODEL, WHOLE): 2}) == ()


def test_the_rest_of_a_gpu_keeps_its_slices():
    [found] = proposals([waiting(1, "3g.40gb")], [node(slices={"1g.10gb": 7})], {})
    assert found.mixes == ((("1g.10gb", 4), ("3g.40gb", 1)),)


def test_a_node_with_runs_has_to_be_drained_and_an_idle_one_comes_first():
    busy = node("a", {"3g.40gb": 2}, {"3g.40gb": 1})
    [found] = proposals([waiting(1)], [busy], {})
    assert found.drains
    [found] = proposals([waiting(1)], [busy, node("z")], {})
    assert (found.node.name, found.drains) == ("z", False)
    assert proposals([waiting(1)], [node(is_open=False)], {}) == ()


def test_a_change_that_costs_more_than_it_gains_is_not_proposed():
    assert proposals([waiting(1, lasts=timedelta(minutes=69))], [node()], {}) == ()
    assert len(proposals([waiting(1, lasts=timedelta(minutes=71))], [node()], {})) == 1, (
        "a seventh of a GPU for 71 minutes"
    )


def test_a_gang_starts_as_a_whole_or_counts_nothing():
    gang = waiting(1, pods=8)
    assert proposals([gang], [node()], {}) == ()
    found = proposals([gang], [node(), node("b")], {})
    assert [one.job_ids for one in found] == [(gang.job_id,)] * 2
    assert proposals([gang], [node(), node("b", cluster_id=WEST)], {}) == ()


def test_no_queue_makes_it_endless_and_no_job_is_drawn_in_part(monkeypatch):
    many = [node(f"n{number}") for number in range(50)]
    jobs = [waiting(number, pods=7) for number in range(50)]
    assert len(proposals(jobs, many, {})) == 50
    monkeypatch.setattr("placement.answers.repartition.MOST_TRIES", 200)
    found = proposals(jobs, many, {})
    assert 0 < len(found) < 50
    assert {one.mixes for one in found} == {((("1g.10gb", 7),),)}


def test_a_job_gets_its_models_and_its_clusters():
    assert proposals([waiting(1, models=frozenset(["H100-80GB"]))], [node()], {}) == ()
    assert proposals([waiting(1, clusters=frozenset([WEST]))], [node()], {}) == ()


KINDS = st.sampled_from(sorted(PROFILES))
NAMES = {model: st.lists(st.sampled_from(profiles_of(model)), max_size=6) for model in PROFILES}
ANY_PROFILE = st.sampled_from(sorted({name for model in PROFILES for name in profiles_of(model)}))
SOME_CLUSTERS = st.sets(st.sampled_from([EAST, WEST]))


@st.composite
def fleets(draw):
    found = []
    for number in range(draw(st.integers(0, 5))):
        model = draw(KINDS)
        gpus = draw(st.integers(1, 3))
        names = draw(NAMES[model])
        slices: Any = Counter()
        mixes: list[Counter[str]] = [Counter() for _ in range(gpus)]
        for name in names:
            for gpu in mixes:
                if holds(model, mix_of(gpu + Counter([name]))):
                    gpu[name] += 1
                    slices[name] += 1
                    break
        slices = dict(slices) or {WHOLE: gpus}
        used = {name: draw(st.integers(0, units)) for name, units in slices.items()}
        cluster = draw(among(EAST, WEST))
        found.append(Sliceable(cluster, f"n{number}", model, gpus, slices, used, draw(st.booleans())))
    return found


@st.composite
def queues(draw):
    return [
        waiting(
            number,
            draw(ANY_PROFILE),
            slices_per_pod=draw(st.integers(1, 3)),
            pods=draw(st.integers(1, 4)),
            lasts=timedelta(minutes=draw(st.integers(0, 600))),
            clusters=frozenset(draw(SOME_CLUSTERS)),
        )
        for number in range(draw(st.integers(0, 6)))
    ]


@pytest.mark.law
@examples(300)
@given(fleets(), queues(), st.integers(0, 3))
def test_every_plan_can_be_carried_out_and_starts_what_it_says(nodes, jobs, kept):
    recent = {(one.cluster_id, one.model, name): kept for one in nodes for name in one.slices}
    found = proposals(jobs, nodes, recent)
    assert len({(one.node.cluster_id, one.node.name) for one in found}) == len(found)
    slices: Counter = Counter()
    for one in found:
        assert one.node in nodes
        assert one.node.is_open
        assert one.job_ids, "a node without a job is not touched"
        assert len(one.mixes) == one.node.gpus
        assert all(holds(one.node.model, mix) for mix in one.mixes)
        assert one.drains == any(one.node.used.values())
        for mix in one.mixes:
            slices.update(dict(mix))
    started = {job_id for one in found for job_id in one.job_ids}
    for profile in {job.profile for job in jobs}:
        wanted = sum(job.pods * job.slices_per_pod for job in jobs if job.job_id in started and job.profile == profile)
        assert slices[profile] >= wanted
    assert sum(one.gained for one in found) >= sum(one.cost for one in found)
    for key, least in recent.items():
        here = [one for one in nodes if (one.cluster_id, one.model) == key[:2]]
        gone = {one.node.name for one in found}
        left = sum(one.slices.get(key[2], 0) for one in here if one.name not in gone)
        lost = any(key[2] in one.slices for one in here if one.name in gone)
        assert not lost or left >= least
    assert proposals(jobs, nodes, recent) == found, "the same input, the same plan"

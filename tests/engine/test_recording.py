"""A cycle's input and output survive a file without losing a digit, whatever fields the values have."""

import json
from dataclasses import fields, replace
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.answers import recording
from placement.answers.recording import RecordingError, decisions_text, snapshot_of, snapshot_text
from placement.cycle.cycle import decide
from placement.values.consolidation import Consolidating, MovedForOthers
from placement.values.datasets import DataNeed
from placement.values.model import (
    ClusterRefusal,
    Constraints,
    GpuRequest,
    JobRequest,
    Snapshot,
    StrategyWeights,
    TenantPolicy,
    Tier,
    TypicalPod,
)
from tests.laws import examples

from .fleets import cluster, flavor, job, limit, node, pods, snapshot, uniform

MOVED = UUID(int=7)


def rich() -> Snapshot:
    """Every kind of field that placement knows, filled."""
    divisible = flavor("L4-24GB", sharing="divisible", price=None)
    parted = node("p", divisible, 2, 1, device_free_milli={divisible.name: (1000, 400)}, clique="c", domain=())
    broken = node("b", flavor(), is_usable=False, why_unusable="taint gpu=bad \u2028 \u00fc")
    clusters = [uniform(1, fills="spread"), cluster(2, [parted, broken], [divisible, flavor(price="0.10")])]
    queue = [
        job(
            pods(2, 8),
            pods(1, 0, name="driver"),
            clusters=("c1", "c9"),
            overflow=(Tier(0, ("c9",)), Tier(60, (), ("eu-*",))),
            level="rack",
            mode="required",
            priority=100,
        ),
        job(pods(1, 1, fraction=400), regions=("eu-*",), strategy="pack", estimated_seconds=7),
        job(pods(1, 2, models=("H100-80GB",)), tenant="acme/\u00fcml", user=MOVED),
    ]
    found = snapshot(clusters, queue, [limit("acme", "gpu", 4000, 1000, ("c1",))])
    moving = Consolidating(0.5, 8, moved_for_others=MovedForOthers({MOVED: 2}, {"acme/\u00fcml": 3}))
    return replace(
        found,
        typical_pods=(TypicalPod(pods(1, 1), 3),),
        now=found.now.replace(microsecond=123456),
        consolidation=moving,
    )


def again(value: Snapshot) -> Snapshot:
    return snapshot_of(json.loads(snapshot_text(value)))


def test_a_snapshot_comes_back_equal_and_so_do_its_bytes():
    value = rich()
    assert again(value) == value
    assert snapshot_text(again(value)) == snapshot_text(value)
    assert decisions_text(decide(again(value))) == decisions_text(decide(value))


def test_every_field_of_the_snapshot_is_in_the_file():
    document = json.loads(snapshot_text(rich()))["snapshot"]
    assert list(document) == [field.name for field in fields(Snapshot)]
    assert list(document["queue"][0]) == [field.name for field in fields(JobRequest)]


def test_what_has_a_default_may_be_missing_from_an_older_file():
    document = json.loads(snapshot_text(snapshot([uniform(1)], [job()])))
    del document["snapshot"]["typical_pods"], document["snapshot"]["clusters"][0]["fills"]
    assert snapshot_of(document).clusters[0].fills == "hinted"


SMALLEST = {
    "now": "2026-01-01T00:00:00+00:00",
    "clusters": [
        {
            "id": str(UUID(int=1)), "name": "c", "owner_path": "acme", "region": "", "state": "ready",
            "flavors": {"f": {
                "name": "f", "vendor": "", "gpu_model": "", "gpu_memory_mib": 0, "sharing": "whole",
                "capacity_type": "spot", "price_changes": [{"at": "2026-01-02T00:00:00+00:00"}],
            }},
            "nodes": [{
                "name": "n", "domain": [], "total": {"f": 0}, "free": {"f": 0}, "cpu_millicores": 1, "memory_mib": 2,
                "pods": 3, "free_cpu_millicores": 1, "free_memory_mib": 2, "free_pods": 3, "is_usable": True,
            }],
        }
    ],
    "queue": [
        {
            "id": str(UUID(int=2)), "tenant_path": "acme", "shape": "", "topology": {}, "data": [{"name": "d"}],
            "pod_sets": [{"name": "a", "count": 1, "cpu_millicores": 1, "memory_mib": 2, "gpu": {"count": 1}}],
            "constraints": {
                "refusals": [{"cluster_id": str(UUID(int=1)), "message": "no"}], "overflow": [{"after_seconds": 0}],
            },
        }
    ],
    "policies": [{"tenant_path": "acme", "weights": [{"strategy": "pack"}]}],
}  # fmt: skip


def test_what_an_older_file_does_not_say_means_what_it_meant_then():
    found = snapshot_of({"format": "switchyard/snapshot", "version": 1, "snapshot": SMALLEST})
    assert (found.limits, found.typical_pods, found.patience_seconds, found.runtimes) == ((), (), 600, {})
    assert (found.releases, found.egress, found.reservations) == ((), (), ())
    (one,) = found.clusters
    assert (one.fills, one.minutes_unseen) == ("hinted", 0)
    (kind,) = one.flavors.values()
    assert (kind.currency, kind.slice_hosts, kind.unplaceable, kind.interruptions_per_hour) == ("USD", 1, "", 0.0)
    (change,) = kind.price_changes
    for priced in (kind, change):
        assert {priced.unit_price, priced.cpu_price, priced.memory_price} == {None}
        assert {priced.guest_cpu_price, priced.guest_memory_price} == {None}
    (host,) = one.nodes
    assert (host.why_unusable, host.clique, host.device_free_milli, host.repels) == ("", "", {}, {})
    (asked,) = found.queue
    assert (asked.priority, asked.submitted_at, asked.strategy, asked.kind) == (0, None, "balanced", "")
    assert (asked.estimated_seconds, asked.deadline_seconds, asked.checkpoint_seconds) == (None, None, None)
    assert (asked.topology.level, asked.topology.mode, asked.throughput) == ("cluster", "preferred", ())
    assert asked.pod_sets[0].gpu == GpuRequest(1, (), "", 0, "")
    assert asked.data == (DataNeed("d", None, ()),)
    refusal = ClusterRefusal(UUID(int=1), "no", "refused_by_cluster")
    assert asked.constraints == Constraints((), (), (), (), (refusal,), (Tier(0, (), ()),), None, "", None)
    assert found.policies == (
        TenantPolicy("acme", "", (), (), (), (), (), (StrategyWeights("pack", None, None, None, None),)),
    )
    assert again(found) == found


@given(st.decimals(allow_nan=False, allow_infinity=False), st.text(st.characters(exclude_categories=["Cs"])))
@examples(60)
def test_digits_and_texts_are_kept(price, text):
    one = replace(flavor(), unit_price=price)
    value = snapshot([cluster(1, [node("n", one)], [one], region=text)], [job()])
    assert again(value).clusters == value.clusters
    assert str(again(value).clusters[0].flavors[one.name].unit_price) == str(price)


SPOILED = [
    (("format",), "switchyard/decisions", "not a recorded snapshot"),
    (("version",), 2, "version 2"),
    (("version",), True, None),
    (("extra",), 1, "unknown fields"),
    (("snapshot",), [], "snapshot: expected an object"),
    (("snapshot", "now"), "2026-01-01T00:00:00", "snapshot.now: expected a time"),
    (("snapshot", "patience_seconds"), True, "snapshot.patience_seconds: expected a whole number"),
    (("snapshot", "clusters", 0, "fills"), "maybe", "snapshot.clusters[0].fills"),
    (("snapshot", "clusters", 0, "id"), 5, "snapshot.clusters[0].id: expected a UUID"),
    (("snapshot", "clusters", 0, "nodes", 1, "free"), [], "snapshot.clusters[0].nodes[1].free: expected an object"),
    (("snapshot", "clusters", 0, "nodes", 1, "rack"), "r", "snapshot.clusters[0].nodes[1]: this program knows no"),
    (("snapshot", "clusters", 0, "nodes"), {}, "snapshot.clusters[0].nodes: expected a list"),
    (("snapshot", "clusters", 0, "flavors", "H100-80GB-whole-on_demand", "unit_price"), "NaN", "unit_price: expected"),
]


@pytest.mark.parametrize(("path", "value", "told"), SPOILED)
def test_a_spoiled_file_is_refused_with_the_place(path, value, told):
    document = json.loads(snapshot_text(rich()))
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    if told is None:
        snapshot_of(document)
        return
    with pytest.raises(RecordingError, match=told.replace("[", r"\[").replace("]", r"\]")):
        snapshot_of(document)


def test_a_missing_field_is_named():
    document = json.loads(snapshot_text(rich()))
    del document["snapshot"]["queue"][1]["pod_sets"]
    with pytest.raises(RecordingError, match=r"snapshot\.queue\[1\]: lacks pod_sets"):
        snapshot_of(document)


def test_what_has_no_recorded_form_is_an_error_of_ours():
    with pytest.raises(TypeError):
        recording.plain(object())
    with pytest.raises(ValueError, match="Out of range"):
        recording._text("f", "x", {"x": float("nan")})


def test_decimals_keep_their_trailing_zeros():
    assert recording.plain(Decimal("1.500")) == "1.500"


def test_the_formats_of_recordings_are_named_for_whoever_reads_them_later():
    recorded = json.loads(snapshot_text(snapshot([], [])))
    assert (recorded["format"], recorded["version"]) == ("switchyard/snapshot", 1)
    told = json.loads(decisions_text(decide(snapshot([], []))))
    assert (told["format"], told["version"]) == ("switchyard/decisions", 1)


def test_users_are_numbers_and_what_was_moved_of_theirs_stays_theirs():
    (user,) = {one.user for one in recording.without_users(rich()).queue} - {None}
    assert user == UUID(int=1)
    moved = recording.without_users(rich()).consolidation.moved_for_others
    assert moved == MovedForOthers({user: 2}, {"acme/\u00fcml": 3})

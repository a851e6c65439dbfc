import copy
import json
from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.engine.intake.normal_form import request_of, shape_of, spec_json
from federation.engine.intake.reading import Refused
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from foundation import strict_json
from placement.values.model import GpuRequest
from tests.builders import make_spec

from .specs import specs

RULES = Rules()
NOW, LATER = {"after_seconds": 0}, {"after_seconds": 600}
BAD_TIERS = [
    ({}, "", "wrong_type"),
    ("home", "", "wrong_type"),
    ([{"after_seconds": number} for number in range(9)], "", "too_many"),
    ([None], "[0]", "wrong_type"),
    ([{}], "[0].after_seconds", "required"),
    ([LATER], "[0].after_seconds", "out_of_range"),
    ([NOW, LATER, LATER], "[2].after_seconds", "out_of_range"),
    ([NOW, LATER, {"after_seconds": 599}], "[2].after_seconds", "out_of_range"),
    ([NOW, NOW], "[1].after_seconds", "out_of_range"),
    ([{"after_seconds": -1}], "[0].after_seconds", "out_of_range"),
    ([NOW, {"after_seconds": 30 * 24 * 3600 + 1}], "[1].after_seconds", "out_of_range"),
    ([NOW, {"after_seconds": 10**30}], "[1].after_seconds", "out_of_range"),
    ([{"after_seconds": False}], "[0].after_seconds", "wrong_type"),
    ([NOW, {"after_seconds": 0.5}], "[1].after_seconds", "wrong_type"),
    ([NOW, {"after_seconds": float("nan")}], "[1].after_seconds", "wrong_type"),
    ([NOW, {"after_seconds": "600"}], "[1].after_seconds", "wrong_type"),
    ([NOW | {"clusters": ["Bad Name"]}], "[0].clusters[0]", "bad_format"),
    ([NOW | {"clusters": "home"}], "[0].clusters", "wrong_type"),
    ([NOW | {"clusters": ["c"] * 101}], "[0].clusters", "too_many"),
    ([NOW | {"clusters": ["c\x00"]}], "[0].clusters[0]", "bad_characters"),
    ([NOW, LATER | {"regions": ["ü"]}], "[1].regions[0]", "bad_format"),
    ([NOW | {"capacity_types": ["spot"]}], "[0].capacity_types", "unknown_field"),
    ([NOW | {"overflow": []}], "[0].overflow", "unknown_field"),
]


def faults_of(value, rules=RULES):
    with pytest.raises(Refused) as caught:
        read_spec(value, rules)
    return {fault.field: fault.code for fault in caught.value.faults}


@pytest.mark.law
@given(specs)
def test_a_spec_survives_the_way_through_its_normal_form(value):
    spec = read_spec(value, RULES)
    stored = strict_json.loads(json.dumps(spec_json(spec)).encode())
    assert read_spec(stored, RULES) == spec
    assert spec_json(read_spec(stored, RULES)) == stored


@pytest.mark.law
@given(specs)
def test_a_request_says_what_the_spec_says(value):
    spec = read_spec(value, RULES)
    request = request_of(spec_json(spec), job_id=uuid4(), tenant_path="acme", shape="s")
    assert [(p.name, p.count, p.gpu) for p in request.pod_sets] == [(p.name, p.count, p.gpu) for p in spec.pod_sets]
    for asked, seen in zip(spec.pod_sets, request.pod_sets, strict=True):
        assert seen.cpu_millicores == asked.cpu_millicores + sum(one.cpu_millicores for one in asked.sidecars)
        memory = asked.memory_bytes + sum(one.memory_bytes for one in asked.sidecars)
        assert 0 <= seen.memory_mib * 2**20 - memory < 2**20
    constraints = replace(spec.constraints, needs_sidecars=any(asked.sidecars for asked in spec.pod_sets))
    assert (request.constraints, request.topology, request.strategy) == (constraints, spec.topology, spec.strategy)
    assert request.checkpoint_seconds == spec.checkpoint_seconds
    assert request.estimated_seconds == spec.estimated_seconds


@pytest.mark.law
@given(specs, st.data())
def test_one_shape_for_all_that_differ_in_what_placement_does_not_see(value, data):
    stored = spec_json(read_spec(value, RULES))
    other = copy.deepcopy(stored)
    other |= {"name": "other", "labels": {"a": "b"}, "deadline_seconds": 7}
    for pod_set in other["pod_sets"]:
        pod_set |= {"image": "other", "env": {"A": "1"}, "command": ["x"], "args": []}
    assert shape_of(other) == shape_of(stored)
    pod_set = other["pod_sets"][data.draw(st.integers(0, len(other["pod_sets"]) - 1))]
    pod_set["count"] += 1
    assert shape_of(other) != shape_of(stored)


def test_quantities_are_exact_and_canonical():
    [pod_set] = spec_json(read_spec(make_spec(pod={"cpu": "0.5", "memory": "131072Mi"}), RULES))["pod_sets"]
    assert (pod_set["cpu"], pod_set["memory"]) == ("500m", "128Gi")
    [pod_set] = spec_json(read_spec(make_spec(pod={"cpu": "2000m", "memory": "1.5Gi"}), RULES))["pod_sets"]
    assert (pod_set["cpu"], pod_set["memory"]) == ("2", "1536Mi")


@pytest.mark.parametrize(
    ("given_as", "read_as"),
    [
        ({"count": 8, "models": ["H100-80GB", "A100-80GB"]}, GpuRequest(8, ("A100-80GB", "H100-80GB"))),
        ({"count": 2}, GpuRequest(2)),
        ({"mig": "1g.10gb", "count": 3}, GpuRequest(3, mig="1g.10gb")),
        ({"mig": "1g.10gb"}, GpuRequest(1, mig="1g.10gb")),
        ({"fraction": "0.5"}, GpuRequest(1, fraction_milli=500)),
        ({"fraction": "0.001"}, GpuRequest(1, fraction_milli=1)),
        ({"fraction": 0.25}, GpuRequest(1, fraction_milli=250)),
    ],
)
def test_every_way_to_ask_for_a_gpu_is_read(given_as, read_as):
    assert read_spec(make_spec(pod={"gpu": given_as}), RULES).pod_sets[0].gpu == read_as


@pytest.mark.parametrize(
    ("cpu", "memory", "means"),
    [(4, 2**30, (4000, 2**30)), (0.5, "1Gi", (500, 2**30)), (1.5, 1.5e9, (1500, 1_500_000_000))],
)
def test_amounts_may_be_bare_numbers(cpu, memory, means):
    pod = read_spec(make_spec(pod={"cpu": cpu, "memory": memory}), RULES).pod_sets[0]
    assert (pod.cpu_millicores, pod.memory_bytes) == means


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"name": None}, "name", "required"),
        ({"pod_sets": []}, "pod_sets", "required"),
        ({"pod_sets": "worker"}, "pod_sets", "wrong_type"),
        ({"pod_sets": [7]}, "pod_sets[0]", "wrong_type"),
        ({"pod": {"count": 0}}, "pod_sets[0].count", "out_of_range"),
        ({"pod": {"count": 10_001}}, "pod_sets[0].count", "out_of_range"),
        ({"pod": {"count": "1"}}, "pod_sets[0].count", "wrong_type"),
        ({"pod": {"cpu": True}}, "pod_sets[0].cpu", "wrong_type"),
        ({"pod": {"cpu": float("nan")}}, "pod_sets[0].cpu", "wrong_type"),
        ({"pod": {"cpu": float("inf")}}, "pod_sets[0].cpu", "wrong_type"),
        ({"pod": {"cpu": 10**40}}, "pod_sets[0].cpu", "too_long"),
        ({"pod": {"cpu": -1}}, "pod_sets[0].cpu", "out_of_range"),
        ({"pod": {"cpu": 0.0001}}, "pod_sets[0].cpu", "bad_quantity"),
        ({"pod": {"memory": 5e-324}}, "pod_sets[0].memory", "too_long"),
        ({"pod": {"cpu": "1.0001"}}, "pod_sets[0].cpu", "bad_quantity"),
        ({"pod": {"cpu": "-1"}}, "pod_sets[0].cpu", "out_of_range"),
        ({"pod": {"cpu": "1e9"}}, "pod_sets[0].cpu", "out_of_range"),
        ({"pod": {"memory": "100m"}}, "pod_sets[0].memory", "bad_quantity"),
        ({"pod": {"memory": "1Ki"}}, "pod_sets[0].memory", "out_of_range"),
        ({"pod": {"volumes": []}}, "pod_sets[0].volumes", "unknown_field"),
        ({"pod": {"image": "UPPER/case"}}, "pod_sets[0].image", "bad_format"),
        ({"pod": {"image": ""}}, "pod_sets[0].image", "bad_format"),
        ({"pod": {"gpu": {}}}, "pod_sets[0].gpu.count", "required"),
        ({"pod": {"gpu": {"fraction": "0.5", "count": 1}}}, "pod_sets[0].gpu.count", "not_allowed"),
        ({"pod": {"gpu": {"fraction": "1.0"}}}, "pod_sets[0].gpu.fraction", "bad_format"),
        ({"pod": {"gpu": {"fraction": "0.0005"}}}, "pod_sets[0].gpu.fraction", "bad_format"),
        ({"pod": {"gpu": {"mig": "8x"}}}, "pod_sets[0].gpu.mig", "bad_format"),
        ({"completions": 0}, "completions", "out_of_range"),
        ({"completions": 1, "pod": {"count": 2}}, "completions", "out_of_range"),
        ({"estimated_seconds": 0}, "estimated_seconds", "out_of_range"),
        ({"checkpoint_seconds": 0}, "checkpoint_seconds", "out_of_range"),
        ({"checkpoint_seconds": 30 * 24 * 3600 + 1}, "checkpoint_seconds", "out_of_range"),
        ({"checkpoint_seconds": "600"}, "checkpoint_seconds", "wrong_type"),
        ({"strategy": "best"}, "strategy", "unknown_value"),
        ({"priority_class": "Very high"}, "priority_class", "bad_format"),
        ({"on_cluster_lost": "rerun"}, "on_cluster_lost", "unknown_value"),
        ({"topology": {"level": "moon"}}, "topology.level", "unknown_value"),
        ({"constraints": {"capacity_types": ["free"]}}, "constraints.capacity_types[0]", "bad_format"),
        ({"constraints": {"region": []}}, "constraints.region", "unknown_field"),
        *(
            ({"constraints": {"overflow": tiers}}, f"constraints.overflow{where}", code)
            for tiers, where, code in BAD_TIERS
        ),
        ({"labels": {"a": "b c"}}, "labels.a", "bad_format"),
        ({"labels": {"a": 1}}, "labels.a", "wrong_type"),
        ({"labels": {"-": "b"}}, "labels.-", "bad_format"),
        ({"state": "running"}, "state", "unknown_field"),
    ],
)
def test_a_fault_names_its_field(changes, field, code):
    assert faults_of(make_spec(**changes)) == {field: code}


def test_a_topology_prefers_one_cluster_unless_it_says_otherwise():
    for asked, level, mode in (
        ({}, "cluster", "preferred"), ({"mode": "required"}, "cluster", "required"), ({"level": "rack"}, "rack", "preferred"),
    ):  # fmt: skip
        found = read_spec(make_spec(topology=asked), RULES).topology
        assert (found.level, found.mode) == (level, mode)


def test_tiers_are_kept_in_order_and_jobs_without_any_keep_their_shape():
    stored = spec_json(
        read_spec(make_spec(constraints={"overflow": [NOW | {"clusters": ["b", "a", "a"]}, LATER]}), RULES)
    )
    assert stored["constraints"]["overflow"] == [
        {"after_seconds": 0, "clusters": ["a", "b"], "regions": []},
        {"after_seconds": 600, "clusters": [], "regions": []},
    ]
    without = [spec_json(read_spec(make_spec(**more), RULES)) for more in ({}, {"constraints": {"overflow": []}})]
    assert without[0] == without[1]
    assert "overflow" not in without[0]["constraints"]
    assert shape_of(stored) != shape_of(without[0])


def test_the_names_of_all_tiers_count_for_the_size_of_a_spec():
    names = [f"{'c' * 58}{number:04d}" for number in range(100)]
    tiers = [{"after_seconds": n, "clusters": names} for n in range(8)]
    padded = make_spec(constraints={"overflow": tiers}, pod={"env": {"A": "x" * 60_000}})
    texts = ["y" * 30_000] * 5
    assert faults_of({**padded, "pod_sets": [{**padded["pod_sets"][0], "args": texts}]}) == {"": "too_large"}


def test_all_faults_are_named_at_once():
    bad = make_spec(name="Bad_Name", strategy="?", pod={"count": 0, "memory": "x", "gpu": {"count": True}})
    assert set(faults_of(bad)) == {
        "name", "strategy", "pod_sets[0].count", "pod_sets[0].memory", "pod_sets[0].gpu.count"
    }  # fmt: skip


def test_only_one_pod_set_may_have_completions():
    [pod_set] = make_spec()["pod_sets"]
    bad = make_spec(pod_sets=[pod_set, {**pod_set, "name": "other"}], completions=5)
    assert faults_of(bad) == {"completions": "not_allowed"}


def test_pod_sets_have_different_names():
    [pod_set] = make_spec()["pod_sets"]
    assert faults_of(make_spec(pod_sets=[pod_set, pod_set])) == {"pod_sets[1].name": "duplicate"}


def test_simulated_run_times_pass_only_where_simulation_is_allowed():
    labels = {"sim.switchyard.dev/run-seconds": "5", "sim.switchyard.dev/exit-code": "1"}
    assert dict(read_spec(make_spec(labels=labels), Rules(allow_simulation=True)).labels) == labels
    assert set(faults_of(make_spec(labels=labels)).values()) == {"reserved_prefix"}
    bad = make_spec(labels={"sim.switchyard.dev/run-seconds": "soon"})
    assert faults_of(bad, Rules(allow_simulation=True)) == {"labels.sim.switchyard.dev/run-seconds": "out_of_range"}


def test_details_never_repeat_what_was_sent():
    secret = "hunter2-hunter2"
    with pytest.raises(Refused) as caught:
        read_spec(
            make_spec(name=secret.upper(), pod={"env": {"A": [secret], "LD_PRELOAD": secret}, "image": f"{secret}!"}),
            RULES,
        )
    assert secret not in str(caught.value).lower()


def test_runs_report_only_where_the_gateway_takes_reports():
    taken, refused = Rules(takes_reports=True), Rules(takes_reports=False)
    assert faults_of(make_spec(reports=True), refused) == {"reports": "not_allowed"}
    assert read_spec(make_spec(reports=True), taken).reports
    assert not any(read_spec(make_spec(reports=False), rules).reports for rules in (taken, refused))

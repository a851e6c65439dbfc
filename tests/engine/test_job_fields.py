"""The table of job fields, and the normal form that is made from it."""

from dataclasses import fields
from pathlib import Path
from uuid import UUID

import pytest

from federation.engine.intake.job_fields import JOB_FIELDS
from federation.engine.intake.normal_form import encode, gpu_request_of, request_of, shape_of, spec_json
from federation.engine.intake.spec import JobSpec, Rules
from federation.engine.intake.spec_reading import read_spec
from placement.values.datasets import DataNeed
from placement.values.model import (
    Constraints,
    GpuRequest,
    JobRequest,
    ModelSpeed,
    PodSetRequest,
    Tier,
    Topology,
)

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "job-spec.md"
POD = {"name": "main", "image": "registry.example/train:1", "cpu": "1", "memory": "1Gi"}
PLAIN = {"name": "train", "pod_sets": [POD]}
FULL = {
    "name": "train",
    "pod_sets": [
        POD
        | {"count": 2, "command": ["python"], "args": ["-v"], "env": {"A": "1"}, "cpu": 0.5}
        | {"gpu": {"count": 8, "models": ["H100-80GB"], "vendor": "nvidia"}}
    ],
    "completions": 4,
    "estimated_seconds": 60,
    "checkpoint_seconds": 30,
    "deadline_seconds": 90,
    "strategy": "pack",
    "priority_class": "high",
    "constraints": {
        "clusters": ["b", "a"],
        "exclude_clusters": ["c"],
        "regions": ["eu-*"],
        "capacity_types": ["spot"],
        "overflow": [{"after_seconds": 0, "clusters": ["a"]}],
        "reservation": "mine",
    },
    "topology": {"level": "rack", "mode": "required"},
    "on_cluster_lost": "hold",
    "labels": {"b": "2", "a": "1"},
    "data": [{"name": "imagenet", "read": "20Gi"}],
    "throughput": {"H100-80GB": 2.5, "A100-80GB": 1},
    "retries": {"program": 3},
}
PLAIN_STORED = (
    b'{"checkpoint_seconds":null,"completions":null,"constraints":{"capacity_types":[],"clusters":[],'
    b'"exclude_clusters":[],"regions":[]},"deadline_seconds":86400,"estimated_seconds":null,"labels":{},'
    b'"name":"train","on_cluster_lost":"hold","pod_sets":[{"args":[],"command":[],"count":1,"cpu":"1","env":{},'
    b'"gpu":null,"image":"registry.example/train:1","memory":"1Gi","name":"main"}],"priority_class":"normal",'
    b'"strategy":"balanced","topology":{"level":"cluster","mode":"preferred"}}'
)
FULL_STORED = (
    b'{"checkpoint_seconds":30,"completions":4,"constraints":{"capacity_types":["spot"],"clusters":["a","b"],'
    b'"exclude_clusters":["c"],"overflow":[{"after_seconds":0,"clusters":["a"],"regions":[]}],"regions":["eu-*"],'
    b'"reservation":"mine"},"data":[{"name":"imagenet","read":"20Gi"}],"deadline_seconds":90,'
    b'"estimated_seconds":60,"labels":{"a":"1","b":"2"},"name":"train","on_cluster_lost":"hold",'
    b'"pod_sets":[{"args":["-v"],"command":["python"],"count":2,"cpu":"500m","env":{"A":"1"},"gpu":{"count":8,'
    b'"models":["H100-80GB"],"vendor":"nvidia"},"image":"registry.example/train:1","memory":"1Gi","name":"main"}],'
    b'"priority_class":"high","retries":{"infrastructure":10,"node_lost":10,"preempted":10,"program":3,"spot":10},'
    b'"strategy":"pack","throughput":{"A100-80GB":1,"H100-80GB":2.5},"topology":{"level":"rack","mode":"required"}}'
)


def test_the_table_has_the_fields_of_the_spec_in_their_order():
    assert [field.name for field in JOB_FIELDS] == [field.name for field in fields(JobSpec)]


def test_the_page_has_a_row_for_each_field():
    table = PAGE.read_text().split("\n## Fields\n")[1].split("\n### ")[0]
    missing = [field.name for field in JOB_FIELDS if f"| `{field.name}" not in table]
    assert not missing, f"add a row to {PAGE}"


def test_stored_specs_keep_their_bytes():
    """The objects of running jobs are labelled with a hash of these bytes."""
    plain, full = (spec_json(read_spec(value, Rules())) for value in (PLAIN, FULL))
    assert (encode(plain), encode(full)) == (PLAIN_STORED, FULL_STORED)


def test_placement_sees_of_a_stored_spec_what_steers_it():
    stored = spec_json(read_spec(FULL, Rules()))
    seen = request_of(stored, job_id=UUID(int=1), tenant_path="acme/ml", shape="s", priority=100, kind="k")
    (pods,) = seen.pod_sets
    assert pods == PodSetRequest("main", 2, 500, 1024, GpuRequest(8, ("H100-80GB",), vendor="nvidia"))
    assert seen.constraints == Constraints(
        ("a", "b"), ("c",), ("eu-*",), ("spot",), overflow=(Tier(0, ("a",)),), reservation="mine"
    )
    assert (seen.id, seen.tenant_path, seen.shape, seen.kind) == (UUID(int=1), "acme/ml", "s", "k")
    assert seen.class_name == stored["priority_class"] != "normal"
    assert (seen.priority, seen.strategy, seen.topology) == (100, "pack", Topology("rack", "required"))
    assert (seen.estimated_seconds, seen.deadline_seconds, seen.checkpoint_seconds) == (60, 90, 30)
    assert seen.data == (DataNeed("imagenet", 20 * 2**30),)
    assert seen.throughput == (ModelSpeed("A100-80GB", 1000), ModelSpeed("H100-80GB", 2500))
    plain = request_of(spec_json(read_spec(PLAIN, Rules())), job_id=UUID(int=1), tenant_path="acme", shape="")
    assert plain == JobRequest(
        UUID(int=1),
        "acme",
        "",
        (PodSetRequest("main", 1, 1000, 1024),),
        deadline_seconds=86_400,
        images=("registry.example/train:1",),
        class_name="normal",
    )


@pytest.mark.parametrize(
    ("gpu", "seen"),
    [
        ({"count": 3, "mig": "1g.10gb"}, GpuRequest(3, mig="1g.10gb")),
        ({"fraction": "0.25", "vendor": "amd"}, GpuRequest(1, fraction_milli=250, vendor="amd")),
        ({"count": 2, "models": ["L4"]}, GpuRequest(2, ("L4",))),
    ],
)
def test_placement_sees_each_way_to_ask_for_a_gpu(gpu, seen):
    stored = spec_json(read_spec({**PLAIN, "pod_sets": [POD | {"gpu": gpu}]}, Rules()))
    assert gpu_request_of(stored["pod_sets"][0]["gpu"]) == seen


def test_stored_specs_keep_their_shape():
    """Queued jobs of one shape share a verdict, whichever release stored them."""
    shapes = [shape_of(spec_json(read_spec(value, Rules())), priority) for value, priority in ((PLAIN, 0), (FULL, 100))]
    assert shapes == ["6d54411d03b2e8fcba62c5d009afc713", "f3b717d9db36bb3309e74fde66d3c59e"]

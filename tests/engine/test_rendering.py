import json
import re
from time import process_time
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.engine import names
from federation.engine.intake.normal_form import spec_json
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.objects.rendering import Devices, Identity, kept_levels, render_job, spec_hash, template_patch
from foundation.ids import new_id
from placement.values.model import Topology
from tests.builders import make_spec
from tests.pod_security import violations

from .specs import specs

DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
NOTHING = Devices()
H100 = Devices("nvidia", "spot", "nvidia.com/gpu", 8)


def identity(**changes):
    given: dict[str, Any] = {
        "install": "switchyard",
        "tenant_id": uuid4(),
        "tenant_path": "acme/research/vision",
        "job_id": new_id(),
        "attempt_id": new_id(),
        "attempt_number": 3,
        "spec_hash": "0" * 32,
    }
    return Identity(**(given | changes))


def stored(**changes):
    return spec_json(read_spec(make_spec(**changes), Rules(allow_simulation=True)))


def pod_of(manifest):
    return manifest["spec"]["template"]["spec"]


def environment_of(manifest):
    [container] = pod_of(manifest)["containers"]
    return {item["name"]: item["value"] for item in container["env"]}


@pytest.mark.law
@given(specs, st.sampled_from([NOTHING, H100, Devices("amd", "on_demand", "amd.com/gpu", 1)]))
def test_every_valid_spec_renders_to_pods_that_the_level_restricted_admits(value, devices):
    spec = spec_json(read_spec(value, Rules()))
    for position, pod_set in enumerate(spec["pod_sets"]):
        manifest = render_job(spec, position, identity(), devices)
        assert violations(pod_of(manifest)) == []
        assert manifest["spec"]["suspend"] is True
        assert (manifest["spec"]["backoffLimit"], pod_of(manifest)["restartPolicy"]) == (0, "Never")
        assert manifest["spec"]["parallelism"] == pod_set["count"]
        assert pod_of(manifest)["automountServiceAccountToken"] is False
        assert DNS_LABEL.fullmatch(manifest["metadata"]["name"])
        assert DNS_LABEL.fullmatch(manifest["metadata"]["namespace"])
        assert all(LABEL_VALUE.fullmatch(label) for label in manifest["metadata"]["labels"].values())
        assert manifest["spec"]["template"]["metadata"]["labels"] == manifest["metadata"]["labels"]


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16), st.integers(0, 15))
def test_names_come_from_attempts_and_never_meet(one, other, position):
    name = names.object_name(UUID(bytes=one), position)
    assert DNS_LABEL.fullmatch(name)
    assert (name == names.object_name(UUID(bytes=other), position)) == (one == other)
    assert name != names.object_name(UUID(bytes=one), position + 1)


def test_a_long_tenant_name_is_cut_to_a_valid_namespace():
    tenant_id = uuid4()
    namespace = names.namespace_of("acme/" + "a" * 49 + "-" + "b" * 13, tenant_id)
    assert len(namespace) <= 63
    assert DNS_LABEL.fullmatch(namespace)
    assert namespace.endswith(f"-{tenant_id.hex[-8:]}")


def test_tenants_of_one_name_made_in_the_same_instant_have_namespaces_of_their_own():
    assert names.namespace_of("acme/a/vision", new_id()) != names.namespace_of("acme/b/vision", new_id())


def test_pods_are_told_whose_they_are_and_which_attempt():
    whose = identity()
    told = environment_of(render_job(stored(), 0, whose, NOTHING))
    assert told["SWITCHYARD_JOB_ID"] == str(whose.job_id)
    assert told["SWITCHYARD_ATTEMPT"] == "3"
    assert told["SWITCHYARD_TENANT"] == "acme/research/vision"


def test_gpus_are_asked_for_by_the_flavors_resource_and_hidden_from_pods_without_any():
    with_gpu = render_job(stored(pod={"gpu": {"count": 8}}), 0, identity(), H100)
    [container] = pod_of(with_gpu)["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert container["resources"]["requests"]["nvidia.com/gpu"] == "8"
    assert "NVIDIA_VISIBLE_DEVICES" not in environment_of(with_gpu)
    assert {t["key"] for t in pod_of(with_gpu)["tolerations"]} >= {"nvidia.com/gpu", "cloud.google.com/gke-spot"}
    without = render_job(stored(), 0, identity(), NOTHING)
    assert environment_of(without)["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "tolerations" not in pod_of(without)


def test_only_what_nvidias_own_plugin_gives_is_left_to_its_runtime():
    amd = Devices("amd", "on_demand", "amd.com/gpu", 8)
    rendered = render_job(stored(pod={"gpu": {"count": 8}}), 0, identity(), amd)
    assert environment_of(rendered)["NVIDIA_VISIBLE_DEVICES"] == "void"


@pytest.mark.parametrize("image", ["registry.example/train:1", f"registry.example/train@sha256:{'0' * 64}"])
def test_the_registry_is_asked_each_time_whether_the_tenant_may_have_the_image(image):
    [container] = pod_of(render_job(stored(pod={"image": image}), 0, identity(), NOTHING))["containers"]
    assert (container["image"], container["imagePullPolicy"]) == (image, "Always")


def test_nothing_is_rerun_silently():
    job = render_job(stored(), 0, identity(), NOTHING)["spec"]
    assert job["podReplacementPolicy"] == "Failed"
    assert {rule["action"] for rule in job["podFailurePolicy"]["rules"]} == {"FailJob"}


def test_local_disk_is_limited_without_asking_the_node_for_it():
    [container] = pod_of(render_job(stored(), 0, identity(), NOTHING))["containers"]
    assert container["resources"]["limits"]["ephemeral-storage"] == "64Gi"
    assert container["resources"]["requests"]["ephemeral-storage"] == "0"


def test_completions_make_an_indexed_job():
    job = render_job(stored(completions=100, pod={"count": 5}), 0, identity(), NOTHING)["spec"]
    assert (job["completionMode"], job["parallelism"], job["completions"]) == ("Indexed", 5, 100)


def test_simulated_run_times_become_annotations_only_where_allowed():
    spec = stored(labels={"sim.switchyard.dev/run-seconds": "5"})
    allowed = render_job(spec, 0, identity(), NOTHING, simulated=True)["spec"]["template"]["metadata"]
    assert allowed["annotations"] == {"sim.switchyard.dev/run-seconds": "5"}
    assert "annotations" not in render_job(spec, 0, identity(), NOTHING)["spec"]["template"]["metadata"]


@pytest.mark.parametrize("mode", ["required", "preferred"])
def test_kueue_is_told_the_topology_by_the_label_of_its_level_beside_what_else_is_annotated(mode):
    spec = stored(topology={"level": "rack", "mode": mode}, labels={"sim.switchyard.dev/run-seconds": "5"})
    job = render_job(spec, 0, identity(), NOTHING, kueue_label="example.com/rack", simulated=True)
    assert job["spec"]["template"]["metadata"]["annotations"] == {
        "sim.switchyard.dev/run-seconds": "5",
        f"kueue.x-k8s.io/podset-{mode}-topology": "example.com/rack",
    }


def test_a_users_labels_do_not_reach_the_cluster():
    manifest = json.dumps(render_job(stored(labels={"experiment": "forty-two"}), 0, identity(), NOTHING))
    assert "forty-two" not in manifest


def test_the_spec_hash_ignores_order_and_nothing_else():
    spec = stored(pod={"env": {"A": "1", "B": "2"}})
    turned = json.loads(json.dumps(spec))
    turned["pod_sets"][0]["env"] = {"B": "2", "A": "1"}
    assert spec_hash(turned) == spec_hash(spec)
    turned["pod_sets"][0]["env"]["A"] = "3"
    assert spec_hash(turned) != spec_hash(spec)
    assert len(spec_hash(spec)) == 32


def node_affinity(*arguments, **named):
    """(required terms, preferred terms) of a release."""
    affinity = template_patch(*arguments, **named)["spec"]["affinity"]["nodeAffinity"]
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    return required, affinity.get("preferredDuringSchedulingIgnoredDuringExecution", [])


RACK = {"rack": "r1", "!better-rack": "*"}


def test_a_domain_that_must_be_kept_is_required_beside_the_flavor_and_its_nodes_are_only_preferred():
    [term], [wish] = node_affinity({"product": "H100", "!spot": "*"}, ["n1", "n2"], domain=[RACK], must_keep=True)
    assert {(e["key"], e["operator"]) for e in term["matchExpressions"]} == {
        ("product", "In"), ("spot", "DoesNotExist"), ("rack", "In"), ("better-rack", "DoesNotExist")
    }  # fmt: skip
    assert wish["preference"]["matchExpressions"] == [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1", "n2"]}
    ]


def test_a_domain_that_should_be_kept_is_preferred_less_than_its_nodes():
    [term], wishes = node_affinity({"product": "H100"}, ["n1"], domain=[RACK])
    assert [e["key"] for e in term["matchExpressions"]] == ["product"]
    assert [(w["weight"], w["preference"]["matchExpressions"][-1]["key"]) for w in wishes] == [
        (100, "kubernetes.io/hostname"), (50, "rack")
    ]  # fmt: skip


def test_a_domain_that_is_labelled_in_two_ways_is_either_of_them_each_beside_the_flavor():
    terms, _ = node_affinity({"product": "H100"}, ["n1"], domain=[{"rack": "r1"}, {"leaf": "r1"}], must_keep=True)
    assert [[e["key"] for e in term["matchExpressions"]] for term in terms] == [
        ["product", "rack"],
        ["product", "leaf"],
    ]


def test_where_no_label_tells_the_domain_the_chosen_nodes_are_required_by_name():
    terms, wishes = node_affinity({"product": "H100"}, ["n1", "n2"], must_keep=True)
    assert [term["matchFields"] for term in terms] == [
        [{"key": "metadata.name", "operator": "In", "values": [name]}] for name in ("n1", "n2")
    ]
    assert all(term["matchExpressions"][0]["key"] == "product" for term in terms)
    assert wishes == []
    [bare], _ = node_affinity({}, ["n1"], must_keep=True)
    assert list(bare) == ["matchFields"]


@pytest.mark.parametrize(
    ("topology", "reached", "levels"),
    [
        (Topology("rack", "required"), "rack", ("rack",)),
        (Topology("rack", "required"), "node", ("rack", "clique")),
        (Topology("zone", "required"), "clique", ("zone", "block", "rack", "clique")),
        (Topology("node", "required"), "node", ()),
        (Topology("cluster", "required"), "rack", ("rack",)),
        (Topology("rack", "preferred"), "block", ("block",)),
        (Topology("rack", "preferred"), "cluster", ()),
        (Topology(), "node", ()),
        (Topology(), "clique", ("clique",)),
    ],
)
def test_the_level_that_is_told_is_the_required_one_or_else_the_one_that_was_reached(topology, reached, levels):
    assert kept_levels(topology, reached) == levels


def test_nothing_to_hint_is_an_empty_patch():
    assert template_patch({}) == {}


def test_rendering_and_encoding_take_well_under_a_third_of_a_millisecond():
    spec, whose, rounds = stored(pod={"env": {f"V{n}": "x" for n in range(20)}}), identity(), 300
    best = float("inf")
    for _ in range(3):
        started = process_time()
        for _ in range(rounds):
            msgspec.json.encode(render_job(spec, 0, whose, H100))
        best = min(best, (process_time() - started) / rounds)
    assert best < 0.0003

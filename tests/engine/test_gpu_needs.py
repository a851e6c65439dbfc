"""What a job's GPUs must be: read, written, and enforced where its pods land."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.drivers.port import Refused as RefusedByCluster
from clusters.drivers.simulated.allocation import _matches as claim_matches
from clusters.drivers.simulated.allocation import check_template
from clusters.drivers.simulated.life import _matches as node_matches
from clusters.drivers.simulated.objects import Node
from clusters.engine.claimable import DeviceSeen, device_of
from clusters.engine.gpu_facts import labelled
from clusters.engine.quantities import parse
from federation.engine.intake.gpu_needs import gpu_needs_of
from federation.engine.intake.normal_form import request_of, shape_of, spec_json
from federation.engine.intake.reading import Refused
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.objects.gpu_needs import ANY_NODE, alternatives_of, enforced, narrowed, node_needs
from federation.engine.objects.rendering import MOST_TERMS, template_patch
from federation.engine.objects.resource_claims import Claimable, resource_claim_templates
from placement.values.advance import Bounds
from placement.values.gpu_needs import GpuNeeds, lack_of
from tests.builders import make_spec

from .test_gpu_facts import ATTRIBUTES, LABELS

ALL = {
    "gpu_memory_gib_min": 40,
    "gpu_architecture": ["hopper", "ada-lovelace", "hopper"],
    "gpu_compute_capability_min": "8.9",
    "gpu_driver_min": "550.054.15",
    "gpu_cuda_min": "12",
}
NEEDS = GpuNeeds(40960, ("ada-lovelace", "hopper"), (8, 9), (550, 54, 15), (12,))


def stored(**constraints):
    return spec_json(read_spec(make_spec(pod={"gpu": {"count": 1}}, constraints=constraints), Rules()))


def faults(**constraints):
    with pytest.raises(Refused) as refusal:
        read_spec(make_spec(constraints=constraints), Rules())
    return [(fault.field, fault.code, fault.detail) for fault in refusal.value.faults]


def test_needs_are_read_written_and_read_again():
    written = stored(**ALL)
    told = written["constraints"]
    assert {name: told[name] for name in ALL} == {
        **ALL, "gpu_architecture": ["ada-lovelace", "hopper"], "gpu_driver_min": "550.54.15",
    }  # fmt: skip
    assert gpu_needs_of(told) == NEEDS
    assert spec_json(read_spec(written, Rules())) == written


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_single_need_is_stored_alone_and_reaches_placement(name):
    written = stored(**{name: ALL[name]})
    assert set(written["constraints"]) & set(ALL) == {name}
    request = request_of(written, job_id=None, tenant_path="acme", shape="")
    assert request.pod_sets[0].gpu.needs == gpu_needs_of(written["constraints"]) != GpuNeeds()
    assert shape_of(written) != shape_of(stored())


def test_a_spec_without_needs_keeps_its_bytes():
    assert not set(stored()["constraints"]) & set(ALL)
    assert stored(**dict.fromkeys(ALL)) == stored() == stored(gpu_architecture=[])
    assert gpu_needs_of(stored()["constraints"]) is None


def test_pods_without_a_gpu_need_nothing():
    pods = [
        {**make_spec()["pod_sets"][0], "name": "a", "gpu": {"count": 1}},
        {**make_spec()["pod_sets"][0], "name": "b", "gpu": None},
    ]
    written = spec_json(read_spec(make_spec(pod_sets=pods, constraints={"gpu_driver_min": "550"}), Rules()))
    first, second = request_of(written, job_id=None, tenant_path="acme", shape="").pod_sets
    assert (first.gpu.needs, second.gpu) == (GpuNeeds(driver=(550,)), None)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        *(("gpu_memory_gib_min", value, "wrong_type") for value in ("40", 40.0, True, [40], {})),
        *(("gpu_memory_gib_min", value, "out_of_range") for value in (0, -1, 1025, 10**30)),
        *(("gpu_architecture", value, "bad_format") for value in (["Hopper"], ["a b"], ['x" in y'], ["ü"], [""], ["a" * 32])),
        *(("gpu_architecture", value, "wrong_type") for value in ("hopper", [1], [None], {"a": 1})),
        ("gpu_architecture", [f"a{n}" for n in range(17)], "too_many"),
        *(
            (name, value, code)
            for name in ("gpu_driver_min", "gpu_cuda_min", "gpu_compute_capability_min")
            for value, code in (
                (550, "wrong_type"), (12.4, "wrong_type"), (True, "wrong_type"), ("", "bad_format"), ("0", "bad_format"),
                ("12.", "bad_format"), ("1.2.3.4", "bad_format"), ("-1", "bad_format"), ("v550", "bad_format"),
                ("\u0663", "bad_format"), ("1\n", "bad_format"), ('1")) || true', "bad_format"), ("1" * 7, "bad_format"),
                ("1" * 25, "too_long"), ("1\x00", "bad_characters"),
            )
        ),
        ("gpu_drivers_min", "550", "unknown_field"),
    ],
)  # fmt: skip
def test_a_need_that_is_none_is_refused_with_its_path(name, value, code):
    [(field, found, detail)] = faults(**{name: value})
    assert found == code
    assert field.startswith(f"constraints.{name}")
    assert "true" not in detail


def kind_of(labels, name="nvidia.com/gpu.memory"):
    return Node("n1", "u", dict(labels), {}, [], is_ready=True, is_schedulable=True), labelled(labels, name)


def is_let_in(needs, node, resource="nvidia.com/gpu", **more):
    patch = template_patch({}, devices=node_needs(needs, resource), **more)
    terms = patch["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    return any(node_matches(term, node) for term in terms)


small = st.integers(0, 3)
some_labels = st.fixed_dictionaries(
    {},
    optional={
        "nvidia.com/gpu.memory": st.sampled_from(["40960", "81559", "0", "x", "-5"]),
        "nvidia.com/gpu.family": st.sampled_from(["hopper", "ampere", "Hopper", ""]),
        **{
            key: small.map(str) | st.sampled_from(["01", "", "rc"])
            for key in LABELS
            if ".major" in key or ".minor" in key or ".rev" in key
        },
    },
)
least = st.tuples(st.integers(1, 3)) | st.tuples(st.integers(1, 3), small) | st.tuples(st.integers(1, 3), small, small)
some_needs = st.builds(
    GpuNeeds,
    memory_mib=st.sampled_from([0, 40960, 65536]),
    architectures=st.sampled_from([(), ("hopper",), ("ampere", "hopper")]),
    compute=st.just(()) | least,
    driver=st.just(()) | least,
    cuda=st.just(()) | least,
).filter(lambda needs: needs != GpuNeeds())


@given(some_labels, some_needs)
def test_a_node_that_placement_chooses_is_let_in_by_its_labels_and_no_other_that_is_known(labels, needs):
    node, facts = kind_of(labels)
    if lack_of(needs, facts) is None:
        assert is_let_in(needs, node)
    elif is_let_in(needs, node):
        # enough of a version can be labelled where the rest of it is not: then placement is the stricter one
        assert lack_of(needs, facts).code == "gpu_fact_unknown"
        assert not all(
            (facts.compute or not needs.compute, facts.driver or not needs.driver, facts.cuda or not needs.cuda)
        )


def test_every_requirement_is_one_that_kubernetes_accepts():
    for needs in (NEEDS, GpuNeeds(driver=(550, 0, 1)), GpuNeeds(cuda=(12, 0)), GpuNeeds(compute=(1, 0, 5))):
        for expressions in alternatives_of(needs, "nvidia.com/gpu"):
            for one in expressions:
                if one["operator"] in ("Gt", "Lt"):
                    [value] = one["values"]
                    assert value.isdigit()


def test_a_slices_memory_has_its_own_label():
    needs = GpuNeeds(memory_mib=8192)
    [[one]] = alternatives_of(needs, "nvidia.com/mig-1g.10gb")
    assert one == {"key": "nvidia.com/mig-1g.10gb.memory", "operator": "Gt", "values": ["8191"]}


def test_every_way_to_a_node_asks_for_what_its_gpus_must_be():
    node, _ = kind_of(LABELS)
    older, _ = kind_of(LABELS | {"nvidia.com/cuda.driver.major": "535"})
    needs = GpuNeeds(driver=(550, 54))
    for more in (
        {}, {"bounds": Bounds(only=("n1",))}, {"bounds": Bounds(never=("n2",))},
        {"must_keep": True, "assumed_nodes": ["n1"]}, {"must_keep": True, "domain": [{}], "assumed_nodes": ["n1"]},
    ):  # fmt: skip
        assert is_let_in(needs, node, **more)
        assert not is_let_in(needs, older, **more)


def test_a_patch_without_needs_is_as_before():
    assert template_patch({}, devices=ANY_NODE) == {}


def test_many_named_nodes_with_many_alternatives_stay_within_the_bound():
    names = [f"n{number}" for number in range(1000)]
    needs = GpuNeeds(compute=(8, 9), driver=(550, 54, 15), cuda=(12, 4))
    assert len(alternatives_of(needs, "")) == 12
    made = node_needs(needs, "")
    patch = template_patch({}, names, must_keep=True, devices=made)
    terms = patch["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert len(terms) == len(names) <= MOST_TERMS
    assert all(term["matchExpressions"] == list(made.coarse) for term in terms)


def claimed(needs, attributes=ATTRIBUTES):
    device = device_of("gpu.nvidia.com", DeviceSeen("gpu-0", attributes, "81559Mi"))
    return Claimable(device.device_class, narrowed(device.cel, needs, device.resource))


some_attributes = st.fixed_dictionaries(
    {"type": st.just("gpu"), "productName": st.just("NVIDIA H100 80GB HBM3")},
    optional={
        "architecture": st.sampled_from(["Hopper", "hopper", "HOPPER", "Ampere", "Ada Lovelace"]),
        **{
            name: st.tuples(small, small, small).map(lambda version: ".".join(map(str, version)))
            for name in ("cudaComputeCapability", "driverVersion", "cudaDriverVersion")
        },
    },
)


@given(some_attributes, some_needs, st.sampled_from(["", "40Gi", "81559Mi"]))
def test_a_claim_gets_exactly_the_devices_that_placement_counts_on(attributes, needs, memory):
    seen = DeviceSeen("gpu-0", attributes, memory)
    [template] = resource_claim_templates("swy-x", "me", claimed(needs, attributes), 1)
    check_template(template)
    [request] = template["spec"]["spec"]["devices"]["requests"]
    device = device_of("gpu.nvidia.com", seen)
    is_good = lack_of(needs, device.facts) is None
    assert claim_matches(request["exactly"], "gpu.nvidia.com", seen) is is_good
    assert not claim_matches(request["exactly"], "gpu.amd.com", seen)


def test_a_narrowed_claim_has_its_own_template():
    plain, narrow = claimed(GpuNeeds()), claimed(GpuNeeds(driver=(550,)))
    names = {resource_claim_templates("swy-x", "me", one, 1)[0]["metadata"]["name"] for one in (plain, narrow)}
    assert len(names) == 2


def test_an_expression_checks_each_attribute_before_it_reads_it():
    tests = claimed(NEEDS).cel.split(" && ")
    for name in ("cudaComputeCapability", "driverVersion", "cudaDriverVersion", "architecture"):
        present, used = (
            next(n for n, test in enumerate(tests) if word in test) for word in (f'"{name}" in', f".{name}")
        )
        assert present < used
    assert 'device.attributes["gpu.nvidia.com"].driverVersion.compareTo(semver("550.54.15")) >= 0' in tests
    assert 'device.attributes["gpu.nvidia.com"].cudaDriverVersion.compareTo(semver("12.0.0")) >= 0' in tests
    assert 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40960Mi")) >= 0' in tests
    assert parse("40960Mi") == parse("40Gi")


def test_the_simulated_allocator_refuses_an_expression_that_it_cannot_read():
    [template] = resource_claim_templates("swy-x", "me", replace(claimed(NEEDS), cel="true"), 1)
    with pytest.raises(RefusedByCluster):
        check_template(template)


def test_claimed_devices_are_narrowed_and_others_are_found_by_the_labels_of_their_node():
    needs, cel = GpuNeeds(memory_mib=40 * 1024), 'device.driver == "gpu.nvidia.com"'
    assert enforced(needs, "nvidia.com/gpu", "") == (node_needs(needs, "nvidia.com/gpu"), "")
    claimed = "claim/gpu.nvidia.com/h100-1"
    assert enforced(needs, claimed, cel) == (ANY_NODE, narrowed(cel, needs, claimed))
    for asked, resource in ((None, "nvidia.com/gpu"), (needs, "")):
        assert enforced(asked, resource, cel) == (ANY_NODE, cel)

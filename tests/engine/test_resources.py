"""Resources besides CPU, memory and GPUs: which may be on the list, what nodes have of them, and what jobs ask."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.drivers import NodeSeen, PodSeen
from clusters.engine.inventory import node_record, use_of
from clusters.engine.resources import HUGE_PAGES_MIB, amount_text, amounts_offered, name_fault, told
from federation.engine.intake.manifest import read_manifest
from federation.engine.intake.normal_form import request_of, shape_of, spec_json
from federation.engine.intake.reading import Refused
from federation.engine.intake.resources import resource_amounts
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.objects.rendering import Devices, render_job
from federation.queries.pod_set_lines import pod_set_line
from tests.builders import make_spec

from .test_manifest import MANIFEST
from .test_meeting import WHOSE

RDMA, EFA = "rdma/hca", "vpc.amazonaws.com/efa"
ALLOWED = ("hugepages-1Gi", "hugepages-2Mi", RDMA, EFA)
RULES = Rules(resources=ALLOWED)


def stored(resources=None, rules=RULES):
    return spec_json(read_spec(make_spec(pod={"resources": resources}), rules))


def faults(resources, rules=RULES):
    with pytest.raises(Refused) as refusal:
        stored(resources, rules)
    return [(fault.field, fault.code, fault.detail) for fault in refusal.value.faults]


@pytest.mark.parametrize(
    "name",
    ["rdma/hca", "rdma/hca_shared_devices_a", EFA, "nvidia.com/gpumem", "nvidia.com/gpucores", "volcano.sh/vgpu-memory",
     "xilinx.com/fpga-xilinx_u250_gen3x16_xdma_3_1_base_2", "aws.amazon.com/neuron", "hugepages-2Mi", "hugepages-1Gi"],
)  # fmt: skip
def test_a_device_plugins_resource_may_be_on_the_list(name):
    assert not name_fault(name)


@pytest.mark.parametrize(
    "name",
    ["cpu", "memory", "pods", "ephemeral-storage", "hugepages-64Ki", "hugepages-", "rdma", "/hca", "rdma/", "a/b/c", "a b/c",
     "Rdma/hca", "rdma/hca\n", 'rdma/h"ca', "rdma/h'ca", "rdma/" + "x" * 64, "x" * 300 + "/y", "ä/b", "",
     "requests.example.com/x", "kubernetes.io/x", "node.kubernetes.io/x", "x.k8s.io/y"],
)  # fmt: skip
def test_a_name_that_is_none_or_the_clusters_own_may_not(name):
    assert name_fault(name)


@pytest.mark.parametrize(
    "name",
    ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-1g.10gb.shared", "amd.com/gpu",
     "amd.com/cpx_nps4", "google.com/tpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi"],
)  # fmt: skip
def test_a_device_that_quotas_count_may_not(name):
    assert "quotas count" in name_fault(name)


def test_a_node_offers_what_is_allowed_and_plausible():
    allocatable = {
        RDMA: "4", EFA: "-1", "hugepages-2Mi": "1025Mi", "hugepages-1Gi": "0", "example.com/other": "9", "memory": "1Ti",
    }  # fmt: skip
    found, problems = amounts_offered(allocatable, ALLOWED)
    assert found == {RDMA: 4, "hugepages-2Mi": 1025}
    assert problems == (f"{EFA}: '-1' is negative",)
    assert amounts_offered(allocatable, ()) == ({}, ())


def test_a_node_record_has_them_and_says_what_is_implausible():
    seen = NodeSeen("n", "u", {}, [], {"cpu": "4", RDMA: "2", EFA: "1e30"}, True, True)
    record = node_record(seen, allowed=ALLOWED)
    assert record.resources == {RDMA: 2}
    [problem] = [one for one in record.problems if one.startswith(EFA)]
    assert len(problem) < 100
    assert node_record(seen).resources == {}


def pod_requesting(**requests):
    return PodSeen("x", "p", "u", {}, "n", "Running", "", requests, None, None, None, False)


def test_a_pods_huge_pages_and_devices_count_and_its_implausible_requests_do_not():
    used = use_of(
        pod_requesting(**{"cpu": "1", "hugepages-2Mi": "3Mi", "hugepages-1Gi": "x", RDMA: "2", EFA: "-2", "odd": "1"})
    )
    assert used.devices == {"hugepages-2Mi": 3, RDMA: 2}


def test_amounts_are_read_written_and_read_again():
    written = stored({RDMA: 1, "hugepages-2Mi": "1Gi", "hugepages-1Gi": 2**31, EFA: "4"})
    assert written["pod_sets"][0]["resources"] == {
        EFA: 4, "hugepages-1Gi": "2Gi", "hugepages-2Mi": "1Gi", RDMA: 1,
    }  # fmt: skip
    assert spec_json(read_spec(written, RULES)) == written
    request = request_of(written, job_id=None, tenant_path="acme", shape="")
    assert request.pod_sets[0].resources == (("hugepages-1Gi", 2048), ("hugepages-2Mi", 1024), (RDMA, 1), (EFA, 4))
    assert resource_amounts(written["pod_sets"][0]) == request.pod_sets[0].resources


def test_a_spec_without_them_keeps_its_bytes_and_its_shape():
    assert stored() == stored({}) == spec_json(read_spec(make_spec(), Rules()))
    assert "resources" not in stored()["pod_sets"][0]
    assert shape_of(stored({RDMA: 1})) != shape_of(stored()) != shape_of(stored({RDMA: 2}))


@given(st.dictionaries(st.sampled_from(ALLOWED), st.integers(1, 400), max_size=4))
def test_any_allowed_amounts_come_back_as_they_were_asked(asked):
    given_amounts = {
        name: f"{n * HUGE_PAGES_MIB[name]}Mi" if name in HUGE_PAGES_MIB else n for name, n in asked.items()
    }
    assert dict(resource_amounts(stored(given_amounts)["pod_sets"][0])) == {
        name: n * HUGE_PAGES_MIB.get(name, 1) for name, n in asked.items()
    }


@pytest.mark.parametrize(
    "amount", [0, -1, 0.5, "500m", "1.5", 10**7, "1e30", "", "x", "1 ", True, None, [], {}, "9" * 40, "NaN"]
)
def test_only_a_whole_number_of_devices_can_be_requested(amount):
    [(field, code, detail)] = faults({RDMA: amount})
    assert field == f"pod_sets[0].resources.{RDMA}"
    assert code in {"bad_quantity", "wrong_type", "required", "too_long"}
    assert "9999" not in detail


@pytest.mark.parametrize("amount", ["1Mi", "3Mi", "1", 1, "0", "-2Mi", "2.5Mi", "65Ti", "x"])
def test_huge_pages_can_be_requested_only_in_whole_pages(amount):
    [(field, code, detail)] = faults({"hugepages-2Mi": amount})
    assert (field, code) == ("pod_sets[0].resources.hugepages-2Mi", "bad_quantity")
    assert detail.startswith("a size in whole pages, such as 4Mi, at least one and at most ")
    assert faults({"hugepages-1Gi": "1536Mi"})[0][1] == "bad_quantity"


@pytest.mark.parametrize(
    "name", ["example.com/other", "cpu", "nvidia.com/gpu", "", "x" * 500, "a\nb", "<script>", "\x00"]
)
def test_a_resource_that_is_not_on_the_list_is_refused_with_the_list_and_no_echo(name):
    [(field, code, detail)] = faults({name: 1})
    assert code == "not_allowed"
    assert detail.endswith(f"besides cpu, memory and gpu: {', '.join(sorted(ALLOWED))}")
    assert field.isprintable()
    assert len(field) < 150


def test_an_installation_may_allow_none():
    [(_, code, detail)] = faults({RDMA: 1}, Rules())
    assert (code, "the administrators allow no other resources" in detail) == ("not_allowed", True)


def test_a_pod_has_at_most_sixteen_of_them():
    names = tuple(f"example.com/r{number}" for number in range(17))
    [(field, code, _)] = faults(dict.fromkeys(names, 1), Rules(resources=names))
    assert (field, code) == ("pod_sets[0].resources", "too_many")
    assert faults([RDMA])[0][1] == "wrong_type"


def test_requests_and_limits_are_equal():
    written = stored({RDMA: 1, "hugepages-1Gi": "2Gi"})
    [container] = render_job(written, 0, WHOSE, Devices())["spec"]["template"]["spec"]["containers"]
    for side in ("requests", "limits"):
        assert container["resources"][side][RDMA] == "1"
        assert container["resources"][side]["hugepages-1Gi"] == "2Gi"


def test_a_manifest_may_ask_for_them_and_is_refused_in_its_own_terms():
    resources = {"cpu": "1", "memory": "1Gi", RDMA: "2", "hugepages-2Mi": "4Mi"}
    made = deepcopy(MANIFEST)
    [container] = made["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"limits": resources, "requests": resources}
    assert read_manifest(made, {}, RULES).pod_sets[0].resources == (("hugepages-2Mi", 4), (RDMA, 2))
    with pytest.raises(Refused) as refusal:
        read_manifest(made, {}, Rules(resources=("hugepages-2Mi",)))
    [fault] = refusal.value.faults
    assert fault.field.endswith(f"containers[0].resources.requests.{RDMA}")
    container["resources"] = {"limits": resources | {RDMA: "1"}, "requests": resources}
    with pytest.raises(Refused) as refusal:
        read_manifest(made, {}, RULES)
    assert [fault.code for fault in refusal.value.faults] == ["conflict"]


def test_the_jobs_page_says_what_a_pod_uses():
    line = pod_set_line(stored({RDMA: 1, "hugepages-1Gi": "2Gi"})["pod_sets"][0])
    assert line.local_state == ("2Gi of hugepages-1Gi and 1 rdma/hca",)


def test_amounts_are_told_in_units_that_users_know():
    assert amount_text("hugepages-2Mi", 1026) == "1026Mi"
    assert told([(RDMA, 1)]) == "1 rdma/hca"
    assert told([(RDMA, 1), (EFA, 2), ("hugepages-1Gi", 1024)]) == f"1 rdma/hca, 2 {EFA} and 1Gi of hugepages-1Gi"

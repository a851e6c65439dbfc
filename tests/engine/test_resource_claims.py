"""What pods claim devices by: a template for each kind and number, named after what it says."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from federation.engine import names
from federation.engine.intake.normal_form import spec_json
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.objects.rendering import Devices, Identity, render_job
from federation.engine.objects.resource_claims import (
    MOST_PER_CLAIM,
    Claimable,
    resource_claim_templates,
    resource_claims_of,
)
from tests.builders import make_spec

H100 = Claimable("gpu.nvidia.com", 'device.driver == "gpu.nvidia.com"')
ID = UUID(int=1)
WHOSE = Identity("test", ID, "acme/research", ID, ID, 1, "0" * 32)


def pod_of(devices: Devices) -> dict:
    stored = spec_json(read_spec(make_spec(pod={"gpu": {"count": 8}}), Rules()))
    return render_job(stored, 0, WHOSE, devices)["spec"]["template"]["spec"]


def test_a_pod_claims_what_it_takes_and_asks_for_no_extended_resource():
    pod = pod_of(Devices("nvidia", "on_demand", "claim/gpu.nvidia.com/h100-1", 8, H100))
    [template] = resource_claim_templates("swy-a", "test", H100, 8)
    name = template["metadata"]["name"]
    assert pod["resourceClaims"] == [{"name": "devices-0", "resourceClaimTemplateName": name}]
    resources = pod["containers"][0]["resources"]
    assert resources["claims"] == [{"name": "devices-0"}]
    assert set(resources["requests"]) == set(resources["limits"]) == {"cpu", "memory", "ephemeral-storage"}
    assert {entry["key"] for entry in pod["tolerations"]} >= {"nvidia.com/gpu"}


def test_a_pod_sees_the_claimed_devices_alone_whatever_its_image_says():
    pod = pod_of(Devices("nvidia", "on_demand", "claim/gpu.nvidia.com/h100-1", 8, H100))
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in pod["containers"][0]["env"]


def test_a_pod_that_takes_none_claims_none_even_where_devices_are_claimed():
    pod = pod_of(Devices("nvidia", "on_demand", "claim/gpu.nvidia.com/h100-1", 0, H100))
    assert "resourceClaims" not in pod
    assert "claims" not in pod["containers"][0]["resources"]
    assert resource_claim_templates("swy-a", "test", H100, 0) == []


def test_a_template_asks_for_exactly_so_many_of_one_kind_and_marks_its_claims_as_ours():
    [template] = resource_claim_templates("swy-a", "test", H100, 8)
    [request] = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {
        "deviceClassName": "gpu.nvidia.com",
        "selectors": [{"cel": {"expression": H100.cel}}],
        "allocationMode": "ExactCount",
        "count": 8,
    }
    assert template["metadata"]["namespace"] == "swy-a"
    assert template["spec"]["metadata"]["labels"] == {names.LABEL_INSTALL: "test"}


kinds = st.builds(Claimable, st.sampled_from(["gpu.nvidia.com", "mig.nvidia.com"]), st.sampled_from(["a", "b"]))


@given(kinds, kinds, st.integers(1, 200), st.integers(1, 200))
def test_equal_requests_share_their_templates_and_others_never_do(one, other, units, more):
    claims = resource_claims_of(one, units)
    assert sum(count for _, count in claims) == units
    assert all(1 <= count <= MOST_PER_CLAIM for _, count in claims)
    made = {
        template["metadata"]["name"]: template["spec"] for template in resource_claim_templates("n", "i", one, units)
    }
    assert set(made) == {name for name, _ in claims}
    assert all(names.dns_label(name) for name in made)
    for template in resource_claim_templates("n", "i", other, more):
        known = made.get(template["metadata"]["name"])
        assert known is None or known == template["spec"]

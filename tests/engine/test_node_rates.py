"""The rates of nodes and devices: a share, and the range that so few jobs leave open."""

import pytest

from federation.engine.claimed import MOST_DEVICES, device_names, short_names
from federation.engine.failures.rates import Rate

NVIDIA = "gpu.nvidia.com"


@pytest.mark.parametrize(
    ("failures", "jobs", "share", "low", "high"),
    [
        (0, 0, None, 0.0, 1.0),
        (0, 1, 0.0, 0.0, 0.7935),
        (1, 1, 1.0, 0.2065, 1.0),
        (0, 10, 0.0, 0.0, 0.2775),
        (5, 10, 0.5, 0.2366, 0.7634),
        (10, 10, 1.0, 0.7225, 1.0),
        (1, 100, 0.01, 0.0018, 0.0545),
        (10, 10_000, 0.001, 0.0005, 0.0018),
    ],
)
def test_a_rate_has_wilsons_interval(failures, jobs, share, low, high):
    rate = Rate(failures, jobs)
    assert rate.share == share
    assert (round(rate.low, 4), round(rate.high, 4)) == (low, high)


@pytest.mark.parametrize(
    ("here", "elsewhere", "is_above"),
    [
        ((0, 0), (0, 0), False),
        ((9, 9), (0, 0), False),  # there is nothing to compare it with
        ((0, 50), (0, 100), False),
        ((1, 1), (0, 1000), False),  # one failure proves nothing
        ((2, 6), (0, 1000), True),
        ((2, 6), (5, 100), False),  # its range begins at 10 %, theirs ends at 11 %
        ((2, 6), (5, 120), True),
        ((4, 9), (1, 30), True),
        ((3, 30), (10, 100), False),
    ],
)
def test_a_node_is_worse_than_others_if_its_range_is_above_theirs(here, elsewhere, is_above):
    assert Rate(*here).is_above(Rate(*elsewhere)) is is_above


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ((NVIDIA, "node-1", "gpu-0"), "gpu.nvidia.com/node-1/gpu-0"),
        ((NVIDIA, "rack/node-1", "gpu-0-mig-1g.10gb"), "gpu.nvidia.com/rack/node-1/gpu-0-mig-1g.10gb"),
        ((NVIDIA, "node-1", "gpu/0"), None),
        ((NVIDIA, "node-1", ""), None),
        ((NVIDIA, "", "gpu-0"), None),
        (("", "node-1", "gpu-0"), None),
        ((NVIDIA, "node-1", "<b>"), None),
        ((NVIDIA, "node-1", "💥"), None),
        ((NVIDIA, "node-1", "gpu-0\n"), None),
        ((NVIDIA, "n" * 253, "g" * 253), None),
        ((NVIDIA, "n" * 254, "gpu-0"), None),
    ],
)
def test_a_device_has_a_name_of_kubernetes_form_or_is_not_kept(device, name):
    assert device_names([device]) == ({name} if name else set())


def test_of_too_many_devices_some_are_kept():
    assert len(device_names((NVIDIA, "n", f"gpu-{number}") for number in range(1000))) == MOST_DEVICES


def test_a_device_is_called_by_its_own_name_unless_two_have_it():
    assert short_names(["d/n1/gpu-0", "d/n1/gpu-1"]) == {"d/n1/gpu-0": "gpu-0", "d/n1/gpu-1": "gpu-1"}
    assert short_names(["d/n1/gpu-0", "e/n1/gpu-0"]) == {"d/n1/gpu-0": "d/n1/gpu-0", "e/n1/gpu-0": "e/n1/gpu-0"}
    assert short_names([]) == {}

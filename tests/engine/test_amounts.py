"""What jobs take of a quota."""

import pytest

from placement.fleet.amounts import amounts_of, units_per_pod
from placement.values.model import GpuRequest

from .fleets import A100, H100, flavor, job, pods


@pytest.mark.parametrize(
    ("pod_set", "of", "milli"),
    [
        (pods(3, 8), flavor(), 24_000),
        (pods(2, 3, mig="1g.10gb"), flavor(sharing="mig:1g.10gb"), 6000 // 7),
        (pods(7, 1, mig="1g.10gb"), flavor(sharing="mig:1g.10gb"), 1000),
        (pods(4, 1, mig="1g.6gb"), flavor("A30", sharing="mig:1g.6gb"), 1000),
        (pods(1, 1, mig="3g.40gb"), flavor(sharing="mig:3g.40gb"), 428),
        (pods(1, 1, mig="7g.80gb"), flavor(sharing="mig:7g.80gb"), 1000),
        (pods(4, 1, fraction=500), flavor(sharing="timeslice:4"), 2000),
        (pods(1, 1, fraction=1), flavor(sharing="timeslice:3"), 333),
        (pods(1, 1, fraction=334), flavor(sharing="timeslice:3"), 666),
    ],
)
def test_devices_are_counted_in_thousandths_of_a_gpu(pod_set, of, milli):
    amounts = amounts_of(job(pod_set), {"worker": of})
    assert amounts["gpu"] == amounts[f"gpu:{of.gpu_model}"] == milli


def test_pod_sets_on_different_models_add_up():
    asked = job(pods(2, 4), pods(1, 8, name="b", cpu=500), pods(3, 0, name="c", memory=10))
    amounts = amounts_of(asked, {"worker": flavor(), "b": flavor(A100), "c": flavor("")})
    assert amounts == {
        "gpu": 16_000, f"gpu:{H100}": 8_000, f"gpu:{A100}": 8_000, "cpu": 2000 + 500 + 3000, "memory": 2048 + 1024 + 30, "jobs": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("gpu", "of", "units"),
    [
        (None, flavor(), 0),
        (GpuRequest(2), flavor(), 2),
        (GpuRequest(2, (A100,)), flavor(), None),
        (GpuRequest(2), flavor(""), None),
        (GpuRequest(2), flavor(sharing="timeslice:4"), None),
        (GpuRequest(2), flavor(sharing="mig:1g.10gb"), None),
        (GpuRequest(1, (), "1g.10gb"), flavor(), None),
        (GpuRequest(1, (), "", 250), flavor(sharing="timeslice:4"), 1),
        (GpuRequest(1, (), "", 251), flavor(sharing="timeslice:4"), 2),
        (GpuRequest(1, (), "", 250), flavor(), None),
    ],
)
def test_each_request_is_served_by_its_kind_of_flavor_only(gpu, of, units):
    assert units_per_pod(gpu, of) == units

"""GPU models as people write them."""

import pytest

from placement.fleet.amounts import is_wanted
from placement.ranking.pace import pace_on
from placement.values.gpu_names import means, models_meant, nearest_models
from placement.values.model import GpuRequest, ModelSpeed

from .fleets import flavor

FLEET = ["A100-40GB", "A100-80GB", "H100-80GB", "H100-NVL", "H200-141GB", "L4", "L40S", "MI300X", "RTX-PRO-6000"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("H100", ["H100-80GB", "H100-NVL"]),
        ("h100-nvl", ["H100-NVL"]),
        ("A100-80GB", ["A100-80GB"]),
        ("L4", ["L4"]),
        ("RTX-PRO", ["RTX-PRO-6000"]),
        ("RTX-PRO-60", []),
        ("H", []),
        ("", []),
        ("H100-", []),
    ],
)
def test_a_short_name_means_every_model_that_it_begins_and_no_other(name: str, meant: list[str]):
    assert models_meant(name, FLEET) == meant
    for model in FLEET:
        assert means(name, model) == (model in meant)
        assert is_wanted(GpuRequest(1, (name,)), flavor(model)) == (model in meant)


@pytest.mark.parametrize(
    ("name", "first"),
    [("H10O", "H100-80GB"), ("A1000", "A100-40GB"), ("L40", "L40S"), ("MI300", "MI300X"), ("RTX", "RTX-PRO-6000")],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, first: str):
    assert nearest_models(name, FLEET)[0] == first
    assert len(nearest_models(name, FLEET)) <= 3


def test_a_name_like_no_other_has_no_nearest():
    assert nearest_models("zzzz", FLEET) == []
    assert nearest_models("H100", []) == []


def test_of_speeds_the_longest_name_that_means_a_model_counts():
    speeds = (ModelSpeed("A100", 1000), ModelSpeed("H100", 2000), ModelSpeed("H100-NVL", 4000))
    assert [pace_on(speeds, [model]) for model in ("A100-80GB", "H100-80GB", "H100-NVL", "L4")] == [1, 0.5, 0.25, 1]

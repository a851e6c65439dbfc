"""Most worlds are small; those in which a defect is looked for in its swarm, are whole."""

import pytest

from devtools.simulation.core.faults import RATES, Faults
from devtools.simulation.core.swarm import ANY, only
from devtools.simulation.seeds.kept import KEPT
from devtools.simulation.setting.scale import SCALES, SMALL, WHOLE, scale_of


def test_one_world_in_eight_is_whole():
    drawn = [scale_of(seed, "", ANY) for seed in range(2000)]
    assert 200 < drawn.count(WHOLE) < 300
    assert drawn.count(WHOLE) + drawn.count(SMALL) == 2000
    assert drawn == [scale_of(seed, "", ANY) for seed in range(2000)]


def test_a_scale_can_be_asked_for():
    assert {scale_of(seed, "small", ANY).name for seed in range(20)} == {"small"}
    assert {scale_of(seed, "whole", ANY).name for seed in range(20)} == {"whole"}


def test_the_swarm_of_a_defect_says_how_much_there_is():
    assert {scale_of(seed, "", only({"death": 0.1})).name for seed in range(20)} == {"whole"}


def test_a_kept_seed_names_its_scale_and_a_seed_of_its_own():
    assert {one.size.scale for one in KEPT} <= set(SCALES)
    assert len({one.seed for one in KEPT}) == len(KEPT)


@pytest.mark.parametrize("seed", range(3, 9))
def test_a_small_world_has_fewer_of_the_kinds_that_its_seed_draws(seed):
    whole = Faults(seed).rates
    small = Faults(seed, tuple(SMALL.without), share=SMALL.kinds).rates
    assert len(small) < len(whole) or not whole
    assert small.items() <= whole.items()
    assert SMALL.without <= RATES.keys()


def test_a_small_world_has_the_first_job_and_the_last():
    # Django must be set up before the gateway is imported, so this is not at the top.
    from devtools.simulation.worlds.beginnings import few  # noqa: PLC0415

    assert few([1, 2, 3, 4], 2) == [1, 4]
    assert few([1, 2], 2) == [1, 2]
    assert few([1, 2, 3], None) == [1, 2, 3]

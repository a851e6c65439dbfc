"""A run grows only if that saves more time than the restart costs."""

import pytest

from federation.engine.growth import Growth, growth


def test_the_time_that_is_left_is_shared_by_more_pods():
    assert growth(4, 8, 7200, 300) == Growth(4, 8, lost_seconds=300, cost_seconds=360, saved_seconds=3600)


@pytest.mark.parametrize(
    ("pods", "more", "left", "lost", "grows"),
    [
        (4, 8, 240, 0, False),  # saves 120 seconds, and costs 60 and the margin of a minute
        (4, 8, 242, 0, True),
        (4, 8, 7200, 3480, False),
        (4, 8, 7200, 3479, True),
        (7, 8, 960, 0, False),
        (7, 8, 968, 0, True),
        (1, 10_000, 0, 0, False),
        (1, 10_000, -5000, 0, False),
    ],
)
def test_it_must_save_a_minute_more_than_it_costs(pods, more, left, lost, grows):
    assert (growth(pods, more, left, lost) is not None) is grows

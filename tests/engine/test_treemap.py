"""Boxes of a tree map fill their frame, overlap nowhere, and have the areas of their parts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.treemap import Box, treemap

PARTS = st.lists(st.integers(1, 10**15), min_size=1, max_size=40).map(lambda parts: sorted(parts, reverse=True))
SIDES = st.floats(1, 500)


def area(box):
    return box.width * box.height


@given(PARTS, SIDES, SIDES)
def test_areas_are_the_parts_and_fill_the_frame_without_overlap(parts, width, height):
    frame = Box(3, 5, width, height)
    boxes = treemap(parts, frame)
    assert len(boxes) == len(parts)
    slack = (width + height) * 1e-9
    for part, box in zip(parts, boxes, strict=True):
        assert math.isclose(area(box), area(frame) * part / sum(parts), rel_tol=1e-6, abs_tol=area(frame) * 1e-12)
        assert box.x >= frame.x - slack
        assert box.y >= frame.y - slack
        assert box.x + box.width <= frame.x + width + slack
        assert box.y + box.height <= frame.y + height + slack
    for number, one in enumerate(boxes):
        for other in boxes[:number]:
            across = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
            down = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
            assert min(across, down) <= slack


def test_the_example_of_its_authors():
    """Bruls, Huizing and van Wijk, figure 4: a frame of 6 by 4 for 6, 6, 4, 3, 2, 2, 1."""
    boxes = treemap([6, 6, 4, 3, 2, 2, 1], Box(0, 0, 6, 4))
    assert boxes[:2] == [Box(0, 0, 3, 2), Box(0, 2, 3, 2)]
    for box, (x, y, width, height) in zip(
        boxes[2:4], [(3, 0, 12 / 7, 7 / 3), (3 + 12 / 7, 0, 9 / 7, 7 / 3)], strict=True
    ):
        assert box == pytest.approx((x, y, width, height))


def test_equal_parts_are_squares_where_they_can_be():
    assert treemap([1, 1, 1, 1], Box(0, 0, 2, 2)) == [
        Box(0, 0, 1, 1),
        Box(0, 1, 1, 1),
        Box(1, 0, 1, 1),
        Box(1, 1, 1, 1),
    ]


def test_nothing_has_no_boxes_and_one_has_all():
    assert treemap([], Box(0, 0, 1, 1)) == []
    assert treemap([7], Box(1, 2, 3, 4)) == [Box(1, 2, 3, 4)]

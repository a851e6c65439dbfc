"""Rectangles whose areas are parts of a whole, as square as may be: the squarified treemap of Bruls, Huizing and van Wijk (2000)."""

from collections.abc import Sequence
from typing import NamedTuple


class Box(NamedTuple):
    """A rectangle from its upper left corner, in the unit of the frame."""

    x: float
    y: float
    width: float
    height: float


def treemap(parts: Sequence[float], frame: Box) -> list[Box]:
    """A box of the frame for each part, in their order, which is the largest first. Parts are above zero; their boxes fill the frame,
    and a box's area is to that of the frame as the part is to the sum.

    >>> treemap([6, 3, 1], Box(0, 0, 10, 4))[0]
    Box(x=0, y=0, width=6.0, height=4)
    """
    scale = frame.width * frame.height / sum(parts) if parts else 0.0
    areas = [part * scale for part in parts]
    boxes: list[Box] = []
    while len(boxes) < len(areas):
        row, frame = _next_row(areas[len(boxes) :], frame)
        boxes += row
    return boxes


def _next_row(areas: Sequence[float], frame: Box) -> tuple[list[Box], Box]:
    """The boxes of the areas that come first, along the frame's shorter side, and what is left of the frame."""
    side = min(frame.width, frame.height)
    count = 1
    while count < len(areas) and _longest(areas[: count + 1], side) <= _longest(areas[:count], side):
        count += 1
    # Of the last row, rounding must leave nothing.
    depth = max(frame.width, frame.height) if count == len(areas) else sum(areas[:count]) / side
    boxes, at = [], 0.0
    for area in areas[:count]:
        length = side * area / sum(areas[:count])
        if frame.width >= frame.height:
            boxes.append(Box(frame.x, frame.y + at, depth, length))
        else:
            boxes.append(Box(frame.x + at, frame.y, length, depth))
        at += length
    if frame.width >= frame.height:
        return boxes, Box(frame.x + depth, frame.y, frame.width - depth, frame.height)
    return boxes, Box(frame.x, frame.y + depth, frame.width, frame.height - depth)


def _longest(areas: Sequence[float], side: float) -> float:
    """How far the least square box of a row is from a square: the longer of its sides as a multiple of the other."""
    whole = sum(areas) / side
    return max(max(whole * whole / area, area / (whole * whole)) for area in areas)

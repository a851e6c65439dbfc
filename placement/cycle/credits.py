"""How far past use counts: who used less than its siblings has credit, who used more has debt, and both are capped.

What the children of one tenant used has a mean, by weight. A child below it has credit, one above it debt, each at most
`cap` times its fair part, that is, its part of the whole by weight. So past use alone never takes more than
`2 × cap` of its fair part from a tenant whose jobs keep waiting, however long the others used nothing: with a cap of 0.25
it still gets half. Credit is computed from decayed means, so nothing is stored for it and it fades as they do.

More use never brings more credit, and the order by past use stays. To leave room unused gains at most the cap.
"""

from collections.abc import Sequence
from math import fsum


def credits_of(
    pasts: Sequence[float], weights: Sequence[float], counts: Sequence[bool], cap: float | None
) -> list[tuple[float, float]]:
    """Of each child, its credit (negative: debt) and its past use as far as it counts, both by weight.

    `counts`: whether a child is among those whose mean counts: it used something, or its jobs wait. Without a `cap`,
    all past use counts.
    """
    whole = fsum(weight for weight, is_counted in zip(weights, counts, strict=True) if is_counted)
    if not whole:
        return [(0.0, past) for past in pasts]
    mean = fsum(past * weight for past, weight, is_counted in zip(pasts, weights, counts, strict=True) if is_counted)
    mean /= whole
    # the fair part of a child is its weight's part of the whole; divided by its weight, that is equal for all
    most = None if cap is None else cap / whole
    found = []
    for past in pasts:
        counted = past if most is None else min(max(past, mean - most), mean + most)
        found.append((mean - counted, counted))
    return found

"""How many examples a law gets."""

import os
from collections.abc import Collection

from hypothesis import HealthCheck, settings

HAS_ALL = bool(os.environ.get("ALL_EXAMPLES"))
"""`make test-long` sets it."""
SHARE, FEWEST, USUAL = 3, 10, 100


def share_of(most: int) -> int:
    """All with ALL_EXAMPLES, else a third: in `make test` a law finds what is wrong in many examples, in `make test-long` what is
    wrong in few.
    """
    return most if HAS_ALL else max(min(most, FEWEST), most // SHARE)


def examples(most: int, *, suppressed: Collection[HealthCheck] = ()) -> settings:
    """The settings of a law with this number of examples in `make test-long`."""
    return settings(max_examples=share_of(most), suppress_health_check=suppressed)

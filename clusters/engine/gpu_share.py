"""The part of a physical GPU that one unit of a flavor is. Quotas, placement and usage reports all use this definition.

Source of the numbers of MIG slices: NVIDIA's MIG user guide, "Supported GPUs".
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

USUAL_MIG_SLICES = 7
"""The profile `3g.40gb` has three compute slices."""
MIG_SLICES: Mapping[str, int] = {"A30": 4, "RTX-PRO-6000": 4, "RTX-PRO-5000": 2, "RTX-PRO-4500": 2}
"""Compute slices per GPU, for models with a different number."""
_MIG_PROFILE = re.compile(r"([1-9])g\b")
_SHARES = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


@lru_cache(maxsize=4096)
def gpu_per_unit(sharing: str, gpu_model: str = "") -> Fraction:
    """The part of a GPU that a unit of a flavor is, in (0, 1]: 1/7 of an H100 for `mig:1g.10gb`, 1/4 for `timeslice:4`.

    A sharing that the gateway cannot read counts as a whole GPU.

    >>> gpu_per_unit("mig:3g.40gb", "H100-80GB"), gpu_per_unit("mig:1g.6gb", "A30"), gpu_per_unit("whole")
    (Fraction(3, 7), Fraction(1, 4), Fraction(1, 1))
    """
    kind, _, detail = sharing.partition(":")
    if kind == "mig" and (profile := _MIG_PROFILE.match(detail)):
        slices = MIG_SLICES.get(gpu_model, USUAL_MIG_SLICES)
        return Fraction(min(int(profile.group(1)), slices), slices)
    if kind == "timeslice" and _SHARES.fullmatch(detail):
        return Fraction(1, int(detail))
    return Fraction(1)

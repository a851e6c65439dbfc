"""When a world begins, and with which settings: the same for most, others for a few."""

import random
from collections.abc import Mapping
from datetime import datetime

from django.conf import settings

from .stage import BEGINS_AT, MONTH_ENDS_AT

HALF_LIFE, OTHER_HALF_LIFE = settings.FAIR_SHARE_HALF_LIFE_SECONDS, 3600
"""With which past use counts; some worlds begin with a change of that setting."""


def begins_at(seed: int, rates: Mapping[str, float]) -> datetime:
    """Shortly before the end of a month in some worlds."""
    ends = random.Random(f"{seed}/begins").random() < rates.get("month_ends", 0.0)
    return MONTH_ENDS_AT if ends else BEGINS_AT


def set_half_life(seed: int, rates: Mapping[str, float]) -> None:
    """The half-life of past use in this world."""
    is_other = "limits_shaped" in rates and seed % 2 == 0
    settings.FAIR_SHARE_HALF_LIFE_SECONDS = OTHER_HALF_LIFE if is_other else HALF_LIFE

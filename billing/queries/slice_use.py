"""How many GPUs, or slices of them, the gateway's pods used on average."""

from datetime import date
from fractions import Fraction
from typing import NamedTuple
from uuid import UUID

from django.db import connection

DAY_MILLISECONDS = 86_400_000
_USED = """
SELECT meter.cluster_id, meter.gpu_model, meter.sharing, sum(day.milliseconds::numeric * meter.gpu_units)::text
  FROM billing_meterday AS day JOIN billing_meter AS meter ON meter.id = day.meter_id
 WHERE day.day >= %s AND day.day < %s AND meter.gpu_units > 0
 GROUP BY meter.cluster_id, meter.gpu_model, meter.sharing
"""


class Kind(NamedTuple):
    """What was used: of which model on which cluster, whole or which slices (`mig:1g.10gb`)."""

    cluster_id: UUID
    gpu_model: str
    sharing: str


def mean_units(first: date, last: date) -> dict[Kind, Fraction]:
    """The units in use on average from the beginning of the first day to that of the last one, as far as they are recorded."""
    span = (last - first).days * DAY_MILLISECONDS
    with connection.cursor() as cursor:
        cursor.execute(_USED, [first, last])
        rows = cursor.fetchall()
    return {Kind(*kind): Fraction(int(used), span) for *kind, used in rows} if span > 0 else {}

"""Computes when waiting jobs are expected to start.

It is a separate routine, so that rounds do not become slower. It goes through the queue as the next round would, and
looks ahead from there. It uses at most a tenth of a process's time. It decides nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.db import connection

from federation.queries.queue import QUEUE_DEPTH
from federation.queries.snapshot import load_snapshot, with_times
from foundation import clock
from foundation.caches import reset_with
from foundation.clock import monotonic
from foundation.plain_json import instant
from placement.answers.expected_starts import expected_starts
from placement.cycle import cycle
from placement.cycle.timeline import start_text
from placement.fleet.fleet import FleetIndex
from placement.values.decisions import Start
from placement.values.model import Snapshot

REST = 10
KEEP_SECONDS = 5.0

# One row per statement: with several locks, it could deadlock with a round that locks them in another order.
TELL = """
UPDATE federation_job SET explanation = explanation || %s::jsonb
 WHERE id = %s AND state = 'queued' AND NOT explanation @> %s::jsonb
"""


@dataclass(slots=True)
class _Pace:
    """When this process may look ahead again."""

    next_at: float = 0.0


_pace = _Pace()
_fleet_index = FleetIndex()
"""The fleet's arrays, kept between runs; runs never overlap (`run_exclusively`)."""


@reset_with
def _forget() -> None:
    _pace.next_at = 0.0


def expect_starts() -> int:
    """The number of waiting jobs with an expected start, which is written beside the reasons why they wait."""
    began = monotonic()
    if began < _pace.next_at:
        return 0
    snapshot = load_snapshot(clock.now(), QUEUE_DEPTH)
    if not snapshot.queue:
        return 0
    snapshot = with_times(snapshot)
    decisions, done = cycle.run(snapshot, _fleet_index)
    starts = expected_starts(done, snapshot, decisions.waits)
    _tell(starts, snapshot)
    _pace.next_at = monotonic() + max(KEEP_SECONDS, REST * (monotonic() - began))
    return len(starts)


def _tell(starts: Mapping[UUID, Start], snapshot: Snapshot) -> None:
    with connection.cursor() as cursor:
        for job_id, start in starts.items():
            message = start_text(start, snapshot.now)
            at = start.at + timedelta(seconds=start.pull_seconds)
            told = json.dumps({"start": {"at": instant(at), "cluster": start.cluster, "message": message}})
            cursor.execute(TELL, [told, job_id, told])

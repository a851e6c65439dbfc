"""The room that the engine keeps for waiting jobs in a replay, from cycle to cycle, as the gateway records it."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from placement.values.decisions import KeptRoom
from placement.values.model import Snapshot

KEPT_SECONDS = 21_600
"""How long room is kept for a job that does not get it, like SWITCHYARD_KEPT_ROOM_SECONDS."""


class KeptRooms:
    """What was kept in the last cycle, and what was given up and rests."""

    def __init__(self) -> None:
        self._kept: dict[UUID, KeptRoom] = {}

    def given(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with what was kept before it."""
        waiting = {job.id for job in snapshot.queue}
        self._kept = {job_id: one for job_id, one in self._kept.items() if job_id in waiting}
        return replace(snapshot, kept=tuple(self._kept.values()), keep_seconds=KEPT_SECONDS)

    def record(self, kept: Iterable[KeptRoom], now: datetime) -> None:
        """Exactly this is kept from now on."""
        resting = {job_id: one for job_id, one in self._kept.items() if one.rests(now)}
        self._kept = resting | {one.job_id: one for one in kept}

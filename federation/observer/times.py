"""Which reported times need a new reading of the cluster's clock before they are recorded.

A cluster's clock may be set between two pulses. What began or ended since then would be converted with the old difference,
and a pod could be metered for minutes too little or too much. A time that the clock, as it was last read, shows just now
is believed. At any other, the clock is read again: it was set, or the report is late and its time is right.
"""

from datetime import datetime

from clusters.drivers import PodSeen
from clusters.engine.clocks import Reading
from clusters.engine.weights import KNOWN_UID
from federation.operations import Observations


class Times:
    """The last reading of one cluster's clock, and the times of its pods that are recorded."""

    def __init__(self) -> None:
        self._reading: Reading | None = None
        self._recorded: dict[str, tuple[datetime | None, datetime | None]] = {}
        """Start and end of the pods that exist and have started, by uid."""

    @property
    def weight(self) -> int:
        """The estimated size, in bytes."""
        return 2 * KNOWN_UID * len(self._recorded)

    def see_clock(self, reading: Reading) -> None:
        """The clock was read, and its difference is recorded."""
        self._reading = reading

    def are_doubtful(self, seen: Observations, now: float) -> bool:
        """Whether the last reading does not explain a new time among these. `now`: our monotonic clock."""
        return any(
            self._reading is None or not self._reading.explains(time, now)
            for pod in seen.pods
            for time in self._new_times_of(pod)
        )

    def note_recorded(self, seen: Observations) -> None:
        """These reports are recorded."""
        for pod in seen.pods:
            if pod.started_at is not None or pod.finished_at is not None:
                self._recorded[pod.uid] = (pod.started_at, pod.finished_at)
        for uid in seen.gone_pods:
            self._recorded.pop(uid, None)

    def _new_times_of(self, pod: PodSeen) -> list[datetime]:
        known = self._recorded.get(pod.uid, ())
        return [time for time in (pod.started_at, pod.finished_at) if time is not None and time not in known]

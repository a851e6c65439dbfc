"""Stops attempts on their cluster: what is seen of them is stored before anything of them is deleted.

Nothing shows a run any more when its objects are gone, so they are deleted only after the commit. The database may refuse
what was seen of an attempt (`setting_aside`): then its objects remain, and it is visited again.
"""

from collections.abc import Sequence
from uuid import UUID

from federation.queries.claimed_attempts import ClaimedAttempt
from federation.queries.due_clusters import DueCluster
from foundation.crash import crash_point
from foundation.threads import put_session_aside

from .observation import Observations, record_observations
from .outcomes import Looked, Outcome, Underway
from .visits import Visit

MOST_TIMES_REFUSED = 36
"""With growing pauses, this is about a quarter of an hour. Then it is removed without: devices must not be used for ever."""
NOT_STORED = (
    "What was seen of its pods cannot be stored. For a quarter of an hour at most, they are not deleted before."
)


def stop_all(cluster: DueCluster, visit: Visit, attempts: Sequence[ClaimedAttempt]) -> list[Outcome]:
    """What became of those attempts that must stop."""
    looks = visit.look_all(attempts)
    if not looks:
        return []
    # Also what goes on: a sweep that has not seen these pods would recall them again.
    stored = _stored(cluster.id, attempts, looks)
    crash_point("looked")
    if cluster.is_slow:
        put_session_aside()
    return visit.remove_all(attempts, looks, stored)


def _stored(cluster_id: UUID, attempts: Sequence[ClaimedAttempt], looks: Sequence[Outcome]) -> set[UUID]:
    """Records what was seen, in its own transactions. Returns the attempts whose objects may be deleted now."""
    pods = [pod for one in looks if isinstance(one, Looked | Underway) for pod in one.pods]
    ended = [job for one in looks if isinstance(one, Looked) for job in one.ended]
    refused = record_observations(cluster_id, Observations(pods=pods, jobs=ended)) if pods or ended else set()
    kept = {attempt.id for attempt in attempts if attempt.id in refused and attempt.tries < MOST_TIMES_REFUSED}
    return {one.attempt_id for one in looks if isinstance(one, Looked)} - kept

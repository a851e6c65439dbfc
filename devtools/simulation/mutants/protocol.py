"""Further guards that the protocol model has: what is created, ends and returns."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from devtools.simulation.clusters.driver import SimulatedClusterDriver
from devtools.simulation.core.swarm import only
from federation.engine.lifecycle import AttemptState
from federation.operations import calls, continuity, evidence, observation
from federation.operations.consequences import Ending
from placement.values.reason_codes import ReasonCode

from . import Change, mutant

LONG = (200,)


@mutant(only({"lost": 0.05, "reply_lost": 0.1}), guard="create_suspended")
def _creates_what_runs_immediately(change: Change) -> None:
    """Objects are created without `suspend`."""
    original = SimulatedClusterDriver.create_job

    async def create_job(self: Any, manifest: Mapping[str, Any]) -> str:
        return await original(self, {**manifest, "spec": {**manifest["spec"], "suspend": False}})

    change.put(SimulatedClusterDriver, "create_job", create_job)


@mutant(
    only({"cut_at_release": 0.5}, gangs=0, cancels=0, run_seconds=(20,), chaos_seconds=(150.0, 200.0)),
    guard="sight_is_regained",
)
def _sight_is_not_regained(change: Change) -> None:
    """Attempts stay unknown when their cluster answers again."""
    change.put(continuity, "regain_sight", lambda: 0)


@mutant(only({"stranger_deletes": 6, "deletes_behind": 1.0}, cancels=0, run_seconds=LONG), guard="deleted_is_not_rerun")
def _a_deleted_job_runs_again(change: Change) -> None:
    """A job whose object somebody deleted is placed again."""

    def ending(attempt_id: UUID, state: AttemptState, stop_reason: str) -> Ending:  # noqa: ARG001 - as the original
        return Ending(attempt_id, AttemptState.PREEMPTED, ReasonCode.PODS_GONE, "Its object was deleted.")

    change.put(observation, "_vanished_ending", ending)


@mutant(
    only({"rebuilt": 6}, gangs=0, cancels=1, cancelled_within=90, run_seconds=(900,), chaos_seconds=(100.0, 140.0)),
    guard="absence_needs_identity",
)
def _another_clusters_answers_count(change: Change) -> None:
    """An object counts as gone without a question which cluster answers at the address."""

    async def require_same_cluster(driver: Any, identity: str) -> None:
        del driver, identity

    for module in (calls, evidence):
        change.put(module, "require_same_cluster", require_same_cluster)

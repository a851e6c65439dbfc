"""Two workers that copy datasets, cycles, and users who stop copies and jobs at the same time."""

from contextlib import suppress

import pytest

from clusters.drivers.simulated import SimulatedDriver
from clusters.models import DatasetReplica
from federation import operations
from federation.models import DataWait, StageIn
from federation.operations import staging
from federation.operations.data_waits import end_waits
from federation.queries.proof import disagreements
from foundation.problems import Conflict
from tenancy.queries import SYSTEM
from tests.concurrency.test_live_races import at_once
from tests.staged import copies, copying, cycle, held, make_plan, plan, rounds, staged_job, storages, until_idle

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("storages", "copying")]
assert copying  # fixtures
assert plan
assert storages


def test_workers_at_the_same_time_make_one_object_and_one_replica(cluster, plan, submitter, monkeypatch):
    created = []
    create = SimulatedDriver.create_job

    async def count(self, manifest):
        uid = await create(self, manifest)
        created.append(manifest["metadata"]["name"])
        return uid

    monkeypatch.setattr(SimulatedDriver, "create_job", count)
    staged_job(submitter)
    cycle()
    assert at_once(*[lambda: rounds(3)] * 3) == []
    until_idle()
    assert len(set(created)) == len(created) == 1
    assert DatasetReplica.objects.count() == 1
    assert copies(cluster) == []
    assert held() == set()


def test_planners_at_the_same_time_never_share_a_slot_and_hold_once(cluster, submitter):
    plans = [make_plan(cluster, name=f"d{number}") for number in range(6)]
    for one in plans:
        operations.start_stage_in(SYSTEM, one.dataset_id, one.id)
    assert at_once(*[staging._plan_all] * 4) == []
    live = StageIn.objects.exclude(slot=None)
    assert sorted(live.values_list("slot", flat=True)) == [0, 1, 2, 3]
    assert held() == set(live.values_list("object_id", flat=True))


@pytest.mark.parametrize("_round", range(4))
def test_the_end_of_a_wait_a_skip_and_a_cancellation_race_and_the_hold_ends_once(plan, submitter, _round):
    job = staged_job(submitter)
    cycle()
    rounds(2)

    def skip():
        with suppress(Conflict):
            operations.run_without_data(submitter, job.id)

    cancel = lambda: operations.request_cancellation(submitter, job.id)  # noqa: E731
    assert at_once(end_waits, skip, cancel, rounds) == []
    rounds(4)
    assert DataWait.objects.exclude(outcome="").count() == 1
    assert held() == set()
    assert disagreements() == ()


@pytest.mark.parametrize("_round", range(4))
def test_a_stop_racing_rounds_leaves_nothing(cluster, plan, submitter, _round):
    staged_job(submitter)
    cycle()
    stop = lambda: operations.cancel_stage_in(SYSTEM, plan.dataset_id, plan.id)  # noqa: E731
    assert at_once(rounds, stop, rounds) == []
    until_idle()
    assert copies(cluster) == []
    row = StageIn.objects.get()
    assert (row.outcome == "staged") == DatasetReplica.objects.exists()
    assert row.object_id is None

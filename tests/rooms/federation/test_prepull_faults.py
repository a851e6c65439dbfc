"""Pulls of images while something fails: a worker, a reply, a cluster, the database, or others on the cluster."""

from datetime import timedelta

import pytest

from clusters.drivers import Ambiguous, Refused
from clusters.drivers.connections import run
from clusters.drivers.simulated import SimulatedDriver, path_of
from clusters.drivers.simulated.store import Store
from clusters.models import Cluster
from federation import operations
from federation.engine.names import LABEL_PREPARATION
from federation.models import Prepull, PrepullPolicy
from federation.operations import preparing, prepulling
from federation.queries.prepulls import view_of
from foundation.clock import now
from tests.live import call, place, simulated_cluster
from tests.rooms.federation.test_prepulls import IMAGE, admin, make, objects, rounds, states, waiting

pytestmark = pytest.mark.django_db(transaction=True)
assert admin  # fixtures
assert waiting


class Killed(BaseException):
    """The process dies."""


@pytest.mark.parametrize("step", ["create", "release", "read", "remove"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_killed_at_any_step_is_followed_by_the_next(admin, cluster, monkeypatch, step, when):
    policy = make(admin, cluster)
    record = prepulling.record
    states_of = {"create": "planned", "release": "created", "read": "released", "remove": "ending"}

    def dies(row, result):
        if row.phase == states_of[step]:
            if when == "after":
                record(row, result)
            raise Killed
        record(row, result)

    monkeypatch.setattr(prepulling, "record", dies)
    with pytest.raises(Killed):
        rounds()
    monkeypatch.setattr(prepulling, "record", record)
    rounds(4)
    assert {(state, outcome) for _, state, outcome in states(policy)} == {("idle", "pulled")}
    assert Prepull.objects.filter(policy=policy).count() == 2
    assert set(Prepull.objects.values_list("pulls", flat=True)) == {1}
    assert objects(cluster) == []


def test_a_policy_removed_during_the_creation_leaves_nothing(admin, cluster, monkeypatch):
    policy = make(admin, cluster)
    record = prepulling.record

    def removed_first(row, result):
        if row.phase == "planned":
            operations.remove_prepull_policy(admin, cluster.id, policy.id)
        record(row, result)

    monkeypatch.setattr(prepulling, "record", removed_first)
    rounds()
    monkeypatch.setattr(prepulling, "record", record)
    rounds(2)
    assert objects(cluster) == []
    assert not PrepullPolicy.objects.exists()


def test_objects_of_pulls_that_the_database_forgot_are_deleted_and_count_as_no_unknown_runs(admin, cluster, waiting):
    waiting[IMAGE] = "ContainerCreating"
    make(admin, cluster)
    rounds()
    operations.reconcile_clusters()
    assert len(objects(cluster)) == 1
    PrepullPolicy.objects.all().delete()
    operations.reconcile_clusters()
    assert objects(cluster) == []
    assert Cluster.objects.get(id=cluster.id).reasons == []


def test_a_foreign_object_of_the_name_is_not_touched(admin, cluster, monkeypatch):
    create = SimulatedDriver.create_job

    async def planted(self, manifest):
        labels = {**manifest["metadata"]["labels"], "switchyard.dev/spec-hash": "0" * 32}
        foreign = {**manifest, "metadata": {**manifest["metadata"], "labels": labels}}
        await create(self, foreign)
        return await create(self, manifest)

    monkeypatch.setattr(SimulatedDriver, "create_job", planted)
    policy = make(admin, cluster)
    rounds(2)
    assert [outcome for _, _, outcome in states(policy)] == ["failed"]
    assert "does not belong to Switchyard" in Prepull.objects.get().message
    assert len(objects(cluster)) == 1


def test_a_refused_creation_fails_with_the_clusters_words(admin, cluster, monkeypatch):
    async def refuse(self, manifest):
        raise Refused("exceeded quota: pods", status=403)

    monkeypatch.setattr(SimulatedDriver, "create_job", refuse)
    policy = make(admin, cluster)
    rounds()
    assert view_of(policy).images[0].brake.message == "exceeded quota: pods"


def test_a_cluster_that_does_not_answer_delays_only_its_own_pulls(admin, cluster, monkeypatch):
    west = simulated_cluster("west")
    create = SimulatedDriver.create_job
    east_policy, west_policy = make(admin, cluster), make(admin, west)

    async def hangs_in_east(self, manifest):
        if manifest["metadata"]["labels"]["switchyard.dev/job"] == str(east_policy.id):
            raise Ambiguous("no answer")
        return await create(self, manifest)

    monkeypatch.setattr(SimulatedDriver, "create_job", hangs_in_east)
    rounds(2)
    assert Prepull.objects.filter(policy=west_policy, outcome="pulled").count() == 2
    assert [state for _, state, _ in states(east_policy)] == ["planned"]
    Prepull.objects.filter(policy=east_policy).update(begun_at=now() - timedelta(hours=2))
    rounds(2)
    assert Prepull.objects.get(policy=east_policy).outcome == "failed"


def test_a_removed_cluster_takes_its_policies_with_it(admin, cluster, waiting):
    waiting[IMAGE] = "ContainerCreating"
    make(admin, cluster)
    rounds()
    Cluster.objects.filter(id=cluster.id).update(removed_at=now())
    rounds()
    assert not PrepullPolicy.objects.exists()


def test_an_unreachable_or_cordoned_cluster_begins_none(admin, cluster):
    policy = make(admin, cluster)
    silent = {"wish": "open", "health": "unreachable", "silent_since": now()}
    for change in ({"wish": "cordoned"}, silent):
        Cluster.objects.filter(id=cluster.id).update(**change)
        rounds()
        assert not Prepull.objects.exists()
    policy = PrepullPolicy.objects.select_related("cluster", "tenant").get()
    assert view_of(policy).why_not == f"{cluster.name} does not answer."


def test_an_attempts_object_that_others_label_as_a_preparation_remains_what_it_is(cluster, submitter, settings):
    job, attempt = place(submitter, seconds=100_000)
    operations.dispatch_attempts()
    store = Store(path_of(settings.HOME, cluster.server))
    with store.write():
        (found,) = store.jobs()
        found.labels = {**found.labels, LABEL_PREPARATION: "prepull"}
        store.put(found)
    store.close()
    operations.reconcile_clusters()
    assert [seen.uid for seen in call(cluster, "list_jobs")] == [attempt.remote_objects.get().uid]
    attempt.refresh_from_db()
    job.refresh_from_db()
    assert (attempt.finished_at, job.state) == (None, "dispatching")


def test_a_worker_that_slept_through_its_calls_knows_none_of_their_answers(admin, cluster, monkeypatch):
    policy = make(admin, cluster)

    def slept(work, timeout_seconds):
        run(work, timeout_seconds)
        raise Ambiguous("no answer within 16 s")

    monkeypatch.setattr(preparing, "run", slept)
    rounds()
    assert [state for _, state, _ in states(policy)] == ["planned"]
    assert Prepull.objects.get(object_id__isnull=False).message == "no answer within 16 s"
    monkeypatch.undo()
    rounds(4)
    assert {(state, outcome) for _, state, outcome in states(policy)} == {("idle", "pulled")}
    assert objects(cluster) == []

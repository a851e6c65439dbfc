"""What goes wrong while a dataset is copied from an object store: keys that go, stores that move, bad answers, and stops at every step."""

import pytest
from django.conf import settings as configured
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.drivers import Ambiguous, NotThere, Refused, Throttled
from clusters.drivers.simulated import SimulatedDriver, path_of, secrets
from clusters.models import Cluster, DatasetReplica, Storage, TenantSecret
from clusters.operations.secrets import delete_secret
from clusters.operations.storages import StorageChanges, remove_storage, update_storage
from federation import operations
from federation.models import DataWait, StageIn
from federation.operations.data_waits import end_waits
from federation.queries.staging import view_of, views_on_cluster
from tenancy.models import Tenant
from tenancy.queries import SYSTEM
from tests.rooms.federation.test_object_copies import FROM, KEY_ID, SECRET, keys, put, sent, stores
from tests.staged import (
    TENANT,
    again,
    copies,
    copying,
    cycle,
    later,
    make_plan,
    rounds,
    staged_job,
    storages,
    until_idle,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("stores")]
assert copying  # fixtures
assert sent
assert storages
assert stores


@pytest.fixture
def job(cluster, submitter, copying):
    """A job that waits for a copy with a key."""
    put(KEY_ID, SECRET)
    make_plan(cluster, source=FROM)
    found = staged_job(submitter)
    cycle()
    return found


def left(cluster):
    """The objects of copies and the Secrets that are still on the cluster."""
    home = path_of(configured.HOME, cluster.server)
    return copies(cluster) + secrets(home, StageIn.objects.get().namespace)


def change(name, cluster, **changes):
    update_storage(SYSTEM, cluster.id, Storage.objects.get(name=name).id, StorageChanges(**changes))


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_key_that_is_replaced_before_it_was_sent_is_not_sent(cluster, job, copying, sent, monkeypatch, is_deleted):
    with monkeypatch.context() as within:
        within.setattr("federation.operations.staging._Visit.release", lambda _: [])
        rounds()
    assert StageIn.objects.get().phase == "created"
    if is_deleted:
        delete_secret(SYSTEM, Tenant.objects.get(path=TENANT).id, "s3-key")
    put("newer", "newer")
    rounds(2)
    row = StageIn.objects.get()
    assert (row.message, row.failures, sent) == ("Its secret was changed or deleted meanwhile.", 1, [])
    assert copies(cluster) == []
    later()
    rounds(3)
    assert keys(sent) == [{"id": "newer", "secret": "newer"}]


def test_a_key_that_cannot_be_opened_stops_the_copy_in_words(cluster, job, copying, sent):
    TenantSecret.objects.update(sealed=b"spoilt" * 10)
    rounds(2)
    assert "cannot be opened" in StageIn.objects.get().message
    assert sent == []


def test_a_running_copy_keeps_its_key_when_it_is_deleted(cluster, job, copying, sent):
    copying.runs_for_ever()
    rounds(2)
    delete_secret(SYSTEM, Tenant.objects.get(path=TENANT).id, "s3-key")
    rounds(2)
    assert StageIn.objects.get().phase == "released"
    assert again(job).reason_code == "waiting_for_data"


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        Ambiguous("cut"),
        Throttled("wait"),
        Refused("no", status=422),
        NotThere("gone", status=404),
    ],
    ids=lambda error: f"{type(error).__name__}-{error.status}",
)
def test_one_bad_answer_to_the_secret_ends_in_one_replica_or_a_counted_failure(
    cluster, job, monkeypatch, sent, error, is_done
):
    create, answers = SimulatedDriver.create_secret, [error]

    async def once(self, manifest):
        if is_done or not answers:
            await create(self, manifest)
        if answers:
            raise answers.pop()

    monkeypatch.setattr(SimulatedDriver, "create_secret", once)
    rounds(2)
    row = StageIn.objects.get()
    if isinstance(error, Refused):
        assert (row.failures, row.message, left(cluster)) == (1, error.reason, [])
        later()
    rounds(3)
    until_idle()
    assert DatasetReplica.objects.count() == 1
    assert left(cluster) == []
    assert not DataWait.objects.filter(job=job.id, ended_at=None).exists()
    objects = {one["metadata"]["name"] for one in sent}
    assert len(objects) == (2 if is_done and isinstance(error, Refused) else 1), "a repeated call makes no other one"


@pytest.mark.parametrize("stop", ["cancel", "drain"])
@pytest.mark.parametrize("phase", ["planned", "created", "released"])
def test_a_copy_that_is_stopped_at_any_step_leaves_no_key_behind(cluster, job, monkeypatch, sent, stop, phase):
    plan = StageIn.objects.get().plan
    with monkeypatch.context() as within:
        steps = ("create", "release", "read")
        for step in steps[("planned", "created", "released").index(phase) :]:
            within.setattr(f"federation.operations.staging._Visit.{step}", lambda _: [])
        rounds(2)
    assert StageIn.objects.get().phase == phase
    if stop == "cancel":
        operations.cancel_stage_in(SYSTEM, plan.dataset_id, plan.id)
    else:
        Cluster.objects.update(wish="draining")
    rounds(3)
    assert (StageIn.objects.get().phase, StageIn.objects.get().secrets) == ("idle", {})
    assert len(sent) == (1 if phase == "released" else 0)
    assert left(cluster) == []
    assert not DataWait.objects.filter(job=job.id, ended_at=None).exists()


def test_the_keys_of_many_plans_are_one_query(cluster, submitter, copying):
    put(KEY_ID, SECRET)
    names = ("a", "b", "c")
    for name in names:
        make_plan(cluster, name=name, source=FROM)
    job = staged_job(submitter, *names)
    for ask in (cycle, end_waits, lambda: views_on_cluster(SYSTEM, cluster.id)):
        with CaptureQueriesContext(connection) as asked:
            ask()
        assert sum("clusters_tenantsecret" in one["sql"] for one in asked) == 1
    assert again(job).reason_code == "waiting_for_data"


@pytest.mark.parametrize("changes", [{"bucket": "else"}, {"endpoint": "https://else.example"}, {"prefix": "x"}])
def test_a_store_that_moves_during_a_copy_makes_no_replica_and_it_begins_again(cluster, job, copying, changes):
    copying.runs_for_ever()
    rounds(2)
    change("s3", cluster, **changes)
    copying.ends_well()
    rounds()
    assert not DatasetReplica.objects.exists()
    until_idle()
    rounds(4)
    assert DatasetReplica.objects.count() == 1
    first, second = (manifest["spec"]["template"]["spec"]["containers"][0] for manifest in copying.sent)
    assert (first["args"], first["env"]) != (second["args"], second["env"])


def test_a_host_that_is_no_longer_allowed_stops_its_copies(cluster, job, copying, settings):
    plan = StageIn.objects.get().plan
    copying.runs_for_ever()
    rounds(2)
    settings.OBJECT_STORES = ["*.example.com"]
    rounds(3)
    assert copies(cluster) == []
    assert "is not among those" in view_of(plan).why_not
    cycle()
    assert again(job).state == "dispatching"


def test_removing_the_store_stops_its_copies(cluster, job, copying):
    copying.runs_for_ever()
    rounds(2)
    remove_storage(SYSTEM, cluster.id, Storage.objects.get(name="s3").id)
    rounds()
    assert not StageIn.objects.exists()
    cycle()
    assert again(job).state == "dispatching"

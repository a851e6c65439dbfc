"""What changes between the decision to move jobs and their stop, and while places are kept for them; and what viewers learn."""

from datetime import timedelta
from uuid import UUID

import pytest
from django.db import transaction
from django.db.models.functions import Now

from clusters.models import Cluster, MaintenanceWindow
from federation import operations
from federation.models import Attempt, Checkpoint, Consolidation, DatabaseHistory, Job, Move
from federation.operations import transitions
from federation.operations.cancellation import request_cancellation
from federation.operations.suspension import request_resumption, request_suspension
from federation.queries.consolidation import load_plan_claims, searches
from foundation.clock import database_now
from placement.preemption.consolidation import consolidate
from tests.builders import bind, make_tenant, make_user, redate, submit
from tests.concurrency.test_live_races import at_once
from tests.live import gpu_job, simulated_cluster
from tests.rooms.federation.test_consolidation import allow, half, large, nodes_of, told
from tests.rooms.federation.test_migration import ended

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def waiting(cluster, submitter):
    """A larger job, for which one of two others may move."""
    for node in nodes_of(cluster):
        half(submitter, node)
    allow()
    return large(submitter)


@pytest.fixture
def move(waiting):
    """The move that is planned for it."""
    operations.run_scheduling_cycle()
    return Move.objects.select_related("attempt", "job").get()


def places():
    return {one.kind: one for one in load_plan_claims(database_now())}


def plan_window(cluster, _submitter):
    begins = {"starts_at": Now() + timedelta(hours=1), "ends_at": Now() + timedelta(hours=2)}
    MaintenanceWindow.objects.create(cluster=cluster, reason="new switches", created_by="ada", **begins)


def plan_for_another(cluster, submitter):
    another = submit(submitter, gpu_job("another"))
    figures = {"size_milli": 8000, "nodes": [], "amounts": {}, "is_exact": True, "share": 1.0}
    costs = {"gain_gpu_seconds": 1.0, "cost_gpu_seconds": 1.0, "lost_gpu_seconds": 0.0}
    until = Now() + timedelta(minutes=10)
    Consolidation.objects.create(beneficiary=another, cluster=cluster, deadline_at=until, **figures, **costs)


def wish_stops(*wanted):
    """Users want these runs suspended at their next checkpoints; without ids, each run."""
    ids = [one for one in wanted if isinstance(one, UUID)]
    until = {"stop_wished_at": Now(), "stop_latest_at": Now() + timedelta(minutes=10)}
    for job in Job.objects.filter(state="running", **({"id__in": ids} if ids else {})):
        wish = {"stop_wish": {"then": "suspend", "by": "ada"}, "spec": job.spec | {"reports": True}}
        Job.objects.filter(id=job.id).update(**wish, **until)


@pytest.mark.parametrize("number", [0, 1])
def test_instead_of_a_job_that_is_about_to_stop_another_one_moves(waiting, number):
    ids = list(Job.objects.filter(state="running").order_by("id").values_list("id", flat=True))
    wish_stops(ids[number])
    operations.run_scheduling_cycle()
    assert Move.objects.get().job_id == ids[1 - number]


@pytest.mark.parametrize(
    "change",
    [
        lambda *_: allow("never", "acme/research/vision"),
        lambda *_: Cluster.objects.update(wish="cordoned"),
        lambda *_: Cluster.objects.update(silent_since=Now(), health="unreachable"),
        lambda *_: DatabaseHistory.objects.update_or_create(id=1, defaults={"accepted": "another"}),
        plan_window,
        plan_for_another,
        wish_stops,
    ],
    ids=["policy", "cordon", "silence", "history", "window", "plan", "wish"],
)
def test_nothing_is_stopped_if_what_decided_it_changes_before(cluster, submitter, waiting, monkeypatch, change):
    decided = []

    def late(*arguments, **more):
        found = consolidate(*arguments, **more)
        decided.append(found.decision)
        change(cluster, submitter)
        return found

    monkeypatch.setattr("federation.operations.consolidation.consolidate", late)
    operations.run_scheduling_cycle()
    assert decided[0] is not None
    assert not Move.objects.exists()
    assert not Attempt.objects.filter(stop_requested_at__isnull=False).exists()
    assert told(waiting) == ("queued", "waiting_for_capacity")


def test_after_a_long_search_in_vain_none_follows_for_a_while_and_the_reason_stays(waiting, settings, monkeypatch):
    monkeypatch.setattr("federation.queries.consolidation.SHORT", 0.0)
    monkeypatch.setattr("federation.queries.consolidation.TIMES", 1_000_000)
    share, settings.CONSOLIDATION_SHARE = settings.CONSOLIDATION_SHARE, 0.0001
    operations.run_scheduling_cycle()
    assert "0% of what it would gain" in Job.objects.get(id=waiting.id).reason_message
    settings.CONSOLIDATION_SHARE = share
    operations.run_scheduling_cycle()
    assert not Move.objects.exists()
    assert "0% of what it would gain" in Job.objects.get(id=waiting.id).reason_message
    searches.forget()
    operations.run_scheduling_cycle()
    assert Move.objects.count() == 1


def test_rounds_at_the_same_time_make_one_plan(waiting, monkeypatch):
    monkeypatch.setattr("federation.operations.cycle.keep_room", lambda *_: None)
    assert at_once(*[operations.run_scheduling_cycle] * 3) == []
    operations.run_scheduling_cycle()
    assert (Consolidation.objects.count(), Move.objects.count()) == (1, 1)
    assert told(waiting)[1] == "waiting_for_consolidation"


def test_no_place_is_kept_for_a_moved_job_that_is_cancelled_or_suspended_meanwhile(submitter, move):
    assert set(places()) == {"consolidation", "moved"}
    request_suspension(submitter, move.job_id)
    assert set(places()) == {"consolidation"}
    request_resumption(submitter, move.job_id)
    assert set(places()) == {"consolidation", "moved"}
    request_cancellation(submitter, move.job_id)
    assert set(places()) == {"consolidation"}


def test_a_place_that_was_used_is_not_kept_again(cluster, move):
    leaving = places()["moved"].leaving
    assert (leaving.cluster, leaving.tenant_path, leaving.amounts["gpu"]) == (
        cluster.name,
        "acme/research/vision",
        4000,
    )
    ended(move.attempt)
    assert places()["moved"].leaving is None
    operations.run_scheduling_cycle()
    assert "moved" not in places()
    second = Attempt.objects.get(job=move.job, number=2)
    began = dict.fromkeys(("starting_at", "released_at", "started_at"), Now())
    Attempt.objects.filter(id=second.id).update(state="running", next_action_at=None, **began)
    Job.objects.filter(id=move.job_id).update(state="running", started_at=Now())
    with transaction.atomic():
        transitions.interrupt([second], "migrated", "Moved", "Moved.")
    ended(second)
    assert told(move.job)[0] == "queued"
    assert "moved" not in places()


def test_only_the_newest_checkpoint_says_where_a_job_can_be_resumed(waiting):
    redate(Checkpoint.objects.all(), written_at=Now() - timedelta(minutes=50))
    for attempt in Attempt.objects.filter(state="running"):
        written = Now() - timedelta(seconds=5)
        Checkpoint.objects.create(
            attempt=attempt, sequence=2, reference="s3://x/2", flavors=["another"], written_at=written
        )
    operations.run_scheduling_cycle()
    assert not Move.objects.exists(), "there it would continue from the older one, and repeat 50 minutes"
    Checkpoint.objects.filter(sequence=2).update(flavors=[])
    operations.run_scheduling_cycle()
    assert Move.objects.count() == 1


def test_viewers_do_not_learn_of_clusters_that_they_may_not_see(cluster, move, waiting, call, client):
    secret = make_tenant("acme/secret")
    hidden = simulated_cluster("hush-west", owner="acme/secret")
    Job.objects.filter(id=move.job_id).update(tenant=secret, name="hush")
    Move.objects.update(expected_id=hidden.id, nodes=["hush-node"])
    ben = make_user("ben@acme.example")
    bind(ben, "acme/research/vision", "viewer")
    code, answer = call(ben, "get", f"/jobs/{waiting.id}/consolidations")
    assert code == 200
    assert "hush" not in str(answer)
    (shown,) = answer["items"]
    (line,) = shown["moves"]
    assert (shown["cluster"], line["origin"], line["cluster"], line["nodes"]) == (cluster.name, cluster.name, None, [])
    client.force_login(ben)
    page = client.get(f"/jobs/{waiting.id}/").content.decode()
    assert "another cluster" in page
    assert "hush" not in page

"""The preview of a limit or a file: what it says is what the next round does, and nothing remains of it."""

from functools import partial
from random import Random

import pytest
from django.db import connection, connections, transaction

from clusters.models import Cluster
from federation import operations
from federation.models import Attempt, Job, Preemption, PriorityClass, Standstill
from federation.operations import previews
from federation.operations.previews import preview_limit
from foundation.models import OutboxMessage
from foundation.problems import RateLimited
from placement.answers.previews import next_round
from placement.fleet.fleet import FleetIndex
from quotas.engine.holds import Borrowing
from quotas.models import QuotaLimit
from quotas.operations import WantedLimit, put_limit
from tenancy.models import AuditEntry
from tests.builders import bind, make_tenant, make_user
from tests.laws import seeds, third_of
from tests.rooms.federation.test_reclaim import job_of, started

pytestmark = pytest.mark.django_db(transaction=True)
GPU = 1000
HOUR = 3600
TENANTS = ("acme/a", "acme/b", "acme/b/x")


@pytest.fixture(autouse=True)
def tenants(submitter):
    PriorityClass.objects.update(shield_seconds=0)
    PriorityClass.objects.filter(name="high").update(preempts="lower")
    for path in TENANTS:
        make_tenant(path)


@pytest.fixture
def boss():
    """An admin of acme."""
    user = make_user("root@acme.example")
    bind(user, "acme", "admin")
    return user


def put_of(tenant, nominal, **fields):
    return {"tenant": tenant, "resource": "gpu", "nominal": str(nominal)} | fields


def rows():
    """What a preview must not change."""
    return (
        list(QuotaLimit.objects.order_by("id").values()),
        list(Job.objects.order_by("id").values("id", "state", "reason_code", "reason_message")),
        list(Attempt.objects.order_by("id").values("id", "state", "stop_requested_at")),
        AuditEntry.objects.count(), OutboxMessage.objects.count(), Preemption.objects.count(),
    )  # fmt: skip


def names(part):
    return [one["name"] for one in part["jobs"]]


def stopped():
    return set(Attempt.objects.filter(stop_requested_at__isnull=False).values_list("job_id", flat=True))


def placed():
    return dict(Attempt.objects.filter(state="reserved").values_list("job_id", "cluster_id"))


def test_a_raised_limit_shows_who_would_start_and_changes_nothing(cluster, submitter, boss, call):
    job_of(submitter, "acme/a", "mine", gpus=4)
    put_limit(submitter, "acme/a", "gpu", nominal=0)
    operations.run_scheduling_cycle()
    before = rows()
    status, found = call(boss, "post", "/quotas/preview", put_of("acme/a", 4))
    assert status == 200, found
    assert (names(found["starts"]), found["starts"]["jobs"][0]["cluster"]) == (["mine"], cluster.name)
    assert (found["considered"], found["dispatch_open"], found["stops"]["count"]) == (1, True, 0)
    assert rows() == before
    assert call(boss, "put", "/quotas", put_of("acme/a", 4))[0] == 200
    operations.run_scheduling_cycle()
    assert list(Attempt.objects.values_list("job__name", flat=True)) == ["mine"]


def test_a_lowered_limit_shows_who_waits_and_who_is_stopped_and_when(cluster, submitter, boss, call):
    put_limit(submitter, "acme/a", "gpu", nominal=16 * GPU)
    started(submitter, "acme/a", "old", 600, gpus=4), started(submitter, "acme/a", "young", 10, gpus=4)
    job_of(submitter, "acme/a", "next", gpus=4)
    _, found = call(boss, "post", "/quotas/preview", put_of("acme/a", 4, reclaim_after=HOUR))
    assert names(found["waits"]) == ["next"]
    assert found["waits"]["jobs"][0]["code"] == "waiting_for_quota"
    (stop,) = found["stops"]["jobs"]
    assert (stop["name"], stop["code"], stop["anyway"], stop["for_job"]) == ("young", "limit_lowered", False, None)
    assert "The limit of acme/a allows 4 gpu, and 8 are held." in stop["message"]
    limit = QuotaLimit.objects.get()
    assert limit.nominal == 16 * GPU
    _, soon = call(boss, "post", "/quotas/preview", put_of("acme/a", 4, reclaim_after=0))
    assert soon["stops"]["jobs"][0]["at"] == soon["as_of"]
    assert soon["as_of"] < stop["at"], "an hour later"
    _, never = call(boss, "post", "/quotas/preview", put_of("acme/a", 4))
    assert never["stops"]["count"] == 0


def test_what_a_change_spares_and_what_happens_anyway(cluster, submitter, boss, call):
    put_limit(submitter, "acme/a", "gpu", nominal=12 * GPU)
    started(submitter, "acme/a", "old", 600, gpus=8), started(submitter, "acme/a", "young", 10, gpus=4)
    put_limit(submitter, "acme/a", "gpu", nominal=8 * GPU, reclaim_after=0)
    _, found = call(boss, "post", "/quotas/preview", put_of("acme/a", 12, reclaim_after=0))
    assert (names(found["spared"]), found["stops"]["count"]) == (["young"], 0)
    _, same = call(boss, "post", "/quotas/preview", put_of("acme/a", 9, reclaim_after=0))
    assert [(one["name"], one["anyway"]) for one in same["stops"]["jobs"]] == [("young", True)]


def test_quota_that_is_reclaimed_shows_for_whom(cluster, submitter, boss, call):
    put_limit(submitter, "acme", "gpu", nominal=16 * GPU)
    for path in ("acme/a", "acme/b"):
        put_limit(submitter, path, "gpu", nominal=8 * GPU, borrowing=Borrowing(None, None))
    started(submitter, "acme/b", "young", 10), started(submitter, "acme/b", "old", 300)
    mine = job_of(submitter, "acme/a", "mine")
    body = put_of("acme/a", 8, borrowing_limit=None, reclaims=True)
    _, found = call(boss, "post", "/quotas/preview", body)
    (stop,) = found["stops"]["jobs"]
    assert (stop["name"], stop["for_job"], stop["lost_seconds"] // 60) == ("young", str(mine.id), 10)
    assert "takes back quota that it lent: acme/b holds 16 gpu" in stop["message"]
    assert [(one["name"], one["code"]) for one in found["other_reasons"]["jobs"]] == [
        ("mine", "waiting_for_preemption")
    ]


def test_who_may_not_set_the_limit_gets_no_preview_and_other_tenants_are_only_counted(cluster, submitter, call):
    put_limit(submitter, "acme/b", "gpu", nominal=16 * GPU)
    put_limit(submitter, "acme/b/x", "gpu", nominal=8 * GPU)
    started(submitter, "acme/a", "secret", 10, gpus=8)
    viewer, manager, stranger = (make_user(f"{name}@acme.example") for name in ("viewer", "manager", "stranger"))
    bind(viewer, "acme", "viewer"), bind(manager, "acme/b", "manager"), bind(stranger, "globex", "admin")
    asked = put_of("acme/b/x", 4)
    assert call(viewer, "post", "/quotas/preview", asked)[1]["code"] == "permission_denied"
    assert call(stranger, "post", "/quotas/preview", asked)[0] == 404
    assert call(manager, "post", "/quotas/preview", put_of("acme/b", 4))[1]["code"] == "permission_denied"
    status, found = call(manager, "post", "/quotas/preview", asked)
    assert status == 200, found
    # What is freed under acme/b/x goes to a tenant that the manager may not see.
    job_of(submitter, "acme/b/x", "own", gpus=8)
    job_of(submitter, "acme/a", "hidden", gpus=8)
    status, found = call(manager, "post", "/quotas/preview", asked)
    assert (names(found["waits"]), found["starts"]["count"], found["starts"]["hidden"]) == (["own"], 1, 1)
    assert "hidden" not in str(found["starts"]["jobs"])
    assert "acme/a" not in str(found)


def test_a_file_is_previewed_as_it_would_be_applied(cluster, submitter, boss, call):
    job_of(submitter, "acme/a", "mine", gpus=4)
    put_limit(submitter, "acme/a", "gpu", nominal=0)
    operations.run_scheduling_cycle()
    file = call(boss, "get", "/tree?tenant=acme/a")[1]["file"]
    raised = file.replace("nominal: '0'", "nominal: '8'")
    assert raised != file
    before = rows()
    status, found = call(boss, "post", "/tree/preview", {"file": raised})
    assert status == 200, found
    assert names(found["starts"]) == ["mine"]
    assert rows() == before
    refused = raised.replace("acme/a", "acme/new")
    for path in ("/tree/preview", "/tree/apply"):
        assert call(boss, "post", path, {"file": f"{refused}\nnonsense: 1"})[0] == 422
    assert call(boss, "post", "/tree/preview", {"file": raised, "prune": "yes"})[0] == 422


def test_what_setting_the_limit_refuses_its_preview_refuses(cluster, submitter, boss, call):
    put_limit(submitter, "acme", "gpu", nominal=4 * GPU)
    for body in (
        put_of("acme/a", "-1"), put_of("acme/a", 8, lending_limit="0"), put_of("acme/a", 1, clusters=["nowhere"]),
        put_of("acme/nobody", 1), put_of("acme/a", 1, more=2), put_of("acme/a", "9" * 39), {},
    ):  # fmt: skip
        asked, done = (call(boss, verb, path, body) for verb, path in (("post", "/quotas/preview"), ("put", "/quotas")))
        assert (asked[0], asked[1]["code"]) == (done[0], done[1]["code"]), body
        assert asked[0] in (404, 409, 422)


def test_a_standstill_is_named_and_a_busy_desk_asks_to_come_again(cluster, boss, call, monkeypatch):
    Standstill.objects.create(reason="a test")
    assert call(boss, "post", "/quotas/preview", put_of("acme/a", 1))[1]["dispatch_open"] is False
    monkeypatch.setattr(previews, "WAIT_SECONDS", 0.01)
    with previews._desk:
        status, told = call(boss, "post", "/quotas/preview", put_of("acme/a", 1))
    assert (status, told["code"]) == (429, "preview_busy")


def scenario(random, submitter):
    """A tree of limits, and jobs that run and wait."""
    for number in range(random.randint(0, 5)):
        fields = {"priority_class": random.choice(["low", "normal"])}
        started(
            submitter,
            random.choice(TENANTS),
            f"run-{number}",
            random.randint(1, 600),
            gpus=random.choice([1, 2, 4, 8]),
            **fields,
        )
    for number in range(random.randint(1, 5)):
        fields = {"priority_class": random.choice(["low", "normal", "high"])}
        job_of(submitter, random.choice(TENANTS), f"wait-{number}", gpus=random.choice([1, 2, 4, 8]), **fields)
    put_limit(submitter, "acme", "gpu", nominal=random.choice([12, 16]) * GPU)
    for path in TENANTS:
        if random.random() < 0.8:
            set_limit(submitter, random, path)


def wanted(random, path):
    nominal = random.choice([0, 2, 4, 8, 12]) * GPU
    borrowing = Borrowing(random.choice([0, None]), None, reclaims=random.random() < 0.5)
    return WantedLimit(path, "gpu", nominal, (), borrowing, random.choice([None, 0, 0, HOUR]))


def set_limit(submitter, random, path):
    put_limit(submitter, **wanted(random, path)._replace(reclaim_after=None)._asdict())


def outcome():
    """What a round does now: which jobs it places and stops."""
    was_placed, was_stopped = placed(), stopped()
    operations.run_scheduling_cycle()
    starts = {job: where for job, where in placed().items() if job not in was_placed}
    return starts, stopped() - was_stopped


@pytest.mark.parametrize("first", third_of(seeds(range(0, 40, 10))))
def test_what_the_preview_says_is_what_the_next_round_does(cluster, submitter, first):
    told = set()
    for seed in range(first, first + 10):
        random = Random(seed)
        with transaction.atomic():
            scenario(random, submitter)
            change = wanted(random, random.choice(TENANTS))
            before, after = previews._states(partial(put_limit, submitter, **change._asdict()))
            foreseen = preview_limit(submitter, change)
            with transaction.atomic():
                without = outcome()
                transaction.set_rollback(True)
            put_limit(submitter, **change._asdict())
            changed = outcome()
            for state, (starts, stops) in (before, without), (after, changed):
                said = next_round(state, FleetIndex())
                assert {job: one.cluster_id for job, one in said.placements.items()} == starts, seed
                assert {job for job, one in said.stops.items() if one.at == state.snapshot.now} == stops, seed
            assert {one.job_id for one in foreseen.starts.jobs} == changed[0].keys() - without[0].keys()
            assert {one.job_id for one in foreseen.waits.jobs} == without[0].keys() - changed[0].keys()
            now = {one.job_id for one in foreseen.stops.jobs if one.at == foreseen.as_of}
            assert now == changed[1]
            told |= {name for name in ("starts", "waits", "stops") if getattr(foreseen, name).count}
            transaction.set_rollback(True)
    assert told, "the seeds show something"


def test_a_preview_meets_no_half_of_a_change_that_is_made_meanwhile(cluster, submitter, boss):
    """Both states come from one snapshot of the database."""
    levels = []

    def change():
        with connection.cursor() as cursor:
            cursor.execute("SHOW transaction_isolation")
            levels.append(cursor.fetchone()[0])

    previews._states(change)
    assert levels == ["repeatable read"]


def conflicting(limit, times):
    """Sets a limit whose row another session changes in between, so often."""
    left = iter(range(times))
    other = connections.create_connection("default")

    def change():
        QuotaLimit.objects.get(id=limit.id)  # the snapshot begins
        if next(left, None) is not None:
            with other.cursor() as cursor:
                cursor.execute("UPDATE quotas_quotalimit SET updated_at = now() WHERE id = %s", [limit.id])
        QuotaLimit.objects.select_for_update(no_key=True).get(id=limit.id)

    return change, other


@pytest.mark.parametrize("times", [1, 100])
def test_quota_that_changes_meanwhile_makes_it_begin_again_but_not_for_ever(cluster, submitter, times):
    limit, _ = put_limit(submitter, "acme/a", "gpu", nominal=8 * GPU)
    change, other = conflicting(limit, times)
    try:
        if times == 1:
            assert previews._foreseen(submitter, change).considered == 0
        else:
            with pytest.raises(RateLimited) as refused:
                previews._foreseen(submitter, change)
            assert refused.value.code == "preview_busy"
    finally:
        other.close()
    assert not previews._desk.locked()


def test_clusters_that_the_viewer_may_not_see_have_no_name(cluster, submitter, boss, call, monkeypatch):
    put_limit(submitter, "acme", "gpu", nominal=16 * GPU)
    for path in ("acme/a", "acme/b"):
        put_limit(submitter, path, "gpu", nominal=8 * GPU, borrowing=Borrowing(None, None))
    started(submitter, "acme/b", "young", 10), started(submitter, "acme/b", "old", 300)
    job_of(submitter, "acme/a", "mine")
    body = put_of("acme/a", 8, borrowing_limit=None, reclaims=True)
    shown = call(boss, "post", "/quotas/preview", body)[1]
    assert cluster.name in str(shown)
    monkeypatch.setattr(previews, "visible_clusters", lambda _: Cluster.objects.none())
    found = call(boss, "post", "/quotas/preview", body)[1]
    assert cluster.name not in str(found)
    assert found["stops"]["jobs"][0]["cluster"] is None
    assert "of another cluster" in found["other_reasons"]["jobs"][0]["message"]

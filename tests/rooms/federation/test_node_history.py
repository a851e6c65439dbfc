"""A node's history: what ran there and on which devices, how it ended, when jobs avoided it, and who may read that."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.operations import create_price
from billing.operations.credits import NewCreditPolicy, set_credit_policy
from billing.operations.prices import NewPrice
from clusters.models import Cluster, Node
from federation import operations
from federation.models import Attempt, Diagnosis, Job, PodRun
from federation.operations import settle_attempts
from federation.queries.nodes import MOST_PODS
from foundation.clock import now
from tenancy.queries import SYSTEM
from tests.builders import bind, make_cluster, make_flavor, make_node, make_tenant, make_user, redate

from .test_hostile_reports import make_attempt, pod_of, report
from .test_lemon_nodes import TENANTS, ran, spoil, usual

pytestmark = pytest.mark.django_db
FIRST, SECOND = "gpu.nvidia.com/n3/gpu-0", "gpu.nvidia.com/n3/gpu-1"


@pytest.fixture
def north() -> Cluster:
    cluster = make_cluster("acme", "north")
    make_flavor(cluster)
    for number in range(10):
        make_node(cluster, f"n{number}")
    return cluster


@pytest.fixture
def admin():
    user = make_user("root@acme.example")
    bind(user, "acme")
    return user


@pytest.fixture
def summary(call, admin, north):
    def ask(node: str = "n3", cluster: Cluster = north) -> Any:
        status, answer = call(admin, "get", f"/clusters/{cluster.id}/nodes/{node}")
        assert status == 200, answer
        return answer

    return ask


@pytest.fixture
def history(call, admin, north):
    def ask(query: str = "", node: str = "n3", cluster: Cluster = north) -> Any:
        status, answer = call(admin, "get", f"/clusters/{cluster.id}/nodes/{node}/history{query}")
        assert status == 200, answer
        return answer

    return ask


def with_devices(attempt: Attempt, *devices: str) -> Attempt:
    attempt.pods.update(devices=list(devices))
    return attempt


def test_a_node_on_which_nothing_ran_has_empty_figures(summary, history, north):
    usual(north)
    found = summary("n3")
    assert summary("n3")["total"]["runs"] == 3
    make_node(north, "new")
    found = summary("new")
    assert found.pop("since") is not None
    assert found == {
        "node": "new", "is_present": True, "faults": [], "avoided_until": None, "devices": [], "runs_without_devices": 0,
        "total": {
            "runs": 0, "gpu_hours": "0.000000", "failures": {}, "last_failed_at": None, "is_above_others": False,
            "rate": {"failures": 0, "jobs": 0, "share": None, "low": 0.0, "high": 1.0},
        },
        "others": {"failures": 0, "jobs": 30, "share": 0.0, "low": 0.0, "high": 0.113517},
    }  # fmt: skip
    assert history(node="new") == {"items": [], "next": None}


def test_each_device_has_its_runs_failures_and_rate_beside_that_of_all_other_nodes(summary, north):
    usual(north)
    ran(north, "n5", TENANTS[0], "device")
    for number in range(4):
        with_devices(ran(north, "n3", TENANTS[number % 3], "device", minutes=1), FIRST)
    last = with_devices(ran(north, "n3", TENANTS[0], "out_of_memory"), FIRST, SECOND)
    with_devices(ran(north, "n3", TENANTS[0]), SECOND)
    found = summary()
    first, second = found["devices"]
    assert (first["device"], first["runs"], first["failures"]) == (FIRST, 5, {"device": 4, "out_of_memory": 1})
    assert (first["rate"]["failures"], first["rate"]["jobs"], first["is_above_others"]) == (4, 5, True)
    assert (second["device"], second["runs"], second["failures"]) == (SECOND, 2, {"out_of_memory": 1})
    assert (second["rate"]["failures"], second["rate"]["jobs"], second["is_above_others"]) == (0, 2, False)
    assert first["last_failed_at"] == second["last_failed_at"] == found["total"]["last_failed_at"]
    assert first["last_failed_at"][:19] == last.finished_at.isoformat()[:19]
    assert (found["total"]["runs"], found["total"]["rate"]["jobs"], found["others"]["jobs"]) == (9, 9, 28)
    assert found["others"]["failures"] == 1


def test_the_runs_of_one_job_count_once_in_a_rate_as_when_nodes_are_found(summary, north):
    first = ran(north, "n3", TENANTS[0], "device")
    for number in (2, 3):
        again = ran(north, "n3", TENANTS[0], "device")
        Attempt.objects.filter(id=again.id).update(job=first.job, number=number)
    found = summary()["total"]
    assert (found["runs"], found["failures"], found["rate"]["failures"], found["rate"]["jobs"]) == (
        3,
        {"device": 3},
        1,
        1,
    )


def test_a_failure_on_another_node_of_the_run_is_no_failure_here_and_names_the_other(summary, history, north):
    attempt = ran(north, "n3", TENANTS[0])
    Diagnosis.objects.create(
        attempt=attempt, failure_class="device", own_class="device", text="XID 79", rule="r", step="stop", node="n4",
        judged_at=now(),
    )  # fmt: skip
    assert summary()["total"]["failures"] == {}
    [one] = history()["items"]
    assert (one["run"]["failure_class"], one["run"]["text"], one["run"]["failed_on"]) == ("", "", "n4")


def test_old_runs_and_those_of_the_clusters_of_others_do_not_count_in_the_rates(summary, history, north):
    usual(north)
    foreign = make_cluster("rival", "north")
    make_node(foreign, "n3")
    spoil(foreign)
    with_devices(ran(foreign, "n3", "rival", "device"), FIRST)
    old = ran(north, "n3", TENANTS[0], "device")
    redate(old.pods.all(), first_seen_at=now() - timedelta(days=31))
    found = summary()
    assert (found["total"]["runs"], found["devices"], found["others"]["failures"]) == (3, [], 0)
    assert len(history()["items"]) == 4


def test_two_clusters_with_a_node_of_one_name_have_two_histories(summary, history, north):
    south = make_cluster("acme", "south")
    make_node(south, "n3")
    with_devices(ran(south, "n3", TENANTS[0], "device"), FIRST)
    ran(north, "n3", TENANTS[1])
    assert (summary()["total"]["runs"], summary(cluster=south)["total"]["runs"]) == (1, 1)
    assert [one["run"]["devices"] for one in history()["items"]] == [[]]
    assert [one["run"]["devices"] for one in history(cluster=south)["items"]] == [[FIRST]]
    assert summary()["others"]["failures"] == 1


def test_a_node_that_left_keeps_its_history(summary, history, north):
    ran(north, "n3", TENANTS[0], "device")
    Node.objects.filter(name="n3").delete()
    found = summary()
    assert (found["is_present"], found["total"]["failures"]) == (False, {"device": 1})
    assert len(history()["items"]) == 1
    Node.objects.filter(name="n4").delete()
    assert summary("n4")["is_present"] is False  # nothing ran there, but it was there


def test_the_history_shows_when_jobs_avoided_the_node_why_and_who_let_them_use_it_again(
    summary, history, call, admin, north
):
    usual(north)
    spoil(north)
    operations.weigh_failures()
    assert summary()["avoided_until"] is not None
    [latest, *runs] = history()["items"]
    assert latest["run"] is None
    assert (latest["avoidance"]["begins"], latest["avoidance"]["by"]) == (True, "")
    assert "6 of its last 9 runs failed" in latest["avoidance"]["reason"]
    assert all(one["run"] for one in runs)
    call(admin, "post", f"/clusters/{north.id}/avoided-nodes/{latest['avoidance']['id']}/clear")
    ended, began, *_ = history()["items"]
    assert (ended["avoidance"]["begins"], ended["avoidance"]["by"]) == (False, "root@acme.example")
    assert began["avoidance"]["begins"] is True
    assert summary()["avoided_until"] is None


def walk(history, size: int, **asked: str) -> list[Any]:
    cursor, found = "", []
    while True:
        page = history(f"?limit={size}{cursor}", **asked)
        found += page["items"]
        if page["next"] is None:
            return found
        cursor = f"&cursor={page['next']}"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 100])
def test_pages_of_any_size_show_each_entry_once_and_in_one_order(history, call, admin, north, size):
    began = now() - timedelta(hours=9)
    for number in range(7):
        attempt = ran(north, "n3", TENANTS[0])
        redate(attempt.pods.all(), first_seen_at=began + timedelta(hours=number))
    for number in (-1, 1, 3, 6):
        at = began + timedelta(hours=number, minutes=30)
        given = {"began_at": at, "until_at": at + timedelta(hours=12), "ended_at": at + timedelta(minutes=10)}
        north.avoided_nodes.create(node="n3", uid=f"u{number}", reason=str(number), **given)
    north.avoided_nodes.create(node="n4", uid="other", reason="other", until_at=now() + timedelta(hours=1))
    found = walk(history, size)
    assert found == history("?limit=500")["items"]
    assert [one["at"] for one in found] == sorted((one["at"] for one in found), reverse=True)
    assert len(found) == 7 + 2 * 4


def test_a_filter_by_device_shows_its_runs_and_its_cursor_belongs_to_it(history, call, admin, north):
    for device in (FIRST, SECOND, FIRST):
        with_devices(ran(north, "n3", TENANTS[0]), device)
    page = history(f"?device={FIRST}&limit=1")
    assert [one["run"]["devices"] for one in page["items"]] == [[FIRST]]
    assert len(walk(history, 1)) == 3
    assert [one["run"]["devices"] for one in history(f"?device={FIRST}&cursor={page['next']}")["items"]] == [[FIRST]]
    path = f"/clusters/{north.id}/nodes/n3/history?device={SECOND}&cursor={page['next']}"
    status, refused = call(admin, "get", path)
    assert (status, refused["errors"][0]["code"]) == (422, "bad_cursor")
    assert history("?device=%27%20OR%201=1--")["items"] == []


def test_a_run_names_its_job_devices_end_and_what_of_its_work_is_lost_and_credited(summary, history, north):
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(10), effective_from=now() - timedelta(days=9)))
    attempt = make_attempt(north, path="acme/team")
    pod = pod_of(attempt, node="n3")
    ended = now().replace(microsecond=0) - timedelta(minutes=1)
    report(north, pod, devices={pod.uid: [FIRST, SECOND]})
    report(north, pod_of(attempt, uid=pod.uid, node="n3", phase="Failed", finished_at=ended, exit_code=1))
    Attempt.objects.filter(id=attempt.id).update(
        state="failed", finished_at=now(), end_reason="program_failed", started_at=pod.started_at
    )
    Diagnosis.objects.create(
        attempt=attempt, failure_class="device", own_class="device", text="XID 79", rule="r", step="stop", node="n3",
        judged_at=now(),
    )  # fmt: skip
    redate(Attempt.objects.filter(id=attempt.id), finished_at=now() - timedelta(minutes=10))
    settle_attempts()
    [one] = history()["items"]
    run = one["run"]
    job = Job.objects.get()
    assert run["job"] == {
        "id": str(job.id), "name": "job", "tenant": "acme/team", "attempt_id": str(attempt.id), "attempt": 1,
    }  # fmt: skip
    assert (run["devices"], run["gpu_units"], run["exit_code"]) == ([FIRST, SECOND], 2, 1)
    assert (run["failure_class"], run["text"], run["state"]) == ("device", "XID 79", "failed")
    assert (run["lost_work"], run["credited"], run["is_settled"]) == ("device", [], True)
    hours = Decimal(summary()["total"]["gpu_hours"])
    ran_for = PodRun.objects.get().finished_at - pod.started_at
    assert round(float(hours), 3) == round(2 * ran_for.total_seconds() / 3600, 3)
    assert [round(Decimal(each["gpu_hours"]) * 2, 4) for each in summary()["devices"]] == [round(hours, 4)] * 2
    month = now().date().replace(day=1)
    set_credit_policy(SYSTEM, NewCreditPolicy("acme", month, ["device"]))
    [credited] = history()["items"][0]["run"]["credited"]
    assert (credited["currency"], Decimal(credited["amount"]) > 0) == ("USD", True)


def test_gpus_by_count_are_said_to_be_unknown(summary, history, north):
    attempt = make_attempt(north)
    pod = pod_of(attempt, node="n3")
    report(north, pod)
    operations.accrue_running()
    found = summary()
    assert (found["devices"], found["runs_without_devices"]) == ([], 1)
    assert history()["items"][0]["run"]["gpu_units"] == 2


@pytest.mark.parametrize(
    ("taints", "faults"),
    [
        ([], []),
        ([{"key": "team", "value": "a", "effect": "NoSchedule"}], []),
        ([{"key": "nvidia.com/gpu-xid", "value": "79", "effect": "NoSchedule"}], ["nvidia.com/gpu-xid=79:NoSchedule"]),
        ([{"key": "ecc-error", "effect": "NoExecute"}], ["ecc-error=:NoExecute"]),
    ],
)
def test_taints_that_report_a_failed_device_are_shown(summary, north, taints, faults):
    Node.objects.filter(name="n3").update(taints=taints)
    assert summary()["faults"] == faults


def test_times_of_a_wrong_clock_do_not_move_an_entry(history, north):
    ahead, behind = ran(north, "n3", TENANTS[0]), ran(north, "n3", TENANTS[1])
    redate(ahead.pods.all(), started_at=now() + timedelta(days=400), finished_at=now() + timedelta(days=401))
    redate(behind.pods.all(), started_at=now() - timedelta(days=400), finished_at=now() - timedelta(days=399))
    assert [one["run"]["job"]["tenant"] for one in history()["items"]] == [TENANTS[1], TENANTS[0]]


# Who may read it.


@pytest.mark.parametrize("path", ["", "/history"])
@pytest.mark.parametrize(
    ("role", "at", "status"),
    [
        ("admin", "acme", 200),
        ("manager", "acme", 403),
        ("viewer", "acme", 403),
        ("finance", "acme", 403),
        ("admin", "acme/red", 403),
        ("submitter", "acme/red/x", 403),
        ("admin", "rival", 404),
    ],
)
def test_only_who_manages_the_cluster_reads_it(call, north, path, role, at, status):
    ran(north, "n3", TENANTS[0])
    make_tenant(at)
    bind(user := make_user(), at, role)
    assert call(user, "get", f"/clusters/{north.id}/nodes/n3{path}")[0] == status


@pytest.mark.parametrize("path", ["", "/history"])
@pytest.mark.parametrize(
    "node",
    [
        "n99",
        "N3",
        "n3%20",
        "..%2Fn3",
        "n3%2F..",
        "%00",
        "%E2%80%AEn3",
        "%F0%9F%92%A5",
        "n" * 300,
        "n3%27--",
        "%25",
        "{}",
        "n3%0A",
    ],
)
def test_a_node_that_never_was_there_is_not_found_whatever_its_name(call, admin, north, path, node):
    ran(north, "n3", TENANTS[0])
    assert call(admin, "get", f"/clusters/{north.id}/nodes/{node}{path}")[0] == 404


def test_the_job_of_a_tenant_that_the_reader_may_not_see_has_no_name(history, call, north):
    attempt = ran(north, "n3", "rival/secret", "device")
    attempt.pods.update(reason="what they said")
    [one] = history()["items"]
    assert one["run"]["job"] is None
    assert (one["run"]["text"], one["run"]["reason"], one["run"]["failed_on"]) == ("", "", "")
    assert one["run"]["failure_class"] == "device"
    for word in (
        "rival",
        "secret",
        "what they said",
        str(attempt.id),
        str(attempt.job_id),
        attempt.job.name.join('""'),
    ):
        assert word not in str(one)


# How much it costs.


def test_a_page_asks_the_same_number_of_questions_for_one_run_and_for_many(history, north):
    def questions() -> int:
        with CaptureQueriesContext(connection) as asked:
            history("?limit=100")
        return len(asked)

    ran(north, "n3", TENANTS[0], "device")
    one = questions()
    for number in range(20):
        ran(north, "n3", TENANTS[number % 3], "device")
    assert questions() == one


def test_the_runs_of_a_node_are_read_by_its_index_and_no_more_than_are_counted(summary, north, monkeypatch):
    for number in range(5):
        ran(north, "n3", TENANTS[0], "device" if number < 3 else "")
    monkeypatch.setattr("federation.queries.nodes.MOST_PODS", 2)
    assert summary()["total"]["runs"] == 2  # the newest, which did not fail
    assert summary()["total"]["failures"] == {}
    assert MOST_PODS == 10_000
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        rows = PodRun.objects.filter(cluster_id=north.id, node="n3").exclude(node="").order_by("-id")[:51]
        assert "pods_of_nodes" in rows.explain()

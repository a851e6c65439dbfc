"""The database judges reservations: each constraint attacked in raw SQL; and a round that overlaps with the making of one."""

from datetime import timedelta

import pytest
from django.db import connection

from federation.models import Attempt, Job, Reservation, ReservedNode
from federation.operations import cancel_reservation, make_reservation, run_scheduling_cycle
from foundation import clock
from foundation.plain_json import instant
from placement.cycle import cycle
from tests.builders import actor_for, bind, make_cluster, make_flavor, make_node, make_spec, make_tenant, submit
from tests.builders import make_user as new_user
from tests.rooms.federation.test_constraints import attack

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.fixture
def north():
    cluster = make_cluster("acme", "north")
    make_flavor(cluster)
    make_node(cluster, "n1")
    return cluster


@pytest.fixture
def admin():
    user = new_user()
    bind(user, "acme", "admin")
    return actor_for(user)


def reserve(admin, name="eval", begins=HOUR, lasts=HOUR):
    now = clock.now()
    body = {
        "tenant": "acme",
        "name": name,
        "starts_at": instant(now + begins) if begins else None,
        "ends_at": instant(now + begins + lasts),
        "pod_sets": [{"cpu": "1", "memory": "1Gi", "gpu": {"count": 8}}],
    }
    answer = make_reservation(admin, body, show=lambda row: {"id": str(row.id)})
    return Reservation.objects.get(id=answer.body["id"])


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("name = 'Ü'", "stays as it was asked for"),
        ("tenant_id = gen_random_uuid()", "stays as it was asked for"),
        ("cluster_id = gen_random_uuid()", "stays as it was asked for"),
        ("starts_at = starts_at - interval '1 minute'", "stays as it was asked for"),
        ("ends_at = ends_at + interval '1 day'", "stays as it was asked for"),
        ("shape = '{}'", "stays as it was asked for"),
        ("count = count + 1", "stays as it was asked for"),
        ("until_at = until_at + interval '1 second'", "only ever ends sooner"),
        ("until_at = starts_at - interval '1 second'", "reservation_is_kept_within_what_was_asked"),
        ("cancelled_at = now()", "a_cancelled_reservation_ends_at_once"),
        (
            "until_at = starts_at, cancelled_at = starts_at + interval '1 second'",
            "a_cancelled_reservation_ends_at_once",
        ),
        ("id = gen_random_uuid()", "stays as it was asked for"),
    ],
)
@pytest.mark.usefixtures("north")
def test_a_reservation_cannot_become_another(admin, change, constraint):
    row = reserve(admin)
    assert constraint in attack(f"UPDATE federation_reservation SET {change} WHERE id = %s", row.id)


@pytest.mark.usefixtures("north")
def test_what_has_passed_stays_as_it_was(admin):
    row = reserve(admin, begins=timedelta())
    shorten = "UPDATE federation_reservation SET until_at = {} WHERE id = %s"
    told = attack(shorten.format("starts_at + interval '1 microsecond'"), row.id)
    assert "was in force until now" in told
    cancel_reservation(admin, row.id)
    row.refresh_from_db()
    assert row.until_at == row.cancelled_at
    assert "was cancelled" in attack(shorten.format("starts_at"), row.id)
    assert "was cancelled" in attack("UPDATE federation_reservation SET cancelled_at = NULL WHERE id = %s", row.id)


@pytest.mark.parametrize("table", ["federation_reservation", "federation_reservednode"])
@pytest.mark.usefixtures("north")
def test_reservations_are_never_deleted(admin, table):
    reserve(admin)
    connection.check_constraints()
    assert "never deleted" in attack(f"DELETE FROM {table}")
    assert "never deleted" in attack(f"TRUNCATE {table} CASCADE")


INSERT = """
INSERT INTO federation_reservation (id, tenant_id, created_by_id, cluster_id, name, shape, count, starts_at, ends_at, until_at)
SELECT gen_random_uuid(), tenant_id, created_by_id, cluster_id, {name}, shape, {count}, starts_at, {ends}, {until}
  FROM federation_reservation
"""


@pytest.mark.parametrize(
    ("changes", "constraint"),
    [
        ({}, "reservation_name_is_unique_in_its_tenant"),
        ({"name": "'ÜBER'"}, "reservation_name_is_a_dns_label"),
        ({"name": "''"}, "reservation_name_is_a_dns_label"),
        ({"name": "'b'", "count": "0"}, "reservation_is_for_something"),
        ({"name": "'b'", "ends": "starts_at", "until": "starts_at"}, "reservation_ends_after_it_starts"),
        ({"name": "'b'", "until": "ends_at + interval '1 second'"}, "reservation_is_kept_within_what_was_asked"),
        ({"name": "'b'"}, "it was allowed"),
    ],
)
@pytest.mark.usefixtures("north")
def test_the_database_takes_no_nonsense(admin, changes, constraint):
    reserve(admin)
    given = {"name": "name", "count": "count", "ends": "ends_at", "until": "until_at"} | changes
    assert constraint in attack(INSERT.format(**given))


@pytest.mark.parametrize(
    ("columns", "constraint"),
    [
        ("reservation_id, cluster_id, node, starts_at, until_at", "a_node_is_in_a_reservation_once"),
        ("reservation_id, cluster_id, 'n2', starts_at, until_at + interval '1 s'", "reserved_nodes_follow"),
        ("reservation_id, cluster_id, 'n2', starts_at - interval '1 s', until_at", "reserved_nodes_follow"),
        ("gen_random_uuid(), cluster_id, 'n2', starts_at, until_at", "reserved_nodes_follow"),
    ],
)
@pytest.mark.usefixtures("north")
def test_a_reserved_node_has_its_reservations_times(admin, columns, constraint):
    reserve(admin)
    told = attack(
        "INSERT INTO federation_reservednode (reservation_id, cluster_id, node, starts_at, until_at)"
        f" SELECT {columns} FROM federation_reservednode"
    )
    assert constraint in told
    for change in ("until_at = until_at + interval '1 s'", "starts_at = starts_at - interval '1 s'", "node = 'n9'"):
        assert "was allowed" not in attack(f"UPDATE federation_reservednode SET {change}")


def test_no_node_is_reserved_twice_at_a_time(admin, north):
    first = reserve(admin)
    make_node(north, "n2")
    second = reserve(admin, "two")
    insert = (
        "INSERT INTO federation_reservednode (reservation_id, cluster_id, node, starts_at, until_at)"
        " SELECT %s, cluster_id, 'n1', starts_at, until_at FROM federation_reservation WHERE id = %s"
    )
    assert "a_node_is_reserved_once_at_a_time" in attack(insert, second.id, second.id)
    cancel_reservation(admin, first.id)
    assert ReservedNode.objects.get(reservation=first).until_at == first.starts_at
    assert attack(insert, second.id, second.id) == "it was allowed"


@pytest.mark.usefixtures("north")
def test_one_may_follow_another_on_its_nodes_in_the_very_instant(admin):
    first = reserve(admin)
    follows = reserve(admin, "two", begins=first.until_at - clock.now())
    assert follows.starts_at >= first.until_at - timedelta(seconds=1)


@pytest.mark.parametrize(("deadline", "placed"), [(1800, 1), (86_400, 0)])
@pytest.mark.usefixtures("north")
def test_a_round_drops_what_a_reservation_made_meanwhile_forbids(admin, monkeypatch, deadline, placed):
    """The reservation is made between the round's look and its writing."""
    make_tenant("acme/team")
    submit(admin, {"tenant": "acme/team", **make_spec(pod={"gpu": {"count": 8}}, deadline_seconds=deadline)})
    decide = cycle.run

    def decide_slowly(snapshot, index):
        decisions = decide(snapshot, index)
        reserve(admin)
        return decisions

    monkeypatch.setattr(cycle, "run", decide_slowly)
    run_scheduling_cycle()
    assert Attempt.objects.count() == placed
    monkeypatch.undo()
    run_scheduling_cycle()
    assert Attempt.objects.count() == placed
    assert placed or Job.objects.get().reason_code == "kept_for_reservation"


@pytest.mark.usefixtures("north")
def test_a_round_drops_what_was_to_run_in_a_reservation_that_was_cancelled_meanwhile(admin, monkeypatch):
    row = reserve(admin, begins=timedelta())
    spec = make_spec(deadline_seconds=60, constraints={"reservation": "eval"})
    submit(admin, {"tenant": "acme", **spec})
    decide = cycle.run

    def decide_slowly(snapshot, index):
        decisions = decide(snapshot, index)
        assert decisions[0].placements
        cancel_reservation(admin, row.id)
        return decisions

    monkeypatch.setattr(cycle, "run", decide_slowly)
    run_scheduling_cycle()
    assert not Attempt.objects.exists()

"""Tenants move in the tree with what their work holds."""

import pytest
from django.db import IntegrityError, connection, transaction

from foundation.problems import Conflict
from quotas.engine.holds import Borrowing
from quotas.models import HoldMovement, UserHolding
from quotas.operations import delete_limit, end_holds, put_limit, put_user_limit, take_holds
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM
from tests.builders import hold_request, make_tenant
from tests.refusals import constraint_of
from tests.rooms.quotas.test_borrowing import held, settle

pytestmark = pytest.mark.django_db
GPU = 1000
EACH = [("acme", 20), ("acme/x", 8), ("acme/y", 8)]
BORROWS = Borrowing(None, None)


@pytest.fixture
def tree():
    """Two departments, each with a team."""
    for path in ("acme/x/team/p", "acme/x/other", "acme/y"):
        make_tenant(path)
    return {path: put_limit(SYSTEM, path, "gpu", nominal=gpus * GPU)[0] for path, gpus in EACH}


def takes(path, gpus, **fields):
    asked = hold_request(path, {"gpu": gpus * GPU}, **fields)
    assert take_holds([asked]) == {asked.holder_id: None}
    return asked.holder_id


def move(path, to):
    return change_tenant(SYSTEM, make_tenant(path).id, parent_id=make_tenant(to).id)


def test_what_work_holds_moves_with_its_tenant_and_ends_once(tree):
    first, second = takes("acme/x/team", 3), takes("acme/x/team/p", 2)
    takes("acme/x/other", 1)
    assert move("acme/x/team", "acme/y").path == "acme/y/team"
    assert held() == {"acme": 6, "acme/x": 1, "acme/y": 5}
    settle()
    end_holds({first: "posted", second: "voided"})
    assert held() == {"acme": 1, "acme/x": 1, "acme/y": 0}
    settle()


def test_a_tenant_moves_there_and_back_while_its_work_runs(tree):
    running = takes("acme/x/team", 3)
    for to in ("acme/y", "acme/x", "acme/y", "acme/x"):
        move(f"acme/{'x' if to == 'acme/y' else 'y'}/team", to)
        settle()
    assert held() == {"acme": 3, "acme/x": 3, "acme/y": 0}
    end_holds({running: "posted"})
    assert held() == {"acme": 0, "acme/x": 0, "acme/y": 0}
    settle()


def test_what_counts_at_a_limit_that_moves_along_stays_there_with_its_guarantee(tree):
    put_limit(SYSTEM, "acme/x/team", "gpu", nominal=4 * GPU, borrowing=Borrowing(None, GPU))
    takes("acme/x/team/p", 2)
    assert held() == {"acme": 3, "acme/x": 3, "acme/x/team": 2, "acme/y": 0}
    lines = HoldMovement.objects.count()
    move("acme/x/team", "acme/y")
    assert held() == {"acme": 3, "acme/x": 0, "acme/y": 3, "acme/y/team": 2}
    assert HoldMovement.objects.count() == lines
    settle()


def test_work_counts_under_limits_that_were_not_there_before_and_no_longer_under_those_that_are_not_there_now(tree):
    put_limit(SYSTEM, "acme/y", "jobs", nominal=3)
    put_limit(SYSTEM, "acme/x", "cpu", nominal=8000)
    asked = hold_request("acme/x/team", {"gpu": GPU, "cpu": 2000, "jobs": 1})
    take_holds([asked])
    move("acme/x/team", "acme/y")
    found = dict(HoldMovement.objects.filter(kind="move").values_list("limit__resource", "amount"))
    assert (found["jobs"], found["cpu"]) == (1, -2000)
    settle()
    move("acme/y/team", "acme/x")
    settle()
    end_holds({asked.holder_id: "posted"})
    settle()


def test_lines_at_a_removed_limit_leave_it(tree):
    running = takes("acme/x/team", 3)
    delete_limit(SYSTEM, tree["acme/x"].id)
    move("acme/x/team", "acme/y")
    assert held()["acme/y"] == 3
    settle()
    end_holds({running: "posted"})
    settle()


def test_work_that_does_not_fit_at_the_new_place_keeps_its_tenant_where_it_is(tree):
    takes("acme/y", 6)
    takes("acme/x/team", 3)
    with pytest.raises(Conflict) as refused:
        move("acme/x/team", "acme/y")
    assert refused.value.code == "moved_work_does_not_fit"
    assert refused.value.detail == (
        "The work of acme/x/team does not fit at its new place: acme/y may hold 8 gpu, holds 6, and would hold 3 more. Raise that"
        " limit, or move the tenant when enough work has ended."
    )
    assert held() == {"acme": 9, "acme/x": 3, "acme/y": 6}
    put_limit(SYSTEM, "acme/y", "gpu", nominal=8 * GPU, borrowing=BORROWS)
    move("acme/x/team", "acme/y")  # what it may borrow counts
    assert held() == {"acme": 9, "acme/x": 0, "acme/y": 9}
    settle()


def test_a_full_limit_above_both_places_and_a_surplus_are_no_obstacle(tree):
    takes("acme/x/team", 8)
    put_limit(SYSTEM, "acme", "gpu", nominal=8 * GPU)
    move("acme/x/team", "acme/y")
    settle()
    put_limit(SYSTEM, "acme", "gpu", nominal=2 * GPU)
    move("acme/y/team", "acme/x")
    assert held() == {"acme": 8, "acme/x": 8, "acme/y": 0}
    settle()


def test_what_each_user_may_hold_at_the_new_place_counts_what_moves(tree):
    user = hold_request("acme/x/team").holder_id
    put_user_limit(SYSTEM, "acme/x", "gpu", most=4 * GPU)
    put_user_limit(SYSTEM, "acme/y", "gpu", most=4 * GPU)
    running = takes("acme/x/team", 3, user_id=user)
    takes("acme/y", 2, user_id=user)
    with pytest.raises(Conflict) as refused:
        move("acme/x/team", "acme/y")
    assert refused.value.code == "moved_work_does_not_fit"
    assert "each user in acme/y may hold 4 gpu, and a user would hold 5" in refused.value.detail
    put_user_limit(SYSTEM, "acme/y", "gpu", most=5 * GPU)
    move("acme/x/team", "acme/y")
    counts = dict(UserHolding.objects.filter(user_id=user).values_list("limit__tenant__path", "held"))
    assert counts == {"acme/x": 0, "acme/y": 5 * GPU}
    settle()
    end_holds({running: "posted"})
    settle()


ATTACKS = {
    "a line of a move by hand": (
        "INSERT INTO quotas_holdmovement (hold_id, limit_id, kind, nth, amount) VALUES (%(hold)s, %(x)s, 'move', 1, -3000)",
        "moves_follow_tenants",
    ),
    "a take beside it": (
        "INSERT INTO quotas_holdmovement (hold_id, limit_id, kind, nth, amount) VALUES (%(hold)s, %(y)s, 'take', 1, 3000)",
        "takes_add_and_ends_subtract",
    ),
    "more than fits": (
        "UPDATE tenancy_tenant SET parent_id = %(small)s WHERE id = %(team)s",
        "quota_is_never_exceeded",
    ),
    "with one below it": (
        "UPDATE tenancy_tenant SET parent_id = %(y_tenant)s WHERE id IN (%(team)s, %(p)s)",
        "tenants_with_holds_move_alone",
    ),
    "into one that moves": (
        (
            "UPDATE tenancy_tenant SET parent_id = CASE id WHEN %(team)s THEN %(other)s ELSE %(y_tenant)s END"
            " WHERE id IN (%(team)s, %(other)s)"
        ),
        "tenants_with_holds_move_alone",
    ),
}  # fmt: skip


def strike(statement, rows):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, rows)
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_database_refuses(tree, attack):
    make_tenant("acme/small")
    put_limit(SYSTEM, "acme/small", "gpu", nominal=2 * GPU)
    rows = {
        "hold": takes("acme/x/team", 3), "x": tree["acme/x"].id, "y": tree["acme/y"].id,
        "team": make_tenant("acme/x/team").id, "p": make_tenant("acme/x/team/p").id, "other": make_tenant("acme/x/other").id,
        "y_tenant": make_tenant("acme/y").id, "small": make_tenant("acme/small").id,
    }  # fmt: skip
    takes("acme/x/team/p", 1)
    statement, constraint = ATTACKS[attack]
    with pytest.raises(IntegrityError) as refused:
        strike(statement, rows)
    assert constraint_of(refused.value) == constraint
    settle()


def test_the_database_counts_right_whoever_moves_a_tenant(tree):
    takes("acme/x/team", 3)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tenancy_tenant SET parent_id = %s WHERE id = %s",
            [make_tenant("acme/y").id, make_tenant("acme/x/team").id],
        )
    assert held() == {"acme": 3, "acme/x": 0, "acme/y": 3}
    settle()

"""Limits of classes at tenants under many sessions with real commits: never exceeded, each hold counted once, no deadlock."""

import threading
import time
from collections import Counter

import pytest
import yaml
from django.db import IntegrityError, connection, transaction

from federation.models import PriorityClass
from federation.operations import put_class, remove_class
from federation.operations.class_limits import put_tenant_class_limit
from federation.operations.tree import apply_tree
from foundation.ids import new_id
from foundation.problems import Problem
from quotas import locks
from quotas.engine.holds import Borrowing, HoldRequest
from quotas.models import ClassLimit
from quotas.operations import end_holds, put_class_limit, put_class_limits, put_limit, take_holds
from quotas.operations.holds import _give_back
from quotas.queries import class_limit_states, discrepancies
from tenancy.models import Tenant
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM
from tests.builders import hold_request, make_tenant
from tests.refusals import constraint_of

from .test_borrowing_races import deadlocks
from .test_quota_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)
KIND = "department"
ONE = {"jobs": 1, "gpu": 1000}


def put(path, most, name="urgent", resource="jobs"):
    make_tenant(path)
    return put_class_limit(SYSTEM, path, name, resource, most=most)[0]


def test_of_200_takers_below_a_tenant_exactly_one_gets_the_last_place_of_the_class_there():
    paths = [f"acme/a/t{number}" for number in range(4)]
    for path, most in (("acme", 50), ("acme/a", 3), *((path, 40) for path in paths)):
        put(path, most)
    take_holds([hold_request(path, ONE, class_name="urgent") for path in paths[:2]])
    asked = [hold_request(paths[number % 4], ONE, class_name="urgent") for number in range(196)]
    asked += [hold_request(path, ONE, class_name=name) for path, name in (("acme/b", "urgent"), (paths[0], "low")) * 2]

    outcomes = at_once([lambda request=request: take_holds([request])[request.holder_id] for request in asked])

    told = Counter((refusal.code, refusal.tenant_path) if refusal else "held" for refusal in outcomes[:196])
    assert told == {"held": 1, ("class_limit_exceeded", "acme/a"): 195}
    assert outcomes[196:] == [None] * 4
    held = {one.tenant_path: one.held for one in class_limit_states(["urgent"])}
    assert (held["acme"], held["acme/a"], sum(held[path] for path in paths)) == (5, 3, 3)
    assert discrepancies() == ()


def test_takers_by_raw_sql_of_the_last_place_are_refused_by_the_database():
    teams = [make_tenant(f"acme/a/t{number}") for number in range(4)]
    put("acme/a", 1)

    def take(team):
        try:
            with connection.cursor() as cursor:
                cursor.execute(
                    "INSERT INTO quotas_hold (holder_id, tenant_id, class_name, cluster_name, amounts, state)"
                    " VALUES (%s, %s, 'urgent', 'n', '{\"jobs\": 1}', 'pending')",
                    [new_id(), team.id],
                )
        except IntegrityError as refused:
            return constraint_of(refused)
        return "held"

    outcomes = at_once([lambda team=team: take(team) for team in teams * 8])
    assert Counter(outcomes) == {"held": 1, "class_limit_is_never_exceeded": 31}
    assert discrepancies() == ()


def wait_until_one_waits():
    """Returns when a transaction waits for another."""
    for _ in range(500):
        with connection.cursor() as cursor:
            cursor.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
            if cursor.fetchone()[0]:
                return
        time.sleep(0.01)
    raise AssertionError("nobody waits")


@pytest.mark.parametrize("how", ["take", "end"])
def test_a_limit_that_is_put_over_a_take_or_an_end_that_is_not_committed_waits_for_it_and_counts_it(how):
    make_tenant("acme/a/x")
    asked, is_open = hold_request("acme/a/x", ONE, class_name="urgent"), threading.Event()
    if how == "end":
        take_holds([asked])

    def work():
        with transaction.atomic():
            if how == "take":
                take_holds([asked])
            else:
                end_holds({asked.holder_id: "posted"})
            is_open.set()
            wait_until_one_waits()

    def limit():
        assert is_open.wait(30)
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO quotas_classlimit (id, tenant_id, class_name, resource, most, held, updated_at)"
                " SELECT gen_random_uuid(), id, 'urgent', 'jobs', 9, 0, now() FROM tenancy_tenant WHERE path = 'acme/a'"
            )

    at_once([work, limit])
    assert ClassLimit.objects.get().held == (1 if how == "take" else 0)
    assert discrepancies() == ()


def fresh(tenant_id, name):
    """A request where the tenant is now."""
    path = Tenant.objects.values_list("path", flat=True).get(id=tenant_id)
    return HoldRequest(new_id(), tenant_id, path, "north", ONE, class_name=name)


def test_work_comes_and_goes_while_limits_are_put_cut_and_removed_and_tenants_move():
    teams = [make_tenant(f"acme/a/b/t{number}") for number in range(2)]
    places = [make_tenant(path).id for path in ("acme/c/d", "acme/a/b", "acme/c", "acme/a")]
    put("acme", 30)
    put("acme/a", 9)
    running = fresh(teams[0].id, "urgent")
    assert take_holds([running]) == {running.holder_id: None}  # it is never ended: it moves all the time
    before, done = deadlocks(), Counter()

    def works(team):
        for _ in range(10):
            outcomes = take_holds([fresh(team.id, name) for name in ("urgent", "low", "urgent")])
            done.update("held" if one is None else one.code for one in outcomes.values())
            end_holds(dict.fromkeys(outcomes, "posted"))

    def moves(team):
        for place in places * 3:
            try:
                change_tenant(SYSTEM, team.id, parent_id=place)
                done["moved"] += 1
            except Problem as refused:
                done[refused.code] += 1

    def changes(path, name):
        for most in (3, 0, 5, 2, 9) * 2:
            put(path, most, name)
            ClassLimit.objects.filter(tenant__path=path, class_name=name, most=0).delete()

    def of_all():
        for most in (4, None, 9, 2) * 3:
            put_class_limits("urgent", {"jobs": most, "gpu": None if most is None else most * 500})

    at_once(
        [lambda team=team: works(team) for team in teams * 2]
        + [lambda team=team: moves(team) for team in teams]
        + [lambda: changes("acme/c", "urgent"), lambda: changes("acme/a/b", "low"), of_all]
    )

    assert done["moved"] > 4, done
    assert done["held"] > 4, done
    assert discrepancies() == ()
    assert deadlocks() == before
    end_holds({running.holder_id: "posted"})
    assert {limit.held for limit in class_limit_states()} == {0}
    assert discrepancies() == ()


def test_of_movers_to_one_place_only_as_many_come_as_their_class_may_hold_there():
    teams = [make_tenant(f"acme/a/t{number}") for number in range(6)]
    put("acme/c", 2)
    take_holds([hold_request(team.path, ONE, class_name="urgent") for team in teams])
    there, done = make_tenant("acme/c").id, Counter()

    def move(team):
        try:
            change_tenant(SYSTEM, team.id, parent_id=there)
            done["moved"] += 1
        except Problem as refused:
            done[refused.code] += 1

    at_once([lambda team=team: move(team) for team in teams])
    assert done == {"moved": 2, "moved_work_does_not_fit": 4}
    assert discrepancies() == ()


def test_a_class_removed_while_limits_of_it_are_set_leaves_none():
    make_tenant("acme/a")
    for _ in range(6):
        row, _ = put_class(SYSTEM, {"name": "passing", "value": 7, "is_open": True})
        done = []

        def limit(done=done):
            for resource in ("jobs", "gpu", "cpu"):
                try:
                    put_tenant_class_limit(SYSTEM, "acme/a", "passing", resource, most=1)
                except Problem as refused:
                    done.append(refused.errors[0].code)

        at_once([limit, lambda row=row: remove_class(SYSTEM, row.id), limit])
        assert set(done) <= {"unknown_value"}
        assert not PriorityClass.objects.filter(name="passing").exists()
        assert not ClassLimit.objects.exists()


def file_of(urgent, low, team):
    classes = [
        {"name": "high", "value": 100, "is_open": True, "most_running": urgent},
        {"name": "low", "value": -100, "is_open": True, "most_running": low},
    ]
    limits = [{"priority_class": "high", "resource": "jobs", "most": team}] if team else []
    tenants = [{"path": "acme"}, {"path": "acme/a", "kind": KIND, "class_limits": limits}]
    head = {"apiVersion": "switchyard/v1", "kind": "TenantTree"}
    return yaml.safe_dump({**head, "tenants": tenants, "priority_classes": classes})


def test_a_file_that_changes_one_limit_and_makes_another_meets_no_deadlock_with_a_hold_that_ends():
    """The hold is locked, and its class's limit not yet, when the file begins."""
    make_tenant("acme/a")
    apply_tree(SYSTEM, file_of(50, None, 0))
    asked = hold_request("acme/a", ONE, class_name="high")
    assert take_holds([asked]) == {asked.holder_id: None}
    before, is_locked = deadlocks(), threading.Event()

    def end():
        with transaction.atomic():
            locks.lock_pending([asked.holder_id])
            is_locked.set()
            wait_until_one_waits()
            end_holds({asked.holder_id: "posted"})

    def apply():
        assert is_locked.wait(30)
        return len(apply_tree(SYSTEM, file_of(60, 50, 0)).changes)

    assert at_once([apply, end])[0] == 2
    assert deadlocks() == before
    assert {(one.class_name, one.tenant_path): one.held for one in class_limit_states()} == {
        ("high", ""): 0,
        ("low", ""): 0,
    }
    assert discrepancies() == ()


def test_a_move_locks_limits_of_classes_after_quotas_as_a_hold_that_ends_does():
    """The hold has locked the quotas above it, and no limit of its class yet, when a tenant beside it moves with its quota."""
    for path in ("acme", "acme/x", "acme/y", "acme/x/team"):
        make_tenant(path)
        put_limit(SYSTEM, path, "gpu", nominal=9000, borrowing=Borrowing(None, None))
        put(path, 9)
    beside, moved = (hold_request(path, ONE, class_name="urgent") for path in ("acme/x", "acme/x/team"))
    assert set(take_holds([beside, moved]).values()) == {None}
    before, has_quotas = deadlocks(), threading.Event()

    def end():
        with transaction.atomic():
            _give_back(locks.lock_pending([beside.holder_id]))
            has_quotas.set()
            wait_until_one_waits()
            end_holds({beside.holder_id: "posted"})

    def move():
        assert has_quotas.wait(30)
        return change_tenant(SYSTEM, moved.tenant_id, parent_id=make_tenant("acme/y").id).path

    assert at_once([end, move])[1] == "acme/y/team"
    assert deadlocks() == before
    assert discrepancies() == ()

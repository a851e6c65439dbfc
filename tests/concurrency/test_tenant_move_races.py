"""Tenants move in the tree while their work comes and goes and limits change: what is held moves along, and no limit is exceeded."""

import threading
from collections import Counter

import pytest

from foundation.problems import Problem
from quotas.engine.holds import Borrowing, HoldRequest
from quotas.models import QuotaLimit
from quotas.operations import end_holds, put_limit, put_user_limit, take_holds
from quotas.queries import discrepancies
from tenancy.models import Tenant
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM
from tests.builders import hold_request, make_tenant, make_user

from .test_borrowing_races import deadlocks, put
from .test_quota_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)
TREE = ["acme", "acme/a", "acme/a/b", "acme/c", "acme/c/d"]


def fresh(tenant_id, user):
    """A request for one GPU where the tenant is now."""
    path = Tenant.objects.values_list("path", flat=True).get(id=tenant_id)
    asked = hold_request("acme", {"gpu": 1000, "jobs": 1}, user_id=user)
    return HoldRequest(asked.holder_id, tenant_id, path, "north", asked.amounts, asked.user_id)


def mover(tenant_id, places, done):
    for place in places * 3:
        try:
            change_tenant(SYSTEM, tenant_id, parent_id=place)
            done["moved"] += 1
        except Problem as refused:
            done[refused.code] += 1


def taker(tenant_id, user, done):
    for _ in range(12):
        asked = [fresh(tenant_id, user) for _ in range(2)]
        outcomes = take_holds(asked)
        done.update("held" if refusal is None else refusal.code for refusal in outcomes.values())
        end_holds(dict.fromkeys(outcomes, "posted"))


def changer(path, done):
    for nominal in (2, 4, 3, 5, 1, 4) * 2:
        try:
            put_limit(SYSTEM, path, "gpu", nominal=nominal * 1000, borrowing=Borrowing(None, 1000))
        except Problem as refused:
            done[refused.code] += 1


def test_work_comes_and_goes_while_its_tenants_move_and_limits_change():
    for path in TREE:
        put(path, 9 if path == "acme" else 4, borrow=None, lend=2000)
    teams = [make_tenant(f"acme/a/b/t{number}") for number in range(3)]
    put("acme/a/b/t0", 2, borrow=None, lend=1000)
    user = make_user("ann@acme.example").id
    put_user_limit(SYSTEM, "acme/c", "gpu", most=3000)
    running = fresh(teams[0].id, user)
    assert take_holds([running]) == {running.holder_id: None}  # it is never ended: it moves all the time
    places = [make_tenant(path).id for path in ("acme/c/d", "acme/a/b", "acme/c", "acme/a")]
    before, done = deadlocks(), Counter()

    at_once(
        [lambda team=team: mover(team.id, places, done) for team in teams]
        + [lambda team=team: taker(team.id, user, done) for team in teams for _ in range(2)]
        + [lambda path=path: changer(path, done) for path in ("acme/a", "acme/c/d")]
    )

    assert done["moved"] > 6, done
    assert done["held"] > 6, done
    assert discrepancies() == ()
    assert deadlocks() == before
    held = {limit.tenant.path: limit.held for limit in QuotaLimit.objects.select_related("tenant")}
    assert held[Tenant.objects.get(id=teams[0].id).path] == 1000
    end_holds({running.holder_id: "posted"})
    assert discrepancies() == ()


def test_of_movers_to_one_place_only_as_many_come_as_fit():
    put("acme", 100)
    put("acme/c", 3)
    teams = [make_tenant(f"acme/a/t{number}") for number in range(8)]
    take_holds([hold_request(team.path, {"gpu": 1000}) for team in teams])
    there, done = make_tenant("acme/c").id, Counter()

    def move(team):
        try:
            change_tenant(SYSTEM, team.id, parent_id=there)
            done["moved"] += 1
        except Problem as refused:
            done[refused.code] += 1

    at_once([lambda team=team: move(team) for team in teams])

    assert done == {"moved": 3, "moved_work_does_not_fit": 5}
    assert QuotaLimit.objects.get(tenant__path="acme/c").held == 3000
    assert discrepancies() == ()


def test_moves_and_ends_at_the_same_moment_count_each_hold_once():
    put("acme", 100)
    put("acme/a", 100)
    put("acme/c", 100)
    team = make_tenant("acme/a/team")
    asked = [hold_request(team.path, {"gpu": 1000}) for _ in range(40)]
    take_holds(asked)
    places = [make_tenant(path).id for path in ("acme/c", "acme/a")]
    is_over = threading.Event()

    def move():
        number = 0
        while not is_over.is_set() and number < 40:
            change_tenant(SYSTEM, team.id, parent_id=places[number % 2])
            number += 1
        return number

    def end():
        try:
            for one in asked:
                end_holds({one.holder_id: "posted"})
        finally:
            is_over.set()

    before = deadlocks()
    moves, _ = at_once([move, end])
    assert moves > 1
    assert {limit.held for limit in QuotaLimit.objects.all()} == {0}
    assert discrepancies() == ()
    assert deadlocks() == before

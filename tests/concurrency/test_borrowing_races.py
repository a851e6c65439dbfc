"""Many takers at every level of a deep tree of limits that lend to each other, while limits are cut, put and removed and
holds end: the laws hold afterwards, and no two wait for each other in a ring.
"""

import threading
from collections import Counter

import pytest
from django.db import connection, transaction

from foundation.problems import Problem
from quotas.engine.holds import Borrowing
from quotas.models import QuotaLimit
from quotas.operations import delete_limit, end_holds, put_limit, take_holds
from quotas.queries import discrepancies
from tenancy.queries import SYSTEM
from tests.builders import hold_request, make_tenant

from .test_quota_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)
LEVELS = ["acme", "acme/b", "acme/b/c", "acme/b/c/d", "acme/b/c/d/e"]
BESIDE = ["acme/x", "acme/b/y", "acme/b/c/d/z"]
BORROWS = Borrowing(None, None)


def put(path, gpus, borrow=0, lend=None):
    make_tenant(path)
    return put_limit(SYSTEM, path, "gpu", nominal=gpus * 1000, borrowing=Borrowing(borrow, lend))[0]


def deadlocks():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_stat_clear_snapshot(), deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
        return cursor.fetchone()[1]


def test_of_takers_at_every_level_exactly_one_gets_the_last_gpu():
    """The root has one GPU left, which each level may borrow."""
    for path in LEVELS:
        put(path, 4 if path == "acme" else 0, borrow=None)
    take_holds([hold_request("acme", {"gpu": 3000})])
    asked = [hold_request(path) for path in LEVELS for _ in range(6)]

    outcomes = at_once([lambda one=one: take_holds([one])[one.holder_id] for one in asked])

    assert Counter(refusal is None for refusal in outcomes) == {True: 1, False: 29}
    assert {refusal.tenant_path for refusal in outcomes if refusal} == {"acme"}
    assert QuotaLimit.objects.get(tenant__path="acme").held == 4000
    assert discrepancies() == ()


def taker(path, done):
    for number in range(5):
        asked = [hold_request(path), hold_request(BESIDE[number % 3])]
        outcomes = take_holds(asked)
        done["held"] += sum(refusal is None for refusal in outcomes.values())
        end_holds(dict.fromkeys(outcomes, "posted"))


def changer(path, done):
    for nominal, borrowing in ((2, BORROWS), (3, Borrowing(1000, 1000)), (2, Borrowing(None, 1000)), (3, BORROWS)):
        try:
            put_limit(SYSTEM, path, "gpu", nominal=nominal * 1000, borrowing=borrowing)
            done["put"] += 1
        except Problem as refused:
            done[refused.code] += 1


def remover():
    for path in (LEVELS[2], BESIDE[1], LEVELS[3]):
        limit = QuotaLimit.objects.get(tenant__path=path, removed_at=None)
        delete_limit(SYSTEM, limit.id)
        put_limit(SYSTEM, path, "gpu", nominal=3000, borrowing=BORROWS)


def test_while_limits_are_cut_lent_and_removed_the_laws_hold_and_no_deadlock_occurs():
    for path in LEVELS:
        put(path, 8 if path == "acme" else 3, borrow=2000, lend=3000)
    for path in BESIDE:
        put(path, 1, borrow=None, lend=0)
    before, done = deadlocks(), Counter()

    at_once(
        [lambda path=path: taker(path, done) for path in LEVELS for _ in range(2)]
        + [lambda path=path: changer(path, done) for path in (LEVELS[1], LEVELS[4], BESIDE[0])]
        + [remover]
    )

    assert done["held"] > 20
    assert done["put"] > 3
    assert discrepancies() == ()
    assert deadlocks() == before
    for limit in QuotaLimit.objects.filter(removed_at=None):
        children = QuotaLimit.objects.filter(parent=limit)
        assert limit.held == sum(child.claim for child in children)  # all holds have ended
        assert limit.held <= limit.cap


def test_takers_inside_their_guarantees_do_not_wait_for_the_limit_above():
    put("acme", 8)
    put("acme/b", 4, lend=0)
    put("acme/x", 4, lend=2000)
    is_locked, may_end = threading.Event(), threading.Event()

    def keep_root():
        with transaction.atomic():
            QuotaLimit.objects.select_for_update(of=("self",), no_key=True).get(tenant__path="acme")
            is_locked.set()
            assert may_end.wait(60)

    def take_inside():
        assert is_locked.wait(60)
        try:
            asked = [hold_request("acme/b", {"gpu": 4000}), hold_request("acme/x", {"gpu": 2000})]
            return take_holds(asked)
        finally:
            may_end.set()

    assert set(at_once([keep_root, take_inside])[1].values()) == {None}
    assert discrepancies() == ()

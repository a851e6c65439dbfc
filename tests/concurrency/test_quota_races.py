"""Many takers at once, with real commits: what is held never exceeds a limit, and nobody waits for each other in a ring."""

import threading
import time
from collections import Counter

import pytest
from django.db import IntegrityError, connection, transaction

from foundation.ids import new_id
from quotas.models import Hold
from quotas.operations import (
    HoldRequest,
    delete_user_limit,
    end_holds,
    put_class_limits,
    put_limit,
    put_user_limit,
    take_holds,
)
from quotas.queries import class_limit_states, discrepancies, limit_states
from tenancy.queries import SYSTEM
from tests.builders import hold_request, make_limit, make_tenant
from tests.kept_sessions import end_sessions
from tests.refusals import constraint_of

pytestmark = pytest.mark.django_db(transaction=True)
DEADLINE_SECONDS = 120
CONNECTIONS = threading.Semaphore(100)
"""The server takes 200 in all."""


def at_once(works):
    """The results of all works, begun together in a thread each with a session of its own; an error in one is raised."""
    barrier = threading.Barrier(len(works))
    results = [None] * len(works)
    errors = []

    def run(number, work):
        try:
            barrier.wait(DEADLINE_SECONDS)
            with CONNECTIONS:
                try:
                    results[number] = work()
                finally:
                    end_sessions()
        except Exception as error:  # noqa: BLE001 - whatever it was, the test shows it
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number, work)) for number, work in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]
    return results


def test_of_200_takers_of_the_last_gpu_exactly_one_gets_it():
    limit = make_limit("acme", nominal="8")
    make_limit("acme/research", nominal="8")
    take_holds([hold_request("acme/research", {"gpu": 7000})])
    asked = [hold_request("acme/research") for _ in range(200)]

    outcomes = at_once([lambda request=request: take_holds([request])[request.holder_id] for request in asked])

    assert Counter(refusal.code if refusal else "held" for refusal in outcomes) == {"held": 1, "quota_exceeded": 199}
    limit.refresh_from_db()
    assert (limit.held, limit.cap) == (8000, 8000)
    assert discrepancies() == ()


def test_of_64_takers_of_a_users_last_job_exactly_one_gets_it_and_other_users_are_not_stopped():
    ada, bob = new_id(), new_id()
    make_tenant("acme/research")
    put_user_limit(SYSTEM, "acme", "jobs", most=3)
    first = [hold_request("acme/research", {"jobs": 1}, user_id=ada) for _ in range(2)]
    take_holds(first)
    asked = [hold_request("acme/research", {"jobs": 1}, user_id=ada) for _ in range(61)]
    asked += [hold_request("acme/research", {"jobs": 1}, user_id=bob) for _ in range(3)]

    outcomes = at_once([lambda request=request: take_holds([request])[request.holder_id] for request in asked])

    assert Counter(refusal.code if refusal else "held" for refusal in outcomes[:61]) == {
        "held": 1,
        "user_limit_exceeded": 60,
    }
    assert outcomes[61:] == [None] * 3
    assert discrepancies() == ()


def test_limits_on_users_put_cut_and_removed_while_work_comes_and_goes_count_all_of_it():
    make_tenant("acme/research")
    users = [new_id() for _ in range(3)]

    def work():
        for _ in range(6):
            asked = [hold_request("acme/research", {"gpu": 1000, "jobs": 1}, user_id=user) for user in users]
            held = [holder for holder, refusal in take_holds(asked).items() if refusal is None]
            end_holds(dict.fromkeys(held[::2], "posted"))

    def change(resource):
        for most in (8, 2, 5000, 1):
            limit, _ = put_user_limit(SYSTEM, "acme", resource, most=most)
        delete_user_limit(SYSTEM, limit.id)
        put_user_limit(SYSTEM, "acme/research", resource, most=9000)

    at_once([work] * 6 + [lambda: change("gpu"), lambda: change("jobs")])

    assert discrepancies() == ()


def test_a_hold_ended_by_50_at_once_ends_once():
    limit = make_limit("acme")
    asked = hold_request("acme")
    take_holds([asked])

    ended = at_once(
        [lambda word=word: end_holds({asked.holder_id: word}) for word in ["posted", "voided"] * 25],
    )

    assert sum(ended) == 1
    limit.refresh_from_db()
    assert limit.held == 0
    assert discrepancies() == ()


def test_one_holder_taken_by_30_at_once_holds_once():
    make_limit("acme")
    asked = hold_request("acme")
    outcomes = at_once([lambda: take_holds([asked])[asked.holder_id]] * 30)
    assert Counter(refusal.code if refusal else "held" for refusal in outcomes) == {"held": 1, "already_held": 29}


def test_takers_in_opposite_orders_do_not_deadlock():
    for path in ("acme", "acme/a", "acme/b", "other", "other/c"):
        make_limit(path, nominal="1000")
        make_limit(path, "cpu", "1000")
    paths = ["acme/a/x", "acme/b", "other/c", "acme", "other"]

    def batch(order):
        asked = [hold_request(path, {"cpu": 10, "gpu": 10} if order else {"gpu": 10, "cpu": 10}) for path in paths]
        return asked if order else asked[::-1]

    batches = [batch(number % 2) for number in range(24)]

    def take_and_end(asked):
        for _ in range(5):
            fresh = [HoldRequest(new_id(), a.tenant_id, a.tenant_path, a.cluster_name, a.amounts) for a in asked]
            assert set(take_holds(fresh).values()) == {None}
            end_holds({request.holder_id: "posted" for request in fresh[::-1]})

    at_once([lambda asked=asked: take_and_end(asked) for asked in batches])

    assert {limit.held for limit in limit_states()} == {0}
    assert Hold.objects.filter(state="posted").count() == 24 * 5 * 5
    assert discrepancies() == ()


def test_limits_put_while_work_comes_and_goes_count_all_of_it():
    tenant = make_tenant("acme/research")
    make_limit("acme", nominal="40")

    def work():
        for _ in range(6):
            asked = [
                HoldRequest(new_id(), tenant.id, tenant.path, "north", {"gpu": 1000, "cpu": 500}) for _ in range(4)
            ]
            outcomes = take_holds(asked)
            held = [holder for holder, refusal in outcomes.items() if refusal is None]
            end_holds(dict.fromkeys(held[::2], "posted"))

    def cut_and_raise():
        for nominal in (30_000, 5000, 20_000, 1000, 25_000):
            put_limit(SYSTEM, "acme/research", "gpu", nominal=nominal)
            put_limit(SYSTEM, "acme", "cpu", nominal=nominal)

    at_once([work] * 8 + [cut_and_raise] * 2)

    assert len(limit_states()) == 3
    assert discrepancies() == ()


TAKE_BY_HAND = (
    "WITH held AS (INSERT INTO quotas_hold (holder_id, tenant_id, cluster_name, amounts, state)"
    " VALUES (%(holder)s, %(tenant)s, 'north', '{\"gpu\": 1000}', 'pending'))"
    " INSERT INTO quotas_holdmovement (hold_id, limit_id, kind, amount) VALUES (%(holder)s, %(limit)s, 'take', 1000)"
)


@pytest.fixture
def uncommitted_take():
    """Takes a GPU of acme/research/vision in raw SQL on a connection of its own, and commits when it is told to."""
    limit, tenant = make_limit("acme", nominal="8"), make_tenant("acme/research/vision")
    taken, go_on = threading.Event(), threading.Event()

    def take():
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(TAKE_BY_HAND, {"holder": new_id(), "tenant": tenant.id, "limit": limit.id})
                taken.set()
                assert go_on.wait(DEADLINE_SECONDS)
        finally:
            end_sessions()

    thread = threading.Thread(target=take)
    thread.start()
    assert taken.wait(DEADLINE_SECONDS)
    yield go_on
    go_on.set()
    thread.join(DEADLINE_SECONDS)


BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"


def refused_once_it_waited(attack, values, go_on):
    """The name of the constraint that refuses the attack, which must wait for the uncommitted take."""

    def release_when_blocked():
        with connection.cursor() as cursor:
            deadline = time.monotonic() + DEADLINE_SECONDS
            while time.monotonic() < deadline:
                cursor.execute(BLOCKED)
                if cursor.fetchone()[0]:
                    break
                time.sleep(0.02)
            else:
                raise AssertionError("the attack did not wait")
        go_on.set()

    def strike():
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(attack, values)
        except IntegrityError as error:
            return constraint_of(error)
        finally:
            go_on.set()
        return "accepted"

    return at_once([strike, release_when_blocked])[0]


@pytest.fixture
def other():
    """A department with one GPU."""
    return make_limit("acme/sales", nominal="1").tenant


@pytest.mark.parametrize("moved", ["acme/research/vision", "acme/research"])
def test_a_tenant_is_moved_only_after_a_take_that_is_not_committed_yet_and_takes_it_along(
    other, uncommitted_take, moved
):
    attack = "UPDATE tenancy_tenant SET parent_id = %(other)s WHERE id = %(moved)s"

    outcome = refused_once_it_waited(attack, {"other": other.id, "moved": make_tenant(moved).id}, uncommitted_take)

    assert outcome == "accepted"
    assert {limit.tenant_path: limit.held for limit in limit_states()} == {"acme": 1000, "acme/sales": 1000}
    assert discrepancies() == ()


def test_a_limit_does_not_start_empty_over_a_take_that_is_not_committed_yet(uncommitted_take):
    attack = (
        "INSERT INTO quotas_quotalimit (id, tenant_id, resource, clusters, nominal, cap, held, updated_at)"
        " VALUES (%(limit)s, %(tenant)s, 'gpu', '{}', 5000, 5000, 0, now())"
    )
    values = {"limit": new_id(), "tenant": make_tenant("acme/research").id}

    assert refused_once_it_waited(attack, values, uncommitted_take) == "limit_counts_what_is_held"
    assert discrepancies() == ()


def test_of_64_takers_of_the_last_place_of_a_class_exactly_one_gets_it_and_other_classes_are_not_stopped():
    for number in range(4):
        make_tenant(f"org{number}/a")
    put_class_limits("urgent", {"jobs": 3, "gpu": 99000})
    take_holds([hold_request("org0/a", {"jobs": 1, "gpu": 1000}, class_name="urgent") for _ in range(2)])
    names = ["urgent"] * 61 + ["low"] * 3
    asked = [
        hold_request(f"org{number % 4}/a", {"jobs": 1, "gpu": 1000}, class_name=name)
        for number, name in enumerate(names)
    ]

    outcomes = at_once([lambda request=request: take_holds([request])[request.holder_id] for request in asked])

    assert Counter(refusal.code if refusal else "held" for refusal in outcomes[:61]) == {
        "held": 1,
        "class_limit_exceeded": 60,
    }
    assert outcomes[61:] == [None] * 3
    assert {one.resource: one.held for one in class_limit_states(["urgent"])} == {"jobs": 3, "gpu": 3000}
    assert discrepancies() == ()


def test_takers_by_raw_sql_of_the_last_place_of_a_class_are_refused_by_the_database():
    tenant = make_tenant("acme/a")
    put_class_limits("urgent", {"jobs": 1})

    def take():
        try:
            with connection.cursor() as cursor:
                cursor.execute(
                    "INSERT INTO quotas_hold (holder_id, tenant_id, class_name, cluster_name, amounts, state)"
                    " VALUES (%s, %s, 'urgent', 'n', '{\"jobs\": 1}', 'pending')",
                    [new_id(), tenant.id],
                )
        except IntegrityError as refused:
            return constraint_of(refused)
        return "held"

    assert Counter(at_once([take] * 32)) == {"held": 1, "class_limit_is_never_exceeded": 31}
    assert discrepancies() == ()


def test_limits_of_classes_put_cut_and_removed_while_work_comes_and_goes_count_all_of_it():
    make_tenant("acme/research")
    make_tenant("beta")
    names = ["urgent", "low"]

    def works(path):
        for _ in range(25):
            asked = [hold_request(path, {"gpu": 1000, "jobs": 1}, class_name=name) for name in names]
            granted = [holder for holder, refusal in take_holds(asked).items() if refusal is None]
            end_holds(dict.fromkeys(granted[:1], "posted"))

    def limits(name):
        for _ in range(4):
            for jobs, gpus in ((3, None), (None, 3000), (2, 2000), (1, 0), (None, None), (0, 5000), (50, 50000)):
                put_class_limits(name, {"jobs": jobs, "gpu": gpus})

    runs = [lambda path=path: works(path) for path in ("acme", "acme/research", "beta")]
    at_once([*runs, *(lambda name=name: limits(name) for name in names)])

    assert discrepancies() == ()
    assert Hold.objects.filter(state="pending").exists()
    assert len(class_limit_states()) == 4

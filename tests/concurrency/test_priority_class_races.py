"""Priority classes changed, withdrawn and removed while others change them and jobs are submitted, with real commits."""

import threading
import time

import pytest
from django.db import connection, transaction

from federation.models import Job, PriorityClass
from federation.operations import put_class, put_policy, remove_class, submission, submit_job
from federation.operations.priority_classes import MOST_CLASSES
from foundation.problems import Problem
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import actor_for, bind, make_spec, make_tenant, make_user, submit
from tests.concurrency.test_quota_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)
NAMES = ("low", "normal", "high")


def outcome(work):
    try:
        work()
    except Problem as problem:
        return problem.code
    return "done"


def default(name):
    return put_class(SYSTEM, {"name": name, "value": 0, "is_open": True, "is_default": True})


@pytest.fixture
def actor():
    user = make_user()
    bind(user, "acme", "submitter")
    return actor_for(user)


def test_of_many_who_set_the_default_all_succeed_and_one_class_is_it():
    outcomes = at_once([lambda name=name: outcome(lambda: default(name)) for name in NAMES * 3])
    assert outcomes == ["done"] * 9
    assert PriorityClass.objects.filter(is_default=True).count() == 1
    last = AuditEntry.objects.filter(action="priority_class.put").order_by("-id")[0]
    assert PriorityClass.objects.get(is_default=True).name == last.detail["after"]["name"]


def test_two_who_write_past_the_operations_cannot_leave_two_defaults_or_none():
    def raw(name):
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("UPDATE federation_priorityclass SET is_default = false")
                cursor.execute("UPDATE federation_priorityclass SET is_default = true WHERE name = %s", [name])
        except Exception as error:  # noqa: BLE001 - whatever the database says
            return type(error).__name__
        return "done"

    outcomes = at_once([lambda name=name: raw(name) for name in NAMES * 2])
    assert "done" in outcomes
    assert set(outcomes) <= {"done", "IntegrityError", "OperationalError"}
    assert PriorityClass.objects.filter(is_default=True).count() == 1


def test_one_of_many_who_create_a_class_creates_it():
    results = at_once([lambda: put_class(SYSTEM, {"name": "urgent", "value": 7})[1]] * 6)
    assert sorted(results) == [False] * 5 + [True]


def test_the_bound_holds_for_many_who_create_the_last_class():
    PriorityClass.objects.bulk_create(PriorityClass(name=f"c{number}", value=1) for number in range(MOST_CLASSES - 4))
    works = [
        lambda number=number: outcome(lambda: put_class(SYSTEM, {"name": f"new{number}", "value": 1}))
        for number in range(5)
    ]
    assert sorted(at_once(works)) == ["done"] + ["too_many_priority_classes"] * 4


def held_before_its_write(monkeypatch):
    """Submissions stop after they have read the rules and before they write, until `go_on` is set."""
    arrived, go_on = threading.Event(), threading.Event()
    write = submission._insert

    def wait_and_write(*told):
        arrived.set()
        assert go_on.wait(20)
        write(*told)

    monkeypatch.setattr(submission, "_insert", wait_and_write)
    return arrived, go_on


def another_session_waits():
    """Whether within 20 s another session waits for a lock of this one's transaction."""
    with connection.cursor() as cursor:
        for _ in range(2000):
            cursor.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid)))")
            if cursor.fetchone()[0]:
                return True
            time.sleep(0.01)
    return False


def under_way(monkeypatch, actor, meanwhile):
    """The outcomes of a submission of an urgent job, and of what happens while it is under way."""
    row, _ = put_class(SYSTEM, {"name": "urgent", "value": 500, "is_open": True})
    arrived, go_on = held_before_its_write(monkeypatch)

    def do_meanwhile():
        assert arrived.wait(20)
        try:
            return outcome(lambda: meanwhile(row))
        finally:
            go_on.set()

    body = {"tenant": "acme", **make_spec(priority_class="urgent")}
    return at_once([lambda: outcome(lambda: submit(actor, body)), do_meanwhile])


def test_a_job_under_way_while_its_class_is_withdrawn_has_the_value_it_was_judged_with(monkeypatch, actor):
    outcomes = under_way(monkeypatch, actor, lambda _: put_class(SYSTEM, {"name": "urgent", "value": 900}))
    assert outcomes == ["done", "done"]
    assert Job.objects.get().priority == 500
    monkeypatch.undo()
    assert (
        outcome(lambda: submit(actor, {"tenant": "acme", **make_spec(priority_class="urgent")})) == "validation_failed"
    )


def test_a_job_under_way_while_its_class_is_removed_is_refused_and_leaves_nothing(monkeypatch, actor):
    outcomes = under_way(monkeypatch, actor, lambda row: remove_class(SYSTEM, row.id))
    assert outcomes == ["conflict", "done"]
    assert not Job.objects.exists()
    assert not PriorityClass.objects.filter(name="urgent").exists()
    assert not AuditEntry.objects.filter(action="job.submit").exists()


def test_a_submission_that_waits_for_the_removal_of_its_class_does_not_hold_the_chain_of_the_trail(actor):
    row, _ = put_class(SYSTEM, {"name": "urgent", "value": 500, "is_open": True})
    removed = threading.Event()

    def remove():
        with transaction.atomic():
            remove_class(SYSTEM, row.id)
            removed.set()
            assert another_session_waits()

    def send():
        assert removed.wait(20)
        return outcome(lambda: submit(actor, {"tenant": "acme", **make_spec(priority_class="urgent")}))

    assert at_once([remove, send]) == [None, "conflict"]


def test_many_submissions_and_removals_never_leave_a_job_without_its_class(actor):
    row, _ = put_class(SYSTEM, {"name": "urgent", "value": 500, "is_open": True})
    body = {"tenant": "acme", **make_spec(priority_class="urgent")}

    def send():
        return outcome(lambda: submit_job(actor, body, show=lambda job: {"id": str(job.id)}))

    outcomes = at_once([*[send] * 4, lambda: outcome(lambda: remove_class(SYSTEM, row.id)), *[send] * 4])
    removed = outcomes.pop(4)
    assert set(outcomes) <= {"done", "conflict", "validation_failed"}
    assert Job.objects.count() == outcomes.count("done")
    exists = PriorityClass.objects.filter(name="urgent").exists()
    assert (removed == "done") is not exists
    assert exists or not Job.objects.exists()


def test_a_policy_that_names_a_class_and_the_removal_of_the_class_exclude_each_other():
    tenant = make_tenant("acme")
    row, _ = put_class(SYSTEM, {"name": "urgent", "value": 500, "is_open": True})
    outcomes = at_once(
        [
            lambda: outcome(lambda: put_policy(SYSTEM, tenant.id, {"default_priority_class": "urgent"})),
            lambda: outcome(lambda: remove_class(SYSTEM, row.id)),
        ]
    )
    assert sorted(outcomes) in (
        ["conflict", "done"], ["done", "priority_class_in_use"], ["done", "validation_failed"],
    )  # fmt: skip

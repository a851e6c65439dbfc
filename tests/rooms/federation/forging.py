"""A ledger that several tests begin with, and rows written past all that refuses them."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection

from federation.models import Attempt
from federation.operations import prove_books
from quotas.operations import take_holds
from tests.builders import hold_request, make_limit
from tests.kept_rows import written_once
from tests.rooms.federation.test_hostile_reports import end, make_attempt, pod_of, report


def forge(statement):
    """Past every trigger."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # what was right before is not judged with what is forged now
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(statement)
        cursor.execute("SET LOCAL session_replication_role = origin")


TABLES = (
    "billing_meter", "billing_usagesegment", "federation_attempt", "federation_job", "federation_podrun", "quotas_hold",
    "quotas_quotalimit",
)  # fmt: skip


def unguard():
    """As if these tables had never had a trigger. What is then written keeps the session's plans, which the role of a replica makes
    it forget: to plan a proof again costs more than the proof.
    """
    for table in TABLES:
        loosen(f"ALTER TABLE {table} DISABLE TRIGGER ALL")


def write(statement):
    """To tables without triggers."""
    with connection.cursor() as cursor:
        cursor.execute(statement)


def loosen(statement):
    """As if a constraint had never been."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(statement)


def attempt_with_hold(**fields):
    attempt = make_attempt(**fields)
    request = replace(hold_request("acme/team"), holder_id=attempt.id)
    assert take_holds([request]) == {attempt.id: None}
    return attempt


@pytest.fixture(scope="module")
def books(django_db_setup, django_db_blocker):
    """A running attempt, and a settled one whose pod ran for an hour."""
    with written_once(django_db_blocker, _books) as found:
        yield found


@pytest.fixture(scope="module")
def unguarded(books, django_db_blocker):
    """The ledger, without the triggers of its tables."""
    with written_once(django_db_blocker, unguard):
        yield books


def _books():
    make_limit("acme", "gpu", "8")
    running, done = attempt_with_hold(), attempt_with_hold()
    report(running.cluster, pod_of(running))
    pod = pod_of(done)
    report(done.cluster, replace(pod, phase="Succeeded", finished_at=pod.started_at + timedelta(hours=1), exit_code=0))
    end(done)
    assert Attempt.objects.get(id=done.id).settled_at is not None
    assert prove_books().told == []
    return {"running": running, "done": done}

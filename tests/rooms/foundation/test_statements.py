"""Fewer and steadier statements: pipelines, lists of any length, and connections that are not asked for their health."""

import uuid
from typing import Any

import pytest
from django.db import DEFAULT_DB_ALIAS, IntegrityError, connection, connections, transaction

from foundation.clock import monotonic
from foundation.outbox import announce
from foundation.pipelines import one_round_trip
from foundation.postgres import base
from tenancy.models import ApiToken, Tenant
from tests.builders import make_tenant, make_token, make_user

pytestmark = pytest.mark.django_db(transaction=True)
wrapper: Any = connections[DEFAULT_DB_ALIAS]
"""What `connection` stands for: monkeypatch finds no old value in `connection` itself, and would delete the attribute at the end."""


def test_writes_in_one_round_trip_are_all_there():
    with transaction.atomic(), one_round_trip():
        announce("cycle")
        announce("dispatch")
    with connection.cursor() as cursor:
        cursor.execute("SELECT topic FROM foundation_outboxmessage ORDER BY id")
        assert cursor.fetchall() == [("cycle",), ("dispatch",)]


def test_a_failing_write_takes_the_whole_round_trip_with_it():
    def write():
        with transaction.atomic(), one_round_trip(), connection.cursor() as cursor:
            announce("cycle")
            cursor.execute("INSERT INTO foundation_outboxmessage (topic) VALUES (NULL)")
            announce("dispatch")

    with pytest.raises(IntegrityError):
        write()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM foundation_outboxmessage")
        assert cursor.fetchone() == (0,)


def test_a_round_trip_outside_a_transaction_is_refused():
    with pytest.raises(RuntimeError, match="inside a transaction"), one_round_trip():
        pass


@pytest.mark.parametrize("count", [0, 1, 3])
def test_any_of_finds_what_in_finds(count):
    made = [make_tenant(f"acme-{number}") for number in range(3)]
    ids = [tenant.id for tenant in made[:count]]
    assert set(Tenant.objects.filter(id__any_of=ids)) == set(Tenant.objects.filter(id__in=ids))
    paths = [tenant.path for tenant in made[:count]]
    assert Tenant.objects.filter(path__any_of=[*paths, "'; DROP TABLE"]).count() == count


def test_any_of_follows_foreign_keys():
    user = make_user()
    make_token(user)
    assert ApiToken.objects.filter(user_id__any_of=[user.id, uuid.uuid4()]).count() == 1
    assert ApiToken.objects.filter(user__any_of=[uuid.uuid4()]).count() == 0


def test_statements_of_any_length_have_one_text():
    asked = [Tenant.objects.filter(id__any_of=[uuid.uuid4() for _ in range(count)]) for count in (1, 5)]
    assert len({rows.query.sql_with_params()[0] for rows in asked}) == 1


def test_a_connection_is_asked_for_its_health_only_after_it_has_rested(monkeypatch):
    connection.ensure_connection()
    now, asked = [1000.0], []
    monkeypatch.setattr(wrapper, "_used_at", float("-inf"))
    monkeypatch.setattr(base, "monotonic", lambda: now[0])
    monkeypatch.setattr(wrapper, "is_usable", lambda: asked.append(now[0]) or True)
    monkeypatch.setattr(wrapper, "health_check_enabled", True)
    monkeypatch.setattr(wrapper, "health_check_done", True)

    def request():
        wrapper.health_check_done = False
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")

    for seconds in (0, 0.5, 0.9, 1.5, 0.1):
        now[0] += seconds
        request()
    assert asked == [1000.0, 1002.9]


def test_a_transaction_that_takes_longer_than_the_rest_ends_as_it_should(monkeypatch):
    """Asked for its health in the middle, the connection would begin another transaction and refuse to go on."""
    monkeypatch.setattr(wrapper, "health_check_enabled", True)
    monkeypatch.setattr(wrapper, "health_check_done", True)
    for ends_well in (True, False):
        wrapper.health_check_done = False
        wrapper._used_at = monotonic()
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            wrapper._used_at = float("-inf")  # more than a second passes
            transaction.set_rollback(not ends_well)
        assert connection.get_autocommit()

import pytest
import redis
from django.db import OperationalError, connection

from foundation import health

pytestmark = pytest.mark.django_db


def test_a_live_process_says_so_without_asking_the_database(client, django_assert_num_queries):
    with django_assert_num_queries(0):
        response = client.get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "alive"})


def test_a_migrated_database_is_ready(client):
    response = client.get("/readyz")
    assert response.status_code == 200
    assert response.json() == {"status": "ready", "database": "ok", "redis": "ok"}


def test_redis_is_told_but_not_needed(client, settings):
    settings.REDIS_URL = "redis://:x@127.0.0.1:1/0"
    response = client.get("/readyz")
    assert (response.status_code, response.json()["redis"]) == (200, "unreachable")


def test_a_missing_migration_is_not_ready(client):
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'quotas'")
    response = client.get("/readyz")
    assert (response.status_code, response.json()["database"]) == (503, "not_migrated")


def test_a_database_that_does_not_answer_is_not_ready_and_tells_no_detail(client, monkeypatch):
    def gone(*_):
        raise OperationalError("connection to 10.1.2.3 failed for user postgres")

    monkeypatch.setattr(health, "MigrationExecutor", gone)
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["database"] == "unreachable"
    assert b"10.1.2.3" not in response.content


def test_any_fault_of_redis_is_unreachable(monkeypatch, client):
    def refuse(*_, **__):
        raise redis.AuthenticationError("wrong password hunter2")

    monkeypatch.setattr("redis.Redis.ping", refuse)
    response = client.get("/readyz")
    assert response.json()["redis"] == "unreachable"
    assert b"hunter2" not in response.content

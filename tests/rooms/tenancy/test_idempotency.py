import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client

from foundation.clock import now
from foundation.problems import Conflict, Problem
from tenancy.locks import key_number
from tenancy.models import IdempotencyRecord, Tenant
from tenancy.operations import answer_once, forget_old_answers
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bearer, bind, make_tenant, make_user
from tests.kept_sessions import end_sessions

TENANTS = "/api/v1/tenants"
BODY = {"name": "research", "kind": "team", "parent": "acme"}


@pytest.fixture
def caller():
    user = make_user()
    bind(user, "acme", "admin")
    headers = bearer(user)

    def post(body=BODY, key="key-1", path=TENANTS, **other):
        sent = body if isinstance(body, str) else json.dumps(body)
        return Client().post(
            path, sent, content_type="application/json", headers={**headers, "Idempotency-Key": key, **other}
        )

    caller: Any = post
    caller.user = user
    return caller


@pytest.mark.django_db
def test_the_same_key_and_body_get_the_first_answer_again(caller):
    first, second = caller(), caller()
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.content == second.content
    assert "Idempotent-Replayed" not in first
    assert second["Idempotent-Replayed"] == "true"
    assert Tenant.objects.count() == 2


@pytest.mark.django_db
def test_another_body_under_the_same_key_is_refused(caller):
    caller()
    response = caller({**BODY, "name": "other"})
    assert response.status_code == 422
    assert response.json()["code"] == "idempotency_key_reused"
    assert Tenant.objects.count() == 2


@pytest.mark.django_db
def test_a_refusal_is_not_kept(caller):
    assert caller({**BODY, "kind": "organisation"}).status_code == 422
    assert IdempotencyRecord.objects.count() == 0
    assert caller().status_code == 201
    conflict = caller(key="key-2")
    assert conflict.json()["code"] == "tenant_exists"
    assert IdempotencyRecord.objects.count() == 1


@pytest.mark.django_db
def test_keys_are_apart_by_user_tenant_and_route(caller):
    other = make_user()
    bind(other, "acme", "admin")
    make_tenant("acme/a")
    assert caller().status_code == 201
    assert caller({**BODY, "parent": "acme/a"}).status_code == 201
    assert caller({"name": "x"}, path="/api/v1/tokens").status_code == 201
    headers = {**bearer(other), "Idempotency-Key": "key-1"}
    response = Client().post(TENANTS, {**BODY, "name": "b"}, content_type="application/json", headers=headers)
    assert response.status_code == 201


@pytest.mark.django_db
@pytest.mark.parametrize("key", ["x" * 201, "naïve", "tab\there", "\x7f"])
def test_a_key_is_short_printable_ascii(caller, key):
    response = caller(key=key)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "Idempotency-Key"
    assert Tenant.objects.count() == 1


@pytest.mark.django_db
def test_a_key_of_two_hundred_characters_will_do(caller):
    assert caller(key="~" * 200).status_code == 201


@pytest.mark.django_db
def test_a_tokens_secret_is_never_kept_nor_said_again(caller):
    first = caller({"name": "ci"}, path="/api/v1/tokens").json()
    second = caller({"name": "ci"}, path="/api/v1/tokens")
    assert first["secret"].startswith("swy_")
    assert second["Idempotent-Replayed"] == "true"
    assert second.json() == {**first, "secret": None}
    assert first["secret"] not in IdempotencyRecord.objects.get().answer


@pytest.mark.django_db
def test_a_right_that_was_lost_reveals_no_answer(caller):
    assert caller().status_code == 201
    caller.user.role_bindings.all().delete()
    response = caller()
    assert response.status_code == 422
    assert "research" not in response.content.decode()


@pytest.mark.django_db
def test_without_a_key_every_request_counts(caller):
    for _ in range(2):
        assert caller({"name": "ci"}, key="", path="/api/v1/tokens").json()["secret"]
    assert IdempotencyRecord.objects.count() == 0


@pytest.mark.django_db
def test_the_system_needs_no_record():
    answer = answer_once(SYSTEM, tenant_id=None, route="r", key="k", body=b"", produce=lambda: (201, {}))
    assert (answer.status, answer.replayed) == (201, False)


@pytest.mark.django_db
def test_old_answers_are_forgotten_after_two_days(caller, monkeypatch):
    caller()
    assert forget_old_answers() == 0
    for number in range(4):
        caller({"name": "x"}, key=f"old-{number}", path="/api/v1/tokens")
    IdempotencyRecord.objects.update(created_at=now() - timedelta(hours=49))
    caller({"name": "x"}, key="new", path="/api/v1/tokens")
    monkeypatch.setattr("tenancy.operations.idempotency.BATCH", 2)
    assert forget_old_answers() == 5
    assert IdempotencyRecord.objects.get().key == "new"


@pytest.mark.django_db
def test_a_keyed_write_costs_two_queries_more(caller, django_assert_num_queries):
    actor = actor_for(caller.user)
    with transaction.atomic(), django_assert_num_queries(4):  # a savepoint and its end, the claim, the answer
        answer_once(actor, tenant_id=None, route="r", key="k", body=b"", produce=lambda: (201, {"id": 1}))


@pytest.mark.django_db(transaction=True)
def test_fifty_requests_at_once_with_one_key_make_one_tenant(caller):
    barrier, answers = threading.Barrier(50), []

    def post():
        try:
            barrier.wait(60)
            answers.append(caller())
        finally:
            end_sessions()

    threads = [threading.Thread(target=post) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    good = [answer for answer in answers if answer.status_code == 201]
    late = [answer for answer in answers if answer.status_code != 201]
    assert len(answers) == 50
    assert len({answer.content for answer in good}) == 1
    assert sum("Idempotent-Replayed" not in answer for answer in good) == 1
    assert all(answer.json()["code"] == "idempotency_in_progress" and answer.status_code == 409 for answer in late)
    assert Tenant.objects.filter(path="acme/research").count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_first_request_that_takes_long_is_still_in_progress(caller):
    acme = Tenant.objects.get(path="acme")
    working, done = threading.Event(), threading.Event()

    def work():
        def produce():
            working.set()
            done.wait(30)
            return 201, {"id": 1}

        try:
            answer_once(
                actor_for(caller.user), tenant_id=acme.id, route="POST /tenants", key="key-1", body=b"", produce=produce
            )
        finally:
            end_sessions()

    first = threading.Thread(target=work)
    first.start()
    working.wait(10)
    response = caller()
    done.set()
    first.join(10)
    assert response.status_code == 409
    assert response.json()["code"] == "idempotency_in_progress"
    assert response["Retry-After"] == "1"
    assert caller().json()["code"] == "idempotency_key_reused"


@pytest.mark.django_db(transaction=True)
def test_when_the_first_request_fails_the_waiting_one_does_the_work():
    user = make_user()
    actor, outcome = actor_for(user), []
    working = threading.Event()
    ask: dict[str, Any] = {"tenant_id": None, "route": "r", "key": "k", "body": b"same"}

    def fail():
        def produce():
            working.set()
            number = key_number(user.id, None, "r", "k")
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = %s"
            deadline = now() + timedelta(seconds=10)
            while now() < deadline:
                with connection.cursor() as cursor:
                    cursor.execute(waiting, [number & 0xFFFFFFFF])
                    if cursor.fetchone()[0]:
                        break
            raise Conflict("no")

        try:
            answer_once(actor, **ask, produce=produce)
        except Problem as problem:
            outcome.append(problem.code)
        finally:
            end_sessions()

    first = threading.Thread(target=fail)
    first.start()
    working.wait(10)
    answer = answer_once(actor, **ask, produce=lambda: (201, {"id": 2}))
    first.join(20)
    assert outcome == ["conflict"]
    assert (answer.status, answer.body, answer.replayed) == (201, {"id": 2}, False)

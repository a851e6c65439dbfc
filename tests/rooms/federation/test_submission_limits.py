"""Limits on how many jobs wait and how many are submitted in a minute: the database counts, submission explains."""

import pytest
from django.db import IntegrityError, connection, transaction

from federation.models import Job
from foundation.problems import Invalid, NotFound, RateLimited
from quotas.models import SubmissionLimit
from quotas.operations import delete_submission_limit, put_submission_limit
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM, NotAllowedHere
from tests.builders import actor_for, bearer, bind, make_spec, make_tenant, make_user, submit
from tests.refusals import constraint_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def user():
    made = make_user()
    bind(made, "acme", "admin")
    for path in ("acme/a/b", "acme/c"):
        make_tenant(path)
    return made


def limited(path="acme", waiting=None, rate=None):
    return put_submission_limit(SYSTEM, path, most_waiting=waiting, jobs_per_minute=rate)[0]


def job(user, path="acme/a"):
    return submit(actor_for(user), {**make_spec(), "tenant": path})


def bulk(client, user, count, path="acme/a", **more):
    body = {"tenant": path, "jobs": [make_spec()] * count}
    return client.post("/api/v1/jobs/bulk", body, content_type="application/json", headers=bearer(user) | more)


def pass_seconds(seconds):
    """As if the buckets had been filled that long ago."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE quotas_submissionlimit DISABLE TRIGGER USER")
        cursor.execute("UPDATE quotas_submissionlimit SET tokens_at = tokens_at - %s * interval '1 second'", [seconds])
        cursor.execute("ALTER TABLE quotas_submissionlimit ENABLE TRIGGER USER")


def test_waiting_jobs_of_a_tenant_and_all_below_it_are_limited_together(user):
    limited(waiting=2)
    first = job(user, "acme/a/b")
    job(user, "acme/c")
    with pytest.raises(RateLimited) as refused:
        job(user, "acme")
    assert (refused.value.code, refused.value.retry_after_seconds) == ("queue_full", 30)
    assert "acme, with all tenants below it, can have at most 2 waiting jobs" in str(refused.value.detail)
    Job.objects.filter(id=first.id).update(state="cancelled", finished_at=first.created_at)
    job(user, "acme")
    assert Job.objects.count() == 3


def test_a_minutes_jobs_may_come_together_and_then_they_trickle(user):
    limited(rate=6)
    for _ in range(6):
        job(user)
    with pytest.raises(RateLimited) as refused:
        job(user, "acme/c")
    assert refused.value.code == "submission_rate"
    assert 1 <= refused.value.retry_after_seconds <= 10
    pass_seconds(11)
    job(user)
    with pytest.raises(RateLimited):
        job(user)
    pass_seconds(3600)
    for _ in range(6):
        job(user)
    with pytest.raises(RateLimited):
        job(user)


def test_a_refused_submission_spends_nothing_and_leaves_no_job(client, user):
    limited(rate=5)
    answer = bulk(client, user, 6)
    assert (answer.status_code, answer.json()["code"]) == (429, "submission_rate")
    assert "Send at most 5 in one request" in answer.json()["detail"]
    assert int(answer.headers["Retry-After"]) >= 1
    assert not Job.objects.exists()
    assert bulk(client, user, 5).status_code == 200
    assert bulk(client, user, 1).status_code == 429
    assert Job.objects.count() == 5


def test_the_key_of_a_refused_submission_may_be_used_again(client, user):
    limited(rate=1)
    assert bulk(client, user, 1).status_code == 200
    body = {"tenant": "acme/a", **make_spec()}
    sent = bearer(user) | {"Idempotency-Key": "k"}
    answers = [client.post("/api/v1/jobs", body, content_type="application/json", headers=sent)]
    pass_seconds(61)
    answers += [client.post("/api/v1/jobs", body, content_type="application/json", headers=sent) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [429, 201, 201]
    assert answers[2].headers["Idempotent-Replayed"] == "true"


def test_the_limits_of_every_tenant_above_apply(user):
    limited("acme", rate=100)
    limited("acme/a", rate=1, waiting=50)
    job(user, "acme/a/b")
    with pytest.raises(RateLimited) as refused:
        job(user, "acme/a")
    assert "acme/a, with" in str(refused.value.detail)
    job(user, "acme/c")


def test_a_larger_rate_gives_no_burst_and_a_smaller_one_takes_tokens_away(user):
    limit = limited(rate=2)
    job(user)
    job(user)
    limited(rate=1000)
    limit.refresh_from_db()
    assert limit.tokens < 1
    pass_seconds(60)
    limited(rate=1)
    job(user)
    with pytest.raises(RateLimited):
        job(user)


def test_a_limit_is_set_from_above_and_limits_something(user):
    manager = make_user()
    bind(manager, "acme/a", "manager")
    with pytest.raises(NotAllowedHere):
        put_submission_limit(actor_for(manager), "acme/a", most_waiting=1, jobs_per_minute=None)
    for waiting, rate in ((None, None), (-1, None), (None, 0), (10**8, None), (None, 10**8)):
        with pytest.raises(Invalid):
            limited(waiting=waiting, rate=rate)
    limit = limited(waiting=0)
    with pytest.raises(RateLimited):
        job(user)
    with pytest.raises(NotFound):
        delete_submission_limit(actor_for(make_user()), limit.id)
    delete_submission_limit(SYSTEM, limit.id)
    job(user)


ATTACKS = {
    "tokens by hand": ("UPDATE quotas_submissionlimit SET tokens = 99", "submission_tokens_move_with_jobs"),
    "an older bucket": (
        "UPDATE quotas_submissionlimit SET tokens_at = now() - interval '1 day'",
        "submission_tokens_move_with_jobs",
    ),
    "another tenant": (
        "UPDATE quotas_submissionlimit SET tenant_id = (SELECT id FROM tenancy_tenant WHERE path = 'acme/c')",
        "submission_tokens_move_with_jobs",
    ),
    "no limit": (
        "UPDATE quotas_submissionlimit SET jobs_per_minute = NULL, most_waiting = NULL",
        "submission_limit_limits_something",
    ),
    "no rate": ("UPDATE quotas_submissionlimit SET jobs_per_minute = 0", "submission_rate_is_in_range"),
    "too many at once": (
        (
            "INSERT INTO federation_job SELECT (jsonb_populate_record(job, jsonb_build_object('id', gen_random_uuid()))).*"
            " FROM federation_job AS job, generate_series(1, 5)"
        ),
        "submission_rate_is_kept",
    ),
    "too many waiting": (
        (
            "INSERT INTO federation_job SELECT (jsonb_populate_record(job, jsonb_build_object('id', gen_random_uuid()))).*"
            " FROM federation_job AS job, generate_series(1, 3)"
        ),
        "waiting_jobs_are_limited",
    ),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_the_database_refuses(user, attack):
    limited(rate=5, waiting=3)
    job(user)
    sql, constraint = attack
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql)
    assert constraint_of(refused.value) == constraint


def test_the_api_and_the_pages_set_and_remove_limits_on_submission(client, user):
    headers = bearer(user)
    body = {"tenant": "acme", "jobs_per_minute": 60}
    answers = [
        client.put("/api/v1/submission-limits", one, content_type="application/json", headers=headers)
        for one in (body, body | {"most_waiting": 10}, {"tenant": "acme"}, body | {"jobs_per_minute": 0})
    ]
    assert [answer.status_code for answer in answers] == [201, 200, 422, 422]
    shown = answers[1].json()
    assert (shown["most_waiting"], shown["jobs_per_minute"]) == (10, 60)
    url = f"/api/v1/submission-limits/{shown['id']}"
    assert client.get(url, headers=headers).json() == shown
    assert client.get("/api/v1/submission-limits", headers=headers).json()["items"] == [shown]
    assert client.get(url, headers=bearer(make_user())).status_code == 404

    client.force_login(user)
    text = client.get(f"/quotas/submission/set/?limit={shown['id']}").content.decode()
    assert 'value="60"' in text
    typed = {"tenant": "acme", "most_waiting": "", "jobs_per_minute": "7"}
    assert "is changed" in client.post("/quotas/submission/set/", typed, follow=True).content.decode()
    limit = SubmissionLimit.objects.get()
    assert (limit.most_waiting, limit.jobs_per_minute) == (None, 7)
    for wrong in ({"jobs_per_minute": "x"}, {"jobs_per_minute": ""}, {"jobs_per_minute": "9" * 30}, {"tenant": ""}):
        assert client.post("/quotas/submission/set/", typed | wrong).status_code == 422
    assert client.delete(url, headers=headers).status_code == 204
    actions = AuditEntry.objects.filter(object_kind="submission_limit").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["submission_limit.put"] * 3 + ["submission_limit.delete"]

"""Many requests at once with one key, over separate connections: one job, one answer."""

import json
import threading
from collections import Counter

import pytest
from django.test import Client

from federation.models import Job, JobEvent
from foundation.models import OutboxMessage
from quotas.operations import put_submission_limit
from tenancy.models import AuditEntry, IdempotencyRecord
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_spec, make_tenant, make_user
from tests.kept_sessions import end_sessions

pytestmark = pytest.mark.django_db(transaction=True)
MANY = 50


def at_once(post, count):
    """Runs `post(number)` in so many threads that all start together; what they returned."""
    barrier, answers = threading.Barrier(count), [None] * count

    def one(number):
        try:
            barrier.wait(timeout=30)
            answers[number] = post(number)
        finally:
            end_sessions()

    threads = [threading.Thread(target=one, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return answers


@pytest.fixture
def headers():
    user = make_user()
    bind(user, "acme", "submitter")
    make_tenant("acme/research")
    return bearer(user)


def post_job(headers, body, path="/api/v1/jobs", key="the-key"):
    raw = json.dumps(body)
    sent = {**headers, **({"Idempotency-Key": key} if key else {})}
    return Client().post(path, raw, content_type="application/json", headers=sent)


def test_fifty_submits_with_one_key_make_one_job(headers):
    body = {"tenant": "acme/research", **make_spec()}
    answers = at_once(lambda _: post_job(headers, body), MANY)
    assert {answer.status_code for answer in answers} <= {201, 409}
    made = [answer for answer in answers if answer.status_code == 201]
    assert len({answer.json()["id"] for answer in made}) == 1
    assert Counter(answer.headers.get("Idempotent-Replayed") for answer in made)[None] == 1
    assert {answer.json()["code"] for answer in answers if answer.status_code == 409} <= {"idempotency_in_progress"}
    job = Job.objects.get()
    assert JobEvent.objects.filter(job=job, kind="submitted").count() == 1
    assert AuditEntry.objects.filter(action="job.submit", object_id=str(job.id)).count() == 1
    assert OutboxMessage.objects.filter(topic="cycle").count() == 1
    assert IdempotencyRecord.objects.count() == 1


@pytest.mark.parametrize("limit", [{"most_waiting": 10}, {"jobs_per_minute": 10}])
def test_of_sixty_four_submissions_for_ten_places_exactly_ten_are_accepted(headers, limit):
    put_submission_limit(SYSTEM, "acme", **{"most_waiting": None, "jobs_per_minute": None, **limit})
    body = {"tenant": "acme/research", **make_spec()}
    answers = at_once(lambda _: post_job(headers, body, key=""), 64)
    found = Counter(answer.status_code for answer in answers)
    # a token comes back every six seconds
    more = 0 if "most_waiting" in limit else 5
    assert set(found) == {201, 429}
    assert 10 <= found[201] <= 10 + more
    assert Job.objects.count() == found[201]


def test_the_same_key_means_another_job_at_another_tenant(headers):
    make_tenant("acme/sales")
    tenants = ["acme/research", "acme/sales"]
    answers = at_once(lambda n: post_job(headers, {"tenant": tenants[n % 2], **make_spec()}), 10)
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert sorted(Job.objects.values_list("tenant__path", flat=True)) == tenants


def test_different_keys_and_no_key_make_a_job_each(headers):
    body = {"tenant": "acme/research", **make_spec()}
    answers = at_once(lambda n: post_job(headers, body, key=f"k{n}" if n % 2 else ""), 20)
    assert {answer.status_code for answer in answers} == {201}
    assert Job.objects.count() == 20


def test_bulks_that_share_item_keys_make_each_job_once(headers):
    items = [{**make_spec(name=f"job-{n}"), "idempotency_key": f"k{n}"} for n in range(20)]

    def post(number):
        turned = items[number:] + items[:number]
        return post_job(headers, {"tenant": "acme/research", "jobs": turned}, "/api/v1/jobs/bulk", key="")

    answers = at_once(post, 6)
    assert {answer.status_code for answer in answers} == {200}
    assert Job.objects.count() == 20
    ids = {}
    for answer in answers:
        for item in answer.json()["items"]:
            assert item["status"] == 201
            ids.setdefault(item["job"]["name"], set()).add(item["job"]["id"])
    assert all(len(same) == 1 for same in ids.values())

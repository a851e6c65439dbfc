"""Artifacts: runs announce what their job declared, while they run; the last that announces any has the job's artifacts."""

import json

import pytest
from django.db import IntegrityError, connection, transaction

from federation.engine.lifecycle import AttemptState
from federation.models import Artifact, Attempt, Job, JobEvent, Progress
from federation.operations.consequences import Ending
from federation.operations.endings import end_attempts
from federation.operations.reports import admit_report, record_report
from foundation.clock import now
from foundation.problems import NotAuthenticated
from tenancy.models import AuditEntry
from tests.builders import bearer, bind, make_cluster, make_spec, make_user, stored_spec
from tests.refusals import constraint_of
from tests.rooms.federation.test_reports import post, reported, takes_reports, token_of
from tests.rooms.federation.test_retries import make_attempt

__all__ = ["post", "takes_reports"]
pytestmark = pytest.mark.django_db
MODEL = {"name": "model", "storage": "shared", "path": "runs/7", "required": True}
LOGS = {"name": "logs", "url": "s3://bucket/logs", "required": False}
FIRST, SECOND = "a" * 64, "b" * 64


@pytest.fixture
def attempt():
    return make_attempt(**stored_spec(), reports=True, artifacts=[MODEL, LOGS])


@pytest.fixture
def ask(attempt, client):
    """Asks the API as an administrator of the job's tenant."""
    bind(attempt.job.created_by, "acme", "admin")
    headers = bearer(attempt.job.created_by)

    def get(path=""):
        answer = client.get(f"/api/v1/jobs/{attempt.job_id}{path}", headers=headers)
        return answer.status_code, answer.json()

    return get


def announced(name="model", digest=FIRST, size=7, **more):
    return {"name": name, "sha256": digest, "size_bytes": size, **more}


def tell(attempt, sequence, *artifacts, **more):
    admit_report(attempt.id)
    return record_report(attempt.id, reported(sequence, artifacts=list(artifacts), **more))


def ended(attempt, state=AttemptState.SUCCEEDED, reason="completed", exit_code=0):
    end_attempts([Ending(attempt.id, state, reason, exit_code=exit_code)])
    return Job.objects.get(id=attempt.job_id)


def following(attempt):
    """The job's next attempt, after this one was interrupted."""
    Attempt.objects.filter(id=attempt.id).update(state="preempted", finished_at=now())
    at = now()
    return Attempt.objects.create(
        job=attempt.job, number=attempt.number + 1, cluster=make_cluster(), flavor="h100", namespace="n", spec_hash="h",
        state="running", starting_at=at, released_at=at,
    )  # fmt: skip


def test_it_is_stored_by_reference_digest_and_size(attempt, post, ask):
    status, body = post(
        attempt, reported(5, artifacts=[announced(path="step-9/weights"), announced("logs", SECOND, 0)], step=1)
    )
    assert (status, body) == (200, {"is_new": True, "checkpoint_wanted": False})
    rows = Artifact.objects.order_by("name").values_list(
        "name", "storage", "reference", "sha256", "size_bytes", "sequence"
    )
    assert list(rows) == [
        ("logs", "", "s3://bucket/logs", SECOND, 0, 5),
        ("model", "shared", "runs/7/step-9/weights", FIRST, 7, 5),
    ]
    _, found = ask("/artifacts")
    assert found["next"] is None
    assert [one["name"] for one in found["items"]] == ["logs", "model"]
    model = found["items"][1]
    assert {key: model[key] for key in ("attempt_number", "storage", "path", "url", "sha256", "size_bytes", "cluster")} == {
        "attempt_number": 1, "storage": "shared", "path": "runs/7/step-9/weights", "url": None, "sha256": FIRST,
        "size_bytes": 7, "cluster": attempt.cluster.name,
    }  # fmt: skip
    assert AuditEntry.objects.count() == 0


def test_only_a_newer_report_of_the_attempt_replaces_it(attempt, post):
    assert tell(attempt, 5, announced(digest=FIRST))
    assert not tell(attempt, 5, announced(digest=SECOND))
    assert not tell(attempt, 4, announced(digest=SECOND), step=3)
    assert Artifact.objects.get().sha256 == FIRST
    assert tell(attempt, 6, announced(digest=SECOND, path="better"))
    row = Artifact.objects.get()
    assert (row.sha256, row.reference, row.sequence) == (SECOND, "runs/7/better", 6)
    # Another pod's report may have been newer; what it does not announce is announced all the same.
    assert tell(attempt, 3, announced("logs"))
    assert post(attempt, reported(3, artifacts=[announced("logs")])) == (
        200,
        {"is_new": False, "checkpoint_wanted": False},
    )


def test_what_its_job_does_not_declare_is_refused_and_leaves_nothing(attempt, post):
    status, problem = post(attempt, reported(1, step=1, artifacts=[announced(), announced("other")]))
    assert (status, [(one["field"], one["code"]) for one in problem["errors"]]) == (
        422,
        [("artifacts[1].name", "unknown_value")],
    )
    assert (Artifact.objects.count(), Progress.objects.get().sequence) == (0, -1)
    other = make_attempt(reports=True)
    assert post(other, reported(1, artifacts=[announced()]))[0] == 422


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b'{"sequence": 1, "artifacts": [{"name": "model", "sha256": "a\\u0000"}]}', 400),
        (b'{"sequence": 1, "artifacts": [{"name": "model", "name": "logs"}]}', 400),
        (b'{"sequence": 1, "artifacts": [{"name": "model", "size_bytes": NaN}]}', 400),
        (b'{"sequence": 1, "artifacts": [' + b",".join([b'{"name":"model"}'] * 3000) + b"]}", 422),
        (b'{"sequence": 1, "artifacts": [' + b",".join([b'{"name":"model"}'] * 10_000) + b"]}", 413),
    ],
)
def test_a_hostile_body_is_refused(attempt, post, raw, status):
    assert post(attempt, None, raw=raw)[0] == status
    assert Artifact.objects.count() == 0


def test_nothing_is_announced_after_the_end_of_an_attempt_nor_for_an_older_one(attempt, post):
    tell(attempt, 1, announced())
    later = following(attempt)
    late = reported(2, artifacts=[announced(digest=SECOND)])
    assert post(attempt, late)[0] == 401
    with pytest.raises(NotAuthenticated):  # nor if it ends between the check of the token and the report
        record_report(attempt.id, late)
    assert post(later, late, token=token_of(attempt))[0] == 401
    assert Artifact.objects.get().sha256 == FIRST


def test_the_jobs_artifacts_are_those_of_the_last_attempt_that_announced_any(attempt, ask):
    tell(attempt, 9, announced(digest=FIRST), announced("logs"))
    later = following(attempt)
    assert [one["attempt_number"] for one in ask("/artifacts")[1]["items"]] == [1, 1]
    tell(later, 1, announced(digest=SECOND))
    assert [(one["name"], one["sha256"]) for one in ask("/artifacts")[1]["items"]] == [("model", SECOND)]
    assert [one["name"] for one in ask("/artifacts?attempt=1")[1]["items"]] == ["logs", "model"]
    model, logs = ask()[1]["artifacts"]
    assert (model["announced"]["sha256"], model["announced"]["cluster"]) == (SECOND, later.cluster.name)
    assert (logs["announced"], logs["url"], logs["required"]) == (None, "s3://bucket/logs", False)


def test_lists_are_paged_and_filtered_strictly(attempt, ask):
    tell(attempt, 1, announced(), announced("logs"))
    _, page = ask("/artifacts?limit=1&order=-name")
    assert [one["name"] for one in page["items"]] == ["model"]
    _, rest = ask(f"/artifacts?limit=1&order=-name&cursor={page['next']}")
    assert ([one["name"] for one in rest["items"]], rest["next"]) == (["logs"], None)
    assert [ask(f"/artifacts?{query}")[0] for query in ("attempt=2", "attempt=0", "attempt=x", "name=model")] == [
        404,
        422,
        422,
        422,
    ]


def test_what_others_runs_announced_looks_absent(attempt, client):
    tell(attempt, 1, announced())
    stranger = make_user("s@else.example")
    bind(stranger, "else", "admin")
    assert client.get(f"/api/v1/jobs/{attempt.job_id}/artifacts", headers=bearer(stranger)).status_code == 404
    headers = {"Authorization": f"Bearer {token_of(attempt)}"}
    assert client.get(f"/api/v1/jobs/{attempt.job_id}/artifacts", headers=headers).status_code == 401


def test_a_success_without_a_required_artifact_says_so_and_remains_a_success(attempt, ask, client):
    tell(attempt, 1, announced("logs"))
    job = ended(attempt)
    words = "Its program succeeded, but did not announce the required artifact model."
    assert (job.state, job.exit_code, job.reason_code, job.reason_message) == (
        "succeeded",
        0,
        "artifacts_missing",
        words,
    )
    assert JobEvent.objects.get(job=job, kind="job_succeeded").message == words
    assert ask()[1]["reason"] == {"code": "artifacts_missing", "message": words}
    client.force_login(job.created_by)
    page = client.get(f"/jobs/{job.id}/").content.decode()
    assert words in page


def test_a_success_with_them_and_a_failure_without_them_say_nothing(attempt):
    tell(attempt, 1, announced())
    assert (ended(attempt).state, Job.objects.get().reason_code) == ("succeeded", "")
    failing = make_attempt(**stored_spec(), reports=True, artifacts=[MODEL])
    job = ended(failing, AttemptState.FAILED, "program_failed", 3)
    assert (job.state, job.exit_code, job.reason_code) == ("failed", 3, "program_failed")


def test_what_an_earlier_attempt_announced_does_not_count_at_the_end(attempt):
    tell(attempt, 1, announced())
    later = following(attempt)
    assert ended(later).reason_code == "artifacts_missing"


def test_the_page_shows_them_with_what_is_missing_and_none_where_none_are_declared(attempt, client):
    bind(attempt.job.created_by, "acme", "admin")
    client.force_login(attempt.job.created_by)
    page = client.get(f"/jobs/{attempt.job_id}/").content.decode()
    assert page.count("not announced") == 2
    tell(attempt, 1, announced(size=2048))
    page = client.get(f"/jobs/{attempt.job_id}/").content.decode()
    for words in (
        FIRST,
        "2.0\xa0KB",
        "required",
        "runs/7",
        f"storage shared of {attempt.cluster.name}",
        'data-copy="digest-model"',
    ):
        assert words in page
    assert page.count("not announced") == 1
    plain = make_attempt(**stored_spec())
    assert 'id="artifacts"' not in client.get(f"/jobs/{plain.job_id}/").content.decode()


def test_a_list_of_jobs_reads_all_artifacts_with_one_query(attempt, client, django_assert_max_num_queries):
    bind(attempt.job.created_by, "acme", "admin")
    tell(attempt, 1, announced())
    headers = bearer(attempt.job.created_by)
    with django_assert_max_num_queries(40) as before:
        client.get("/api/v1/jobs", headers=headers)
    for _ in range(3):
        tell(make_attempt(**stored_spec(), reports=True, artifacts=[MODEL]), 1, announced())
    with django_assert_max_num_queries(40) as after:
        found = client.get("/api/v1/jobs", headers=headers).json()["items"]
    assert sum(1 for job in found for one in job["artifacts"] if one["announced"]) == 4
    assert len(after) <= len(before)


SET = "UPDATE federation_artifact SET sequence = sequence + 1, "
INTO = "INSERT INTO federation_artifact (attempt_id, name, storage, reference, sha256, size_bytes, sequence, announced_at) "
ROW = INTO + "SELECT attempt_id, {}, now() FROM federation_artifact WHERE name = 'model'"


@pytest.mark.parametrize(
    ("statement", "refused_by"),
    [
        (SET + "sha256 = 'abc'", "an_artifacts_digest_is_a_sha256"),
        (SET + "sha256 = repeat('A', 64)", "an_artifacts_digest_is_a_sha256"),
        (SET + "sha256 = repeat('a', 63) || E'\\n'", "an_artifacts_digest_is_a_sha256"),
        (SET + "size_bytes = -1", "an_artifact_has_a_size"),
        (SET + "size_bytes = 9007199254740992", "an_artifact_has_a_size"),
        (SET + "reference = 'runs/7/../8'", "an_artifacts_reference_leads_nowhere_else"),
        (SET + "reference = 'runs/7/.'", "an_artifacts_reference_leads_nowhere_else"),
        (SET + "reference = 'runs/7//x'", "an_artifacts_reference_leads_nowhere_else"),
        (SET + "reference = E'runs/7/\\x1b'", "an_artifacts_reference_leads_nowhere_else"),
        (SET + "reference = 'runs/8'", "an_artifact_lies_where_its_job_declared_it"),
        (SET + "reference = 'runs/77'", "an_artifact_lies_where_its_job_declared_it"),
        (SET + "reference = '/runs/7'", "an_artifact_lies_where_its_job_declared_it"),
        (SET + "storage = 'others'", "an_artifact_lies_where_its_job_declared_it"),
        (SET + "storage = '', reference = 'https://key:secret@host/x'", "an_artifact_lies_where_its_job_declared_it"),
        (SET + "name = 'logs'", "an_artifact_changes_by_a_newer_report"),
        ("UPDATE federation_artifact SET size_bytes = 8", "an_artifact_changes_by_a_newer_report"),
        ("UPDATE federation_artifact SET sequence = 0", "an_artifact_changes_by_a_newer_report"),
        (ROW.format("'other', storage, reference, sha256, 1, 1"), "an_artifact_lies_where_its_job_declared_it"),
        (ROW.format("'model', storage, reference, sha256, 1, 9"), "an_artifact_is_listed_once"),
        (ROW.format("'logs', '', 's3://bucket/logs/?sig=x', sha256, 1, 9"), "an_artifacts_reference_leads_nowhere_else"),
        (ROW.format("'logs', '', 's3://bucket/logs/..', sha256, 1, 9"), "an_artifacts_reference_leads_nowhere_else"),
        (ROW.format("'logs', '', 's3://bucket/logs', sha256, 1, -1"), "an_artifact_has_a_size"),
    ],
)  # fmt: skip
def test_the_database_refuses_what_no_report_can_say(attempt, statement, refused_by):
    tell(attempt, 5, announced())
    assert refusal(statement) == refused_by


def test_a_declaration_that_is_not_plain_cannot_make_a_row():
    wild = make_attempt(
        **stored_spec(), reports=True, artifacts=[{**LOGS, "name": "A B"}, {**LOGS, "url": "https://a:b@h/x"}]
    )
    for name, constraint in (
        ("A B", "an_artifacts_name_is_a_dns_label"),
        ("logs", "an_artifacts_reference_leads_nowhere_else"),
    ):
        with pytest.raises(IntegrityError) as refused, transaction.atomic():
            tell(wild, 1, announced(name))
        assert constraint_of(refused.value) == constraint


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled", "preempted", "lost"])
def test_the_database_keeps_what_an_ended_attempt_announced_as_it_is(attempt, state):
    tell(attempt, 5, announced())
    Attempt.objects.filter(id=attempt.id).update(state=state, finished_at=now())
    for statement in (
        SET + "size_bytes = 8",
        "DELETE FROM federation_artifact",
        ROW.format("'logs', '', 's3://bucket/logs', sha256, 1, 9"),
    ):
        assert refusal(statement) == "artifacts_stand_once_their_attempt_has_ended"


def refusal(statement):
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    return constraint_of(refused.value)


def test_a_job_declares_them_in_its_spec_and_shows_them_again(client):
    user = make_user()
    bind(user, "acme", "submitter")
    body = {
        "tenant": "acme",
        **make_spec(),
        "reports": True,
        "artifacts": [{"name": "logs", "url": "s3://bucket/logs"}],
    }

    def post_job(body):
        answer = client.post("/api/v1/jobs", json.dumps(body), content_type="application/json", headers=bearer(user))
        return answer.status_code, answer.json()

    status, job = post_job(body)
    assert (status, job["spec"]["artifacts"]) == (201, [LOGS])
    assert job["links"]["artifacts"] == f"/api/v1/jobs/{job['id']}/artifacts"
    assert client.get(job["links"]["artifacts"], headers=bearer(user)).json() == {"items": [], "next": None}
    assert post_job(job["spec"])[1]["spec"] == job["spec"]
    status, problem = post_job({**body, "artifacts": [{"name": "model", "storage": "others", "path": "x"}]})
    assert (status, [one["field"] for one in problem["errors"]]) == (422, ["artifacts[0].path"])

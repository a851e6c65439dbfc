"""Runs report to the gateway: with a token for nothing else, within bounds, and their next attempts profit from it."""

import base64
import json
from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import F

from clusters.drivers.simulated import SimulatedDriver
from clusters.queries import signing_keys
from federation.engine.objects.report_tokens import report_token
from federation.engine.reports import MOST_CHECKPOINTS, MOST_REPORTS
from federation.models import Attempt, Checkpoint, Progress
from federation.operations.failures import note_lost_work
from federation.operations.reports import record_report
from federation.queries.claimed_attempts import claimed_attempts
from federation.queries.secrets import with_opened_secrets
from foundation.clock import now
from foundation.problems import NotAuthenticated
from tenancy.models import AuditEntry
from tests.builders import bearer, bind, make_user, stored_spec
from tests.refusals import constraint_of
from tests.rooms.federation.test_retries import make_attempt

pytestmark = pytest.mark.django_db
URL = "https://gateway.example"
CHECKPOINT = "s3://bucket/run/1200"


@pytest.fixture(autouse=True)
def takes_reports(settings):
    settings.PUBLIC_URL = URL


@pytest.fixture
def attempt():
    return make_attempt(**stored_spec(), reports=True)


@pytest.fixture
def post(client):
    def ask(attempt, body, token=None, raw=None):
        answer = client.post(
            f"/api/v1/attempts/{attempt.id}/reports",
            json.dumps(body) if raw is None else raw,
            content_type="application/json",
            headers={"Authorization": f"Bearer {token or token_of(attempt)}"},
        )
        return answer.status_code, answer.json()

    return ask


def token_of(attempt):
    return report_token(signing_keys()[0], attempt.id)


def reported(sequence, **told):
    return {"sequence": sequence, **told}


def earned(attempt, **fields):
    """The variables of the next attempt's container."""
    Attempt.objects.filter(id=attempt.id).update(state="preempted", finished_at=now())
    later = Attempt.objects.create(
        job=attempt.job, number=attempt.number + 1, cluster=attempt.cluster, namespace="n", spec_hash="h", **{"flavor": "h100", **fields}
    )  # fmt: skip
    later.remote_objects.create(
        position=0, name="later", flavor="h100", capacity_type="on_demand", pods=1, gpu_units=1, cpu_millicores=1, memory_mib=1
    )  # fmt: skip
    [claimed] = with_opened_secrets(claimed_attempts([later.id]))
    return variables_of(claimed.manifest(claimed.objects[0]))


def variables_of(manifest):
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one.get("value") for one in container["env"]}


def sent_to(monkeypatch, call):
    """The manifests that this call of the simulated cluster gets from now on."""
    found, original = [], getattr(SimulatedDriver, call)

    async def look(self, manifest):
        found.append(manifest)
        return await original(self, manifest)

    monkeypatch.setattr(SimulatedDriver, call, look)
    return found


@pytest.mark.parametrize("state", ["starting", "running", "unknown"])
def test_it_reports_while_its_attempt_may_run(attempt, post, state):
    Attempt.objects.update(state=state)
    assert post(attempt, reported(1, step=1)) == (200, {"is_new": True, "checkpoint_wanted": False})


@pytest.mark.parametrize("state", ["reserved", "created"])
def test_it_is_worth_nothing_before_its_attempt_runs(attempt, post, state):
    Attempt.objects.update(state=state, starting_at=None, released_at=None)
    assert post(attempt, reported(1))[0] == 401


def test_it_is_worth_nothing_after_its_attempt_has_ended(attempt, post):
    post(attempt, reported(1))
    Attempt.objects.update(state="succeeded", finished_at=now())
    assert post(attempt, reported(2, step=9))[0] == 401
    with pytest.raises(NotAuthenticated):  # nor if it ends between the check of the token and the report
        record_report(attempt.id, reported(2, step=9))
    assert Progress.objects.get().step is None


def test_it_is_worth_nothing_for_another_attempt_and_looks_like_none(attempt, post):
    other = make_attempt(reports=True)
    answers = [
        post(attempt, reported(1), token=token)
        for token in (token_of(other), "swyr_" + "A" * 43, "swyr_", report_token(b"x" * 32, attempt.id))
    ]
    assert {status for status, _ in answers} == {401}
    assert len({json.dumps({**body, "request_id": ""}) for _, body in answers}) == 1


def test_it_is_worth_nothing_if_the_job_does_not_report(post):
    assert post(make_attempt(), reported(1))[0] == 401


def test_it_gives_no_other_right(attempt, client):
    headers = {"Authorization": f"Bearer {token_of(attempt)}"}
    for path in (
        "me",
        "jobs",
        f"jobs/{attempt.job_id}",
        f"jobs/{attempt.job_id}/reports",
        f"jobs/{attempt.job_id}/attempts",
    ):
        assert client.get(f"/api/v1/{path}", headers=headers).status_code == 401
    for path in (
        f"jobs/{attempt.job_id}/cancel",
        f"jobs/{attempt.job_id}/suspend",
        f"attempts/{attempt.id}/attestation",
    ):
        answer = client.post(f"/api/v1/{path}", b"{}", content_type="application/json", headers=headers)
        assert answer.status_code == 401


def test_a_users_token_cannot_report(attempt, post):
    secret = bearer(attempt.job.created_by)["Authorization"].removeprefix("Bearer ")
    bind(attempt.job.created_by, "acme", "admin")
    assert post(attempt, reported(1), token=secret)[0] == 404


def test_an_older_key_of_the_ring_still_counts_and_a_removed_one_does_not(attempt, post, settings):
    token, old = token_of(attempt), settings.KEY_RING
    fresh = "fresh:" + base64.b64encode(b"n" * 32).decode()
    settings.KEY_RING = f"{fresh},{old}"
    assert post(attempt, reported(1), token=token)[0] == 200
    settings.KEY_RING = fresh
    assert post(attempt, reported(2), token=token)[0] == 401


def test_a_repeated_or_late_report_changes_nothing(attempt, post):
    newest = reported(5, step=50, total_steps=100, loss=1.0, checkpoint={"reference": CHECKPOINT, "step": 50})
    assert post(attempt, newest) == (200, {"is_new": True, "checkpoint_wanted": False})
    before = (
        Progress.objects.values("sequence", "step", "series", "reported_at").get(),
        Checkpoint.objects.values().get(),
    )
    for late in (newest, reported(4, step=1, loss=9.0, checkpoint={"reference": CHECKPOINT, "step": 1})):
        assert post(attempt, late) == (200, {"is_new": False, "checkpoint_wanted": False})
    after = (
        Progress.objects.values("sequence", "step", "series", "reported_at").get(),
        Checkpoint.objects.values().get(),
    )
    assert after == before


def test_what_a_report_omits_stays(attempt, post):
    post(attempt, reported(1, step=10, total_steps=100, series={"lr": 0.5}))
    post(attempt, reported(2, loss=2.5))
    told = Progress.objects.get()
    assert (told.step, told.total_steps, told.loss) == (10, 100, 2.5)
    assert told.series == {"lr": [[10.0, 0.5]], "loss": [[2.0, 2.5]]}
    assert post(attempt, reported(3, step=101))[0] == 422
    assert post(attempt, reported(4, total_steps=9))[0] == 422


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b'{"sequence": 1, "loss": NaN}', 400),
        (b'{"sequence": 1, "loss": 1e400}', 400),
        (b'{"sequence": 1, "step": ' + b"9" * 60 + b"}", 422),
        (b'{"sequence": 1, "sequence": 2}', 400),
        (b'{"sequence": 1, "checkpoint": {"reference": "a\\u0000b"}}', 400),
        (b'{"sequence": 1, "checkpoint": {"reference": "a\\u001bb"}}', 422),
        (b'{"sequence": 1, "series": {' + b",".join(b'"n%d":1' % n for n in range(1_000_000)) + b"}}", 413),
        (b'{"sequence": 1, "series": {' + b",".join(b'"n%d":1' % n for n in range(2_000)) + b"}}", 422),
        (b'{"sequence": 1, "series": ' + b"[" * 40 + b"]" * 40 + b"}", 400),
        (b"[]", 422),
    ],
)
def test_a_hostile_body_is_refused(attempt, post, raw, status):
    assert post(attempt, None, raw=raw)[0] == status
    assert (Progress.objects.get().sequence, Checkpoint.objects.count()) == (-1, 0)


def test_too_many_names_in_all_are_refused_and_leave_nothing(attempt, post):
    post(attempt, reported(1, series={f"s{n}": n for n in range(16)}))
    status, problem = post(attempt, reported(2, series={"one-more": 1}, checkpoint={"reference": CHECKPOINT}))
    assert (status, [one["field"] for one in problem["errors"]]) == (422, ["series"])
    assert (Progress.objects.get().sequence, Checkpoint.objects.count()) == (1, 0)


def test_an_attempt_that_reports_too_often_waits_whatever_it_sends(attempt, post):
    for number in range(MOST_REPORTS):
        post(attempt, reported(number) if number % 2 else {})
    assert post(attempt, reported(1000, step=1))[0] == 429
    assert post(make_attempt(reports=True), reported(1))[0] == 200
    Progress.objects.update(window_began_at=F("window_began_at") - timedelta(minutes=2))
    assert post(attempt, reported(1001, step=1)) == (200, {"is_new": True, "checkpoint_wanted": False})
    assert AuditEntry.objects.count() == 0


def test_the_newest_checkpoints_are_kept(attempt, post):
    for number in range(MOST_CHECKPOINTS + 2):
        post(attempt, reported(number, checkpoint={"reference": f"s3://b/{number}"}))
    assert set(Checkpoint.objects.values_list("sequence", flat=True)) == set(range(2, MOST_CHECKPOINTS + 2))


def test_a_checkpoint_of_the_future_was_written_when_it_was_reported(attempt, post):
    told = {"reference": CHECKPOINT, "written_at": "2099-01-01T00:00:00Z"}
    post(attempt, reported(1, checkpoint=told))
    row = Checkpoint.objects.get()
    assert row.written_at == row.reported_at < now() + timedelta(seconds=5)


@pytest.mark.parametrize(
    ("statement", "refused_by"),
    [
        ("UPDATE federation_progress SET step = 7, total_steps = 6", "progress_is_at_most_all"),
        ("UPDATE federation_progress SET step = -1", "progress_counts_steps"),
        ("UPDATE federation_checkpoint SET reference = ''", "a_checkpoint_has_a_reference"),
        ("UPDATE federation_checkpoint SET flavors = '{}'", "checkpoint_flavors_are_a_list"),
        (
            "UPDATE federation_checkpoint SET written_at = now() + interval '1 day'",
            "a_checkpoint_is_written_before_its_report",
        ),
    ],
)
def test_the_database_refuses_what_no_report_can_say(attempt, post, statement, refused_by):
    post(attempt, reported(1, step=1, checkpoint={"reference": CHECKPOINT}))
    with pytest.raises(IntegrityError) as refusal, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert constraint_of(refusal.value) == refused_by


def test_the_next_attempt_gets_the_newest_checkpoint_and_the_number_of_earlier_runs(attempt, post):
    post(attempt, reported(1, checkpoint={"reference": "s3://b/old"}))
    post(attempt, reported(2, checkpoint={"reference": "s3://b/$(SWITCHYARD_REPORT_TOKEN)"}))
    told = earned(attempt)
    assert told["SWITCHYARD_RESTART"] == "1"
    assert told["SWITCHYARD_CHECKPOINT"] == "s3://b/$$(SWITCHYARD_REPORT_TOKEN)"


def test_an_attempt_on_another_flavor_gets_a_checkpoint_that_suits_it(attempt, post):
    post(attempt, reported(1, checkpoint={"reference": "s3://b/any"}))
    post(attempt, reported(2, checkpoint={"reference": "s3://b/a100", "flavors": ["a100", "b200"]}))
    assert earned(attempt)["SWITCHYARD_CHECKPOINT"] == "s3://b/any"
    later = Attempt.objects.order_by("-number").first()
    assert earned(later, flavor="a100")["SWITCHYARD_CHECKPOINT"] == "s3://b/a100"


def test_a_first_attempt_has_no_checkpoint_and_no_earlier_run(attempt):
    [claimed] = claimed_attempts([attempt.id])
    told = variables_of(claimed.manifest(claimed.objects[0]))
    assert not {"SWITCHYARD_RESTART", "SWITCHYARD_CHECKPOINT"} & told.keys()


@pytest.mark.parametrize(
    ("spec", "written", "lost"),
    [
        ({}, 240, 60),
        ({"checkpoint_seconds": 7}, 240, 60),
        ({}, 900, 0),
        ({}, -900, 300),
        ({"checkpoint_seconds": 70}, None, 20),
        ({}, None, 300),
    ],
)
@pytest.mark.parametrize("reason", ["node_lost", "suspended"])
def test_lost_work_counts_from_the_last_checkpoint_that_was_reported(spec, written, lost, reason):
    attempt = make_attempt(reports=True, **spec)
    began = (now() - timedelta(seconds=1000)).replace(microsecond=0)
    attempt.pods.create(
        cluster_id=attempt.cluster_id, remote_object=attempt.remote_objects.get(), place=0, uid="u", name="p", phase="Failed",
        started_at=began, finished_at=began + timedelta(seconds=300), observed_at=now(),
    )  # fmt: skip
    Attempt.objects.update(state="preempted", finished_at=now(), end_reason=reason)
    if written is not None:
        at = began + timedelta(seconds=written)
        Checkpoint.objects.create(attempt=attempt, sequence=1, reference="old", written_at=began)
        Checkpoint.objects.create(attempt=attempt, sequence=2, reference=CHECKPOINT, written_at=at)
    assert note_lost_work([attempt.id]) == {attempt.id: began + timedelta(seconds=300 - lost)}
    attempt.refresh_from_db()
    assert attempt.lost_seconds == lost


def test_the_page_and_the_api_show_it(attempt, post, client):
    bind(attempt.job.created_by, "acme", "admin")
    at = now()
    Attempt.objects.update(started_at=at - timedelta(hours=2))
    post(attempt, reported(1, step=100, total_steps=1000))
    Progress.objects.update(first_step_at=at - timedelta(hours=1))
    post(attempt, reported(2, step=600, loss=1.25, checkpoint={"reference": CHECKPOINT, "size_bytes": 2048}))
    headers = bearer(attempt.job.created_by)
    shown = client.get(f"/api/v1/jobs/{attempt.job_id}", headers=headers).json()["progress"]
    assert (shown["step"], shown["total_steps"], shown["percent"], shown["loss"]) == (600, 1000, 60, 1.25)
    left = (Progress.objects.get().reported_at - (at - timedelta(hours=1))) * 400 / 500
    assert shown["expected_end_at"][:16] == (Progress.objects.get().reported_at + left).isoformat()[:16]
    told = client.get(f"/api/v1/jobs/{attempt.job_id}/reports", headers=headers).json()
    assert told["progress"]["series"] == [{"name": "loss", "points": [[600.0, 1.25]]}]
    assert [(one["reference"], one["step"], one["size_bytes"]) for one in told["checkpoints"]] == [
        (CHECKPOINT, 600, 2048)
    ]
    client.force_login(attempt.job.created_by)
    page = client.get(f"/jobs/{attempt.job_id}/").content.decode()
    for words in ("600 of 1,000", "60 %", "1.25", CHECKPOINT, "at its pace so far", "<polyline"):
        assert words in page


def test_what_others_runs_reported_looks_absent(attempt, post, client):
    post(attempt, reported(1, checkpoint={"reference": CHECKPOINT}))
    stranger = make_user("s@else.example")
    bind(stranger, "else", "admin")
    assert client.get(f"/api/v1/jobs/{attempt.job_id}/reports", headers=bearer(stranger)).status_code == 404

"""Jobs that use secrets: what their clusters get of them, and that their values appear nowhere else."""

import base64
import json
import logging

import pytest
from django.conf import settings
from django.db import DatabaseError, connection, transaction

from clusters.drivers import AlreadyExists, Ambiguous, Refused, Throttled
from clusters.drivers.simulated import SimulatedDriver, path_of, secrets
from clusters.engine.permissions import CREATE_SECRETS
from clusters.engine.secrets import Kind, pull_config
from clusters.models import TenantSecret
from clusters.operations.secrets import NewValue, delete_secret, put_secret
from federation import operations
from federation.models import Attempt, Job, RemoteObject
from federation.queries.claimed_attempts import claimed_attempts
from federation.queries.secrets import with_opened_secrets
from tenancy.models import Tenant
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_tenant, make_user, submit
from tests.live import call, every_visit, gpu_job

pytestmark = pytest.mark.django_db(transaction=True)
TENANT, CANARY, PASSWORD = "acme/research/vision", "canary-5c1d9e", "canary-77aa01"
USES = [{"secret": "token", "env": "TOKEN"}, {"secret": "token", "file": "/run/secrets/token"}]


@pytest.fixture
def kept():
    """A secret of the tenant and one of its organisation."""
    make_tenant(TENANT)
    put("token", CANARY)
    tenant = Tenant.objects.get(path="acme")
    put_secret(SYSTEM, tenant.id, "ghcr", NewValue(Kind.REGISTRY, pull_config("ghcr.io", "ada", PASSWORD), "ghcr.io"))


@pytest.fixture
def sent(monkeypatch):
    """The Jobs and Secrets as they are sent to the cluster, in order."""
    found = []
    create_job, create_secret = SimulatedDriver.create_job, SimulatedDriver.create_secret

    async def look_at_job(self, manifest):
        found.append(manifest)
        return await create_job(self, manifest)

    async def look_at_secret(self, manifest):
        found.append(manifest)
        return await create_secret(self, manifest)

    monkeypatch.setattr(SimulatedDriver, "create_job", look_at_job)
    monkeypatch.setattr(SimulatedDriver, "create_secret", look_at_secret)
    return found


def put(name, value, path=TENANT):
    return put_secret(SYSTEM, make_tenant(path).id, name, NewValue(Kind.VALUE, value.encode()))


def wanted(**pod):
    body = gpu_job()
    body["pod_sets"][0] |= pod or {"secrets": USES, "pull_secret": "ghcr"}
    return body


def placed(submitter, **pod):
    job = submit(submitter, wanted(**pod))
    operations.run_scheduling_cycle()
    return Job.objects.get(id=job.id), Attempt.objects.filter(job=job, finished_at=None).first()


def here(cluster, attempt):
    """The cluster's Secrets in the attempt's namespace, by name."""
    path = path_of(settings.HOME, cluster.server)
    return {one["metadata"]["name"]: one for one in secrets(path, attempt.namespace)}


def test_secrets_are_created_after_their_job_and_before_its_release(cluster, submitter, kept, sent):
    _, attempt = placed(submitter)
    operations.dispatch_attempts()
    job, value, access = sent
    attempt.refresh_from_db()
    assert attempt.state == "starting"
    assert (job["kind"], value["kind"], access["kind"]) == ("Job", "Secret", "Secret")
    assert base64.b64decode(value["data"]["s0"]).decode() == CANARY
    assert PASSWORD in base64.b64decode(access["data"][".dockerconfigjson"]).decode()
    pod = job["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": access["metadata"]["name"]}]
    assert pod["containers"][0]["env"][-1]["valueFrom"]["secretKeyRef"]["name"] == value["metadata"]["name"]
    assert next(one["secret"] for one in pod["volumes"] if "secret" in one)["secretName"] == value["metadata"]["name"]
    uid = RemoteObject.objects.get().uid
    assert {one["metadata"]["ownerReferences"][0]["uid"] for one in (value, access)} == {uid}


def test_the_nearest_secret_wins_and_another_tenants_is_not_there(cluster, submitter, sent):
    make_tenant("acme/other")
    put("token", "theirs", "acme/other")
    put("token", "above", "acme")
    placed(submitter, secrets=USES)
    operations.dispatch_attempts()
    put("token", "own")
    placed(submitter, secrets=USES)
    operations.dispatch_attempts()
    values = [base64.b64decode(one["data"]["s0"]).decode() for one in sent if one["kind"] == "Secret"]
    assert values == ["above", "own"]


@pytest.mark.parametrize("given", [{"secrets": USES}, {"pull_secret": "token"}])
def test_a_foreign_secret_and_one_of_another_kind_look_like_none(cluster, client, given):
    user = make_user()
    bind(user, TENANT, "submitter")

    def ask():
        body = json.dumps(wanted(**given))
        answer = client.post("/api/v1/jobs", body, content_type="application/json", headers=bearer(user))
        return answer.status_code, {**answer.json(), "request_id": ""}

    absent = ask()
    assert absent[0] == 404
    assert [(one["field"], one["code"]) for one in absent[1]["errors"]] == [("secrets.token", "not_found")]
    put("token", CANARY, "globex")
    make_tenant("acme/other")
    put("token", CANARY, "acme/other")
    if "pull_secret" in given:
        put("token", CANARY)
    else:
        put_secret(SYSTEM, make_tenant(TENANT).id, "token", NewValue(Kind.REGISTRY, b"{}", "ghcr.io"))
    assert ask() == absent
    assert not Job.objects.exists()


def test_a_secret_deleted_while_a_job_waits_keeps_it_waiting_with_the_reason_until_it_is_back(cluster, submitter, kept):
    job = submit(submitter, wanted())
    delete_secret(SYSTEM, Tenant.objects.get(path=TENANT).id, "token")
    operations.run_scheduling_cycle()
    job.refresh_from_db()
    assert (job.state, job.reason_code) == ("queued", "secret_missing")
    assert "has no secret token" in job.reason_message
    put("token", CANARY)
    operations.run_scheduling_cycle()
    job.refresh_from_db()
    assert job.state == "dispatching"


def test_a_rotation_while_a_job_waits_gives_it_the_new_value(cluster, submitter, kept, sent):
    submit(submitter, wanted())
    put("token", "newer")
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    assert base64.b64decode(sent[1]["data"]["s0"]) == b"newer"


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_version_replaced_before_it_was_sent_is_not_sent_and_the_job_is_placed_again(
    cluster, submitter, kept, sent, is_deleted
):
    job, attempt = placed(submitter)
    if is_deleted:
        delete_secret(SYSTEM, Tenant.objects.get(path=TENANT).id, "token")
    put("token", "newer")
    operations.dispatch_attempts()
    attempt.refresh_from_db()
    assert (attempt.state, attempt.end_reason, sent) == ("abandoned", "secret_changed", [])
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    job.refresh_from_db()
    assert base64.b64decode(sent[1]["data"]["s0"]) == b"newer"


def test_two_attempts_with_different_versions_never_swap_them(cluster, submitter, kept):
    _, first = placed(submitter)
    put("token", "newer")
    _, second = placed(submitter, secrets=USES)
    old, new = with_opened_secrets(claimed_attempts([first.id, second.id]))
    assert CANARY.encode() not in old.secret_values.values()
    assert b"newer" not in old.secret_values.values()
    assert list(new.secret_values.values()) == [b"newer"]


def test_a_running_job_keeps_its_secret_when_it_is_rotated_or_deleted(cluster, submitter, kept, sent):
    _, attempt = placed(submitter)
    operations.dispatch_attempts()
    put("token", "newer")
    delete_secret(SYSTEM, Tenant.objects.get(path=TENANT).id, "token")
    every_visit(attempt, 2)
    attempt.refresh_from_db()
    assert attempt.state == "starting"
    assert len(here(cluster, attempt)) == 2
    assert len(sent) == 3


def test_secrets_go_with_the_job_that_owns_them(cluster, submitter, kept):
    _, attempt = placed(submitter)
    operations.dispatch_attempts()
    assert len(here(cluster, attempt)) == 2
    attempt.refresh_from_db()
    uid = RemoteObject.objects.get().uid
    call(cluster, "delete_job", attempt.namespace, RemoteObject.objects.get().name, uid)
    assert here(cluster, attempt) == {}


def test_a_cluster_that_does_not_grant_the_right_gets_nothing_and_the_reason_names_it(
    cluster, submitter, kept, sent, monkeypatch
):
    async def may(_self, right, _namespace=""):
        return right != CREATE_SECRETS

    monkeypatch.setattr(SimulatedDriver, "may", may)
    job, attempt = placed(submitter)
    every_visit(attempt, 9)
    attempt.refresh_from_db()
    assert (attempt.state, attempt.end_reason, sent) == ("abandoned", "refused_by_cluster", [])
    assert "may not create Secrets" in attempt.end_message
    assert "cluster-access.yaml" in attempt.end_message
    placed(submitter, env={})
    operations.dispatch_attempts()
    assert [one["kind"] for one in sent] == ["Job"]
    assert Job.objects.get(id=job.id).state == "queued"


REPLIES = {
    "lost": (Ambiguous("no answer"), "reserved"),
    "throttled": (Throttled("wait"), "reserved"),
    "500": (Ambiguous("500", status=500), "reserved"),
    "403": (Refused("forbidden", status=403), "reserved"),
    "422": (Refused("invalid", status=422), "abandoned"),
    "404": (Refused("gone", status=404), "abandoned"),
    "409": (AlreadyExists("exists", status=409), "starting"),
}


@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("took_effect", [False, True])
def test_every_reply_to_a_secret_is_harmless_and_nothing_runs_without_it(
    cluster, submitter, kept, monkeypatch, reply, took_effect
):
    error, state = REPLIES[reply]
    real, answered = SimulatedDriver.create_secret, []

    async def answer(self, manifest):
        if answered:
            return await real(self, manifest)
        answered.append(manifest)
        if took_effect:
            await real(self, manifest)
        raise error

    monkeypatch.setattr(SimulatedDriver, "create_secret", answer)
    _, attempt = placed(submitter)
    operations.dispatch_attempts()
    attempt.refresh_from_db()
    assert attempt.state == state
    assert (attempt.released_at is not None) == (state == "starting")
    if state == "reserved":
        every_visit(attempt, 1)
        attempt.refresh_from_db()
        assert attempt.state == "starting"


def test_nobody_rewrites_which_secrets_an_object_uses(cluster, submitter, kept):
    placed(submitter)
    with pytest.raises(DatabaseError, match="uses never changes"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE federation_remoteobject SET secrets = '{}'")


def test_a_secret_that_cannot_be_opened_stops_the_attempt_with_the_reason(cluster, submitter, kept, sent):
    _, attempt = placed(submitter)
    TenantSecret.objects.update(sealed=b"spoilt" * 10)
    operations.dispatch_attempts()
    attempt.refresh_from_db()
    assert (attempt.state, attempt.end_reason, sent) == ("abandoned", "create_failed", [])
    assert "cannot be opened" in attempt.end_message


def everything_stored():
    """All rows of all tables as text."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        tables = [name for (name,) in cursor.fetchall()]
        found = []
        for table in tables:
            cursor.execute(f'SELECT row::text FROM "{table}" AS row')
            found += [text for (text,) in cursor.fetchall()]
    return "\n".join(found)


@pytest.fixture
def written(caplog, capfd, home):
    """All that is logged, printed and written into files by its time."""
    caplog.set_level(logging.DEBUG)

    def read():
        files = [path.read_bytes().decode("latin-1") for path in home.rglob("*") if path.is_file()]
        return [caplog.text, *capfd.readouterr(), *files]

    return read


def test_the_values_of_secrets_are_nowhere_in_plain(cluster, client, written, monkeypatch):
    user = make_user("root@acme.example")
    bind(user, "acme", "admin")
    tenant = make_tenant(TENANT)
    told = []

    def ask(verb, path, body=None):
        raw = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
        answer = getattr(client, verb)(path, **raw, headers=bearer(user) | {"Idempotency-Key": "k" + path})
        told.append(answer.content.decode())
        return answer

    folder = f"/api/v1/tenants/{tenant.id}/secrets"
    assert ask("put", f"{folder}/token", {"value": CANARY}).status_code == 201
    access = {"server": "ghcr.io", "username": "ada", "password": PASSWORD}
    assert ask("put", f"{folder}/ghcr", {"registry": access}).status_code == 201
    assert ask("put", f"{folder}/token", {"value": CANARY, "registry": access}).status_code == 422
    assert ask("put", f"{folder}/Bad", {"value": CANARY}).status_code == 422
    real = SimulatedDriver.create_secret
    hostile = [Refused("forbidden", status=403), None]

    async def once_refused(self, manifest):
        error = hostile.pop(0) if hostile else None
        if error:
            raise error
        return await real(self, manifest)

    monkeypatch.setattr(SimulatedDriver, "create_secret", once_refused)
    made = ask("post", "/api/v1/jobs", wanted()).json()
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    attempt = Attempt.objects.get()
    claimed = with_opened_secrets(claimed_attempts([attempt.id]))
    assert claimed[0].secret_values
    told.append(repr(claimed))
    every_visit(attempt, 1)
    attempt.refresh_from_db()
    assert attempt.state == "starting"
    for path in ("", "/attempts", "/events", "/explanation", "/logs"):
        ask("get", f"/api/v1/jobs/{made['id']}{path}")
    for path in (folder, "/api/v1/audit", "/api/v1/clusters", f"/api/v1/clusters/{cluster.id}/events", "/metrics"):
        ask("get", path)
    client.force_login(user)
    told.append(client.get(f"/jobs/{made['id']}/").content.decode())
    told += [everything_stored(), *written()]
    for value in (CANARY, PASSWORD):
        hidden = [value, base64.b64encode(value.encode()).decode()[:-4], value.encode().hex(), json.dumps(value)[1:-1]]
        for text in told:
            assert not any(form in text for form in hidden)

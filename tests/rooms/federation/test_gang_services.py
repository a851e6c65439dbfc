"""The Service of a gang exists before the gang runs, whatever the cluster answers on the way, and goes with it."""

import pytest

from clusters.drivers import (
    AlreadyExists,
    Ambiguous,
    AuthFailed,
    NotThere,
    Refused,
    ServiceSeen,
    Throttled,
    Unreachable,
)
from clusters.drivers.simulated import SimulatedDriver
from clusters.operations import record_contact
from federation import operations
from federation.models import Attempt, Job
from federation.operations.calls import MOST_TIMES_FORBIDDEN
from federation.operations.visits import MOST_TIMES_FAILED
from tests.builders import submit
from tests.live import call, every_visit, gpu_job, observe_until, place, simulated_cluster

pytestmark = pytest.mark.django_db(transaction=True)
FORBIDDEN = 'services is forbidden: User "switchyard" cannot create resource "services" in API group ""'


def service_of(cluster, attempt) -> ServiceSeen:
    return call(cluster, "get_service", attempt.namespace, attempt.remote_objects.get(position=0).name)


def gang(submitter, **fields):
    return place(submitter, count=2, gpus=1, seconds=600, **fields)


def runs(attempt):
    attempt.refresh_from_db()
    return attempt.state == "starting" and attempt.released_at is not None


def answering(monkeypatch, method, *answers, then=None):
    """The driver gives these answers one after the other (`done` does it first), and then does what it should."""
    real, left = getattr(SimulatedDriver, method), list(answers)

    async def answer(self, *arguments):
        told = left.pop(0) if left else then
        if told is None:
            return await real(self, *arguments)
        if isinstance(told, tuple):
            await real(self, *arguments)
            told = told[0]
        raise told

    monkeypatch.setattr(SimulatedDriver, method, answer)


def counted(monkeypatch):
    """The names of the calls to clusters from now on."""
    made = []

    def remember(method):
        real_one = getattr(SimulatedDriver, method)

        async def do(self, *arguments, **named):
            made.append(method)
            return await real_one(self, *arguments, **named)

        monkeypatch.setattr(SimulatedDriver, method, do)

    for method in ("create_job", "release_job", "create_service", "get_service", "put_network_policy"):
        remember(method)
    return made


def test_a_gang_has_its_service_before_it_is_released_and_no_longer_than_its_objects(cluster, submitter, monkeypatch):
    made = counted(monkeypatch)
    job, attempt = gang(submitter)
    operations.dispatch_attempts()
    assert made.index("create_job") < made.index("create_service") < made.index("release_job")
    seen, remote = service_of(cluster, attempt), attempt.remote_objects.get()
    assert (seen.name, seen.owners, seen.is_headless) == (remote.name, (remote.uid,), True)
    assert seen.selector == {"switchyard.dev/attempt": str(attempt.id)}
    operations.request_cancellation(submitter, job.id)
    observe_until(lambda: Attempt.objects.filter(settled_at__isnull=False).exists())
    with pytest.raises(NotThere):
        service_of(cluster, attempt)


def test_a_service_is_owned_by_all_objects_of_a_gang_of_several_pod_sets(cluster, submitter):
    spec = gpu_job(seconds=600, gpus=1)
    spec["pod_sets"] = [spec["pod_sets"][0], {**spec["pod_sets"][0], "name": "side", "count": 2}]
    job = submit(submitter, spec)
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    attempt = Attempt.objects.get(job=job)
    assert set(service_of(cluster, attempt).owners) == set(attempt.remote_objects.values_list("uid", flat=True))


def test_a_single_pod_and_a_queue_of_tasks_cost_no_further_request(cluster, submitter, monkeypatch):
    made = counted(monkeypatch)
    place(submitter)
    operations.dispatch_attempts()
    submit(submitter, gpu_job(gpus=1, count=2) | {"name": "tasks", "completions": 5})
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    assert [name for name in made if name != "put_network_policy"] == ["create_job", "release_job"] * 2


TRANSIENT = {
    "429": Throttled("wait", retry_after_seconds=0.1),
    "500": Ambiguous("500 Internal Server Error", status=500),
    "no answer": Ambiguous("no answer"),
    "no connection": Unreachable("refused"),
    "401": AuthFailed("expired", status=401),
    "404": NotThere('namespaces "x" not found', status=404),
    "403 once": Refused(FORBIDDEN, status=403),
}


@pytest.fixture
def roomy(home):
    """A cluster that many gangs fit on."""
    return simulated_cluster("east", 5)


def is_kept_back(attempt):
    attempt.refresh_from_db()
    return (attempt.state, attempt.released_at) == ("reserved", None)


@pytest.mark.parametrize("took_effect", [False, True], ids=["undone", "done"])
def test_after_an_answer_that_may_pass_the_gang_starts_with_its_service(roomy, submitter, monkeypatch, took_effect):
    for answer, error in TRANSIENT.items():
        with monkeypatch.context() as patch:
            answering(patch, "create_service", (error,) if took_effect else error)
            _, attempt = gang(submitter, name=answer.replace(" ", "-"))
            operations.dispatch_attempts()
            assert is_kept_back(attempt), f"{answer}: nothing runs without it"
            record_contact(roomy.id)
            every_visit(attempt, 2)
        assert runs(attempt), answer
        assert service_of(roomy, attempt).owners == (attempt.remote_objects.get().uid,)


def test_an_unclear_answer_to_whose_it_is_is_asked_for_again(roomy, submitter, monkeypatch):
    for answer, error in TRANSIENT.items():
        with monkeypatch.context() as patch:
            answering(patch, "create_service", (Ambiguous("no answer"),))
            answering(patch, "get_service", error)
            _, attempt = gang(submitter, name=answer.replace(" ", "-"))
            operations.dispatch_attempts()
            every_visit(attempt, 1)
            assert is_kept_back(attempt), answer
            record_contact(roomy.id)
            every_visit(attempt, 2)
        assert runs(attempt), answer


@pytest.mark.parametrize("status", [400, 422])
def test_a_service_that_is_refused_for_good_is_told_in_the_clusters_words(cluster, submitter, monkeypatch, status):
    answering(monkeypatch, "create_service", then=Refused("spec.ports: Required value", status=status))
    _, attempt = gang(submitter)
    operations.dispatch_attempts()
    attempt.refresh_from_db()
    assert (attempt.state, attempt.end_reason) == ("abandoned", "refused_by_cluster")
    assert attempt.end_message == "spec.ports: Required value"


def test_a_cluster_that_never_answers_for_a_service_is_given_up(cluster, submitter, monkeypatch):
    answering(monkeypatch, "create_service", then=Ambiguous("500 Internal Server Error", status=500))
    _, attempt = gang(submitter)
    every_visit(attempt, MOST_TIMES_FAILED + 1)
    attempt.refresh_from_db()
    assert (attempt.state, attempt.end_reason) == ("abandoned", "create_failed")


def foreign(cluster, attempt, *, uid="", **changes):
    """A Service that somebody else made with the name of the attempt's, in the namespace that exists already."""
    name = attempt.remote_objects.get().name
    owned = {"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}]} if uid else {}
    spec = {"type": "ClusterIP", "clusterIP": "None", "selector": {"switchyard.dev/attempt": str(attempt.id)}}
    metadata = {"name": name, "namespace": attempt.namespace, "labels": changes.pop("labels", {}), **owned}
    call(cluster, "ensure_namespace", attempt.namespace, {})
    call(cluster, "create_service", {"metadata": metadata, "spec": {**spec, **changes}})


def labels(job, attempt, install):
    """The labels of the attempt's Service."""
    ids = {
        "tenant": job.tenant_id,
        "job": job.id,
        "attempt": attempt.id,
        "spec-hash": attempt.spec_hash,
        "install": install,
    }
    return {f"switchyard.dev/{name}": str(value) for name, value in ids.items()}


def test_a_foreign_service_of_our_name_is_left_untouched_and_the_job_runs_under_another(roomy, submitter, settings):
    for how, changes in {
        "no labels": lambda ours: {},
        "another install": lambda ours: {"labels": ours | {"switchyard.dev/install": "another"}},
        "another selector": lambda ours: {"labels": ours, "selector": {"app": "theirs"}},
        "an address": lambda ours: {"labels": ours, "clusterIP": "10.0.0.1", "ports": [{"port": 1}]},
        "ways in": lambda ours: {"labels": ours, "externalIPs": ["192.0.2.1"]},
    }.items():
        job, attempt = gang(submitter, name=how.replace(" ", "-"))
        foreign(roomy, attempt, **changes(labels(job, attempt, settings.INSTALL_ID)))
        before = service_of(roomy, attempt)
        operations.dispatch_attempts()
        attempt.refresh_from_db()
        assert (attempt.state, attempt.end_reason) == ("abandoned", "name_taken"), how
        assert "the Service" in attempt.end_message
        operations.run_scheduling_cycle()
        operations.dispatch_attempts()
        assert runs(Attempt.objects.get(job=job, finished_at=None)), how
        assert service_of(roomy, attempt) == before, how


def test_a_service_of_objects_that_are_gone_is_waited_for_and_not_adopted(cluster, submitter, settings):
    job, attempt = gang(submitter)
    call(cluster, "ensure_namespace", attempt.namespace, {})
    old = call(cluster, "create_job", orphan(attempt))
    foreign(cluster, attempt, uid=old, labels=labels(job, attempt, settings.INSTALL_ID))
    operations.dispatch_attempts()
    attempt.refresh_from_db()
    assert attempt.state == "reserved"
    assert "not gone yet" in attempt.end_message
    call(cluster, "delete_job", attempt.namespace, "old", old)
    every_visit(attempt, 1)
    assert runs(attempt)
    assert service_of(cluster, attempt).owners == (attempt.remote_objects.get().uid,)


def orphan(attempt):
    """A Job of another name that owns something."""
    return {
        "metadata": {"name": "old", "namespace": attempt.namespace},
        "spec": {"suspend": True, "template": {"spec": {"containers": [{"name": "main", "image": "i"}]}}},
    }


def test_a_worker_that_died_after_the_service_was_made_is_succeeded_by_one_that_adopts_it(
    cluster, submitter, monkeypatch
):
    answering(monkeypatch, "create_service", (Ambiguous("the worker died"),))
    _, attempt = gang(submitter)
    operations.dispatch_attempts()
    before = service_of(cluster, attempt)
    every_visit(attempt, 1)
    assert runs(attempt)
    assert service_of(cluster, attempt) == before


def test_a_stop_requested_before_the_start_leaves_no_service(cluster, submitter, monkeypatch):
    answering(monkeypatch, "create_service", (Ambiguous("no answer"),))
    job, attempt = gang(submitter)
    operations.dispatch_attempts()
    operations.request_cancellation(submitter, job.id)
    observe_until(lambda: Job.objects.filter(id=job.id, state="cancelled").exists())
    observe_until(lambda: Attempt.objects.filter(settled_at__isnull=False).exists())
    with pytest.raises(NotThere):
        service_of(cluster, attempt)


def health_of(cluster):
    cluster.refresh_from_db()
    return {reason["code"]: reason["message"] for reason in cluster.reasons}


def test_a_cluster_without_the_right_says_so_and_runs_single_pods_until_it_has_it(cluster, submitter, monkeypatch):
    with monkeypatch.context() as patch:
        answering(patch, "create_service", then=Refused(FORBIDDEN, status=403))
        job, attempt = gang(submitter)
        every_visit(attempt, MOST_TIMES_FORBIDDEN + 1)
        attempt.refresh_from_db()
        assert (attempt.state, attempt.end_reason) == ("abandoned", "services_closed")
        for told in (attempt.end_message, health_of(cluster)["services_closed"]):
            assert "may not create services" in told
            assert "kubectl apply -f cluster-access.yaml" in told
        operations.run_scheduling_cycle()
        job.refresh_from_db()
        assert (job.state, job.explanation["clusters"][0]["code"]) == ("queued", "lately_failed")
        single = submit(submitter, gpu_job("single", seconds=600))
        operations.run_scheduling_cycle()
        operations.dispatch_attempts()
        assert runs(Attempt.objects.get(job=single))
        assert "services_closed" in health_of(cluster), "a single pod proves nothing of gangs"
    Attempt.objects.filter(id=attempt.id).update(end_reason="name_taken")
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    assert runs(Attempt.objects.get(job=job, finished_at=None))
    assert "services_closed" not in health_of(cluster)


def test_a_right_to_read_services_that_is_missing_is_told_by_its_name(cluster, submitter, monkeypatch):
    answering(monkeypatch, "create_service", then=AlreadyExists("exists", status=409))
    answering(monkeypatch, "get_service", then=Refused("services is forbidden", status=403))
    _, attempt = gang(submitter)
    every_visit(attempt, MOST_TIMES_FORBIDDEN + 1)
    attempt.refresh_from_db()
    assert attempt.end_reason == "services_closed"
    assert "may not get services there: services is forbidden." in attempt.end_message

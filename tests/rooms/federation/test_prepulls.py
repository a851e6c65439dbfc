"""Images that nodes should have: pulled by small pods of ours, a few at a time, never for ever, and nothing is left behind."""

from datetime import timedelta

import pytest
from django.db import connection

from clusters.drivers import Ambiguous, NotThere
from clusters.drivers.simulated import Node as SimulatedNode
from clusters.drivers.simulated import SimulatedDriver, path_of, secrets
from clusters.engine.secrets import Kind, pull_config
from clusters.models import Cluster, ClusterImage, Node
from clusters.operations import register_simulated
from clusters.operations.secrets import NewValue, delete_secret, put_secret
from clusters.queries import nodes_with
from federation import operations
from federation.engine.names import LABEL_PREPARATION, namespace_of
from federation.engine.objects import prepull_jobs
from federation.models import Attempt, Prepull, PrepullPolicy, ProvenImage
from federation.observer import feed
from federation.operations import prepulling, pull_calls
from federation.operations.prepull_policies import PolicyChanges, WantedPolicy
from federation.queries.prepulls import view_of
from foundation.caches import reset_all
from foundation.clock import now
from foundation.problems import NotFound
from tenancy.models import Tenant
from tenancy.queries import SYSTEM
from tests.builders import actor_for, bind, make_tenant, make_user
from tests.live import call, observe_until

pytestmark = pytest.mark.django_db(transaction=True)
IMAGE = "registry.example/train:1"
CANARY = "canary-91bd04"


@pytest.fixture
def admin(cluster):
    user = make_user()
    bind(user, "acme")
    return actor_for(user)


@pytest.fixture
def waiting(monkeypatch):
    """What the pods of pulls wait for, by image; simulated kubelets pull everything else."""
    reasons = {}
    render = prepull_jobs.render_pull

    def rendered(image, *arguments):
        manifest = render(image, *arguments)
        if image in reasons:
            notes = {"sim.switchyard.dev/waiting": reasons[image]}
            manifest["spec"]["template"]["metadata"]["annotations"] = notes
        return manifest

    monkeypatch.setattr(pull_calls, "render_pull", rendered)
    return reasons


def make(admin, cluster, *images, name="base", **fields):
    wanted = WantedPolicy(name=name, images=images or (IMAGE,), **fields)
    policy = operations.make_prepull_policy(admin, cluster.id, wanted)
    PrepullPolicy.objects.filter(id=policy.id).update(changed_at=now() - timedelta(minutes=5))
    return PrepullPolicy.objects.select_related("cluster", "tenant").get(id=policy.id)


def rounds(times=1):
    for _ in range(times):
        operations.keep_images()


def objects(cluster):
    return [job for job in call(cluster, "list_jobs") if LABEL_PREPARATION in job.labels]


def states(policy):
    return sorted(Prepull.objects.filter(policy=policy).values_list("node", "phase", "outcome"))


def overdue(**columns):
    """As if the pauses of failures were over."""
    long_ago = now() - timedelta(hours=2)
    Prepull.objects.exclude(ended_at=None).update(ended_at=long_ago, **columns)


def test_nodes_pull_the_image_one_first_then_the_others_and_no_object_is_left(admin, cluster):
    policy = make(admin, cluster)
    rounds()
    first, second = Node.objects.filter(cluster=cluster).order_by("name").values_list("name", flat=True)
    assert states(policy) == [(first, "idle", "pulled")]
    assert ProvenImage.objects.get().name == IMAGE
    rounds()
    assert states(policy) == [(first, "idle", "pulled"), (second, "idle", "pulled")]
    assert objects(cluster) == []
    before = Prepull.objects.values_list("id", "pulls", "pulled_at")
    rounds(3)
    assert list(Prepull.objects.values_list("id", "pulls", "pulled_at")) == list(before)
    assert not Attempt.objects.exists()


def test_the_objects_are_pinned_bounded_and_of_the_tenants_namespace(admin, cluster, monkeypatch):
    sent = []
    create = SimulatedDriver.create_job

    async def look(self, manifest):
        sent.append(manifest)
        return await create(self, manifest)

    monkeypatch.setattr(SimulatedDriver, "create_job", look)
    make_tenant("acme/research")
    make(admin, cluster, tenant="acme/research")
    rounds()
    (manifest,) = sent
    pod = manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert manifest["spec"]["suspend"] is True
    assert manifest["spec"]["activeDeadlineSeconds"] == 1800
    assert manifest["metadata"]["namespace"].startswith("swy-research-")
    assert container["resources"]["requests"] == {"cpu": "10m", "memory": "16Mi", "ephemeral-storage": "0"}
    assert container["command"] == ["/switchyard/nothing-to-run"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    node = Node.objects.filter(cluster=cluster).order_by("name").first().name
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]


def test_nodes_that_list_a_proven_image_are_left_alone(admin, cluster):
    policy = make(admin, cluster)
    ProvenImage.objects.create(organisation=Tenant.objects.get(path="acme"), name=IMAGE)
    names = sorted(Node.objects.filter(cluster=cluster).values_list("name", flat=True))
    row = {"cluster": cluster, "name": IMAGE, "size_mib": 5, "nodes": 2, "by_flavor": {"h100": 2}, "on_nodes": names}
    ClusterImage.objects.create(**row)
    rounds(2)
    assert not Prepull.objects.exists()
    assert view_of(policy).images[0].there == 2


def test_what_others_run_does_not_show_until_the_organisation_has_pulled_it(admin, cluster):
    policy = make(admin, cluster)
    names = sorted(Node.objects.filter(cluster=cluster).values_list("name", flat=True))
    row = {"cluster": cluster, "name": IMAGE, "size_mib": 5, "nodes": 2, "by_flavor": {"h100": 2}, "on_nodes": names}
    ClusterImage.objects.create(**row)
    assert view_of(policy).images[0].nodes == {"waiting": 2}
    rounds()
    assert view_of(policy).images[0].nodes == {"present": 2}


def test_a_failing_image_is_tried_few_times_then_waits_for_a_user(admin, cluster, waiting):
    waiting[IMAGE] = "InvalidImageName: could not parse"
    policy = make(admin, cluster)
    for _ in range(20):
        rounds(2)
        overdue()
    assert sum(Prepull.objects.values_list("failures", flat=True)) == 6
    assert objects(cluster) == []
    view = view_of(policy)
    assert view.is_stopped
    assert (view.images[0].brake.until, view.images[0].brake.message) == (None, "InvalidImageName: could not parse")
    waiting.clear()
    operations.retry_prepulls(admin, cluster.id, policy.id)
    rounds(2)
    assert {outcome for _, _, outcome in states(policy)} == {"pulled"}


def test_a_registrys_error_ends_the_pull_after_a_minute_and_another_image_goes_on(admin, cluster, waiting):
    waiting[IMAGE] = "ErrImagePull: not found"
    policy = make(admin, cluster, IMAGE, "registry.example/other:1")
    rounds()
    assert Prepull.objects.get(image=IMAGE).message == "ErrImagePull: not found"
    assert Prepull.objects.get(image=IMAGE).phase == "released"
    Prepull.objects.filter(image=IMAGE).update(released_at=now() - timedelta(minutes=2))
    rounds(2)
    assert Prepull.objects.get(image=IMAGE).outcome == "failed"
    assert Prepull.objects.filter(policy=policy, image="registry.example/other:1", outcome="pulled").count() == 2
    assert objects(cluster) == []


def test_no_cluster_has_more_pulls_than_slots_however_many_policies(admin, cluster, waiting):
    images = [f"registry.example/i{number}:1" for number in range(20)]
    waiting.update(dict.fromkeys(images, "ContainerCreating"))
    for number in range(3):
        make(admin, cluster, *images, name=f"p{number}", at_once=10)
    rounds(3)
    assert Prepull.objects.exclude(slot=None).count() == 10
    assert len(objects(cluster)) == 10


def test_a_removed_policy_stops_its_pulls_and_goes(admin, cluster, waiting):
    waiting[IMAGE] = "ContainerCreating"
    policy = make(admin, cluster)
    rounds()
    assert len(objects(cluster)) == 1
    operations.remove_prepull_policy(admin, cluster.id, policy.id)
    with pytest.raises(NotFound):
        operations.remove_prepull_policy(admin, cluster.id, policy.id)
    rounds()
    assert objects(cluster) == []
    assert not PrepullPolicy.objects.exists()


def test_a_paused_policy_stops_its_pulls_and_begins_none(admin, cluster, waiting):
    waiting[IMAGE] = "ContainerCreating"
    policy = make(admin, cluster)
    rounds()
    operations.change_prepull_policy(admin, cluster.id, policy.id, PolicyChanges(is_paused=True))
    rounds(2)
    assert objects(cluster) == []
    policy.refresh_from_db()
    assert view_of(policy).why_not == "The policy is paused."
    waiting.clear()
    operations.change_prepull_policy(admin, cluster.id, policy.id, PolicyChanges(is_paused=False))
    rounds(2)
    assert Prepull.objects.filter(outcome="pulled").count() == 1, "which nodes have it is read first"
    PrepullPolicy.objects.update(changed_at=now() - timedelta(minutes=5))
    rounds()
    assert Prepull.objects.filter(outcome="pulled").count() == 2


def test_pulls_of_images_that_are_named_no_more_are_stopped(admin, cluster, waiting):
    waiting[IMAGE] = "ContainerCreating"
    policy = make(admin, cluster)
    rounds()
    operations.change_prepull_policy(admin, cluster.id, policy.id, PolicyChanges(images=("registry.example/b:2",)))
    rounds(3)
    assert objects(cluster) == []
    assert set(Prepull.objects.filter(policy=policy, phase="idle").values_list("image", flat=True)) >= {
        "registry.example/b:2"
    }


def test_an_ambiguous_creation_is_adopted_and_never_made_twice(admin, cluster, monkeypatch):
    create, made = SimulatedDriver.create_job, []

    async def reply_is_lost(self, manifest):
        made.append(await create(self, manifest))
        if len(made) == 1:
            raise Ambiguous("cut")
        return made[-1]

    monkeypatch.setattr(SimulatedDriver, "create_job", reply_is_lost)
    policy = make(admin, cluster)
    rounds()
    assert [state for _, state, _ in states(policy)] == ["planned"]
    assert len(objects(cluster)) == 1
    rounds()
    assert ("pulled",) in Prepull.objects.values_list("outcome")
    assert len(made) <= 2
    rounds(2)
    assert objects(cluster) == []


def test_observers_store_which_nodes_list_the_images_and_nothing_is_reported_as_strange(admin, home, monkeypatch):
    monkeypatch.setattr(feed, "IMAGES_SECONDS", 0.1)
    capacity = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    has = [([IMAGE], 900 * 2**20)]
    nodes = [
        SimulatedNode(name=n, uid=n, labels={}, allocatable=capacity, images=has if n == "n1" else [])
        for n in ("n1", "n2")
    ]
    west = register_simulated(make_tenant("acme"), "west", nodes=nodes)
    reset_all()
    policy = make(admin, west)
    observe_until(lambda: nodes_with(west.id, [IMAGE]) == {IMAGE: frozenset({"n1"})}, lambda: None)
    observe_until(lambda: Prepull.objects.filter(outcome="pulled").exists(), rounds)
    reset_all()
    observe_until(lambda: view_of(policy).images[0].there == 2, rounds)
    assert Prepull.objects.get(node="n1").pulls == 1, "unproven, it was pulled there once"
    assert Cluster.objects.get(id=west.id).reasons == []


def test_a_pull_secret_reaches_the_cluster_by_one_pull_and_nothing_else(admin, cluster, home):
    kept = NewValue(Kind.REGISTRY, pull_config("registry.example", "ada", CANARY), "registry.example")
    tenant = Tenant.objects.get(path="acme")
    policy = make(admin, cluster, pull_secret="ghcr")
    rounds()
    assert not Prepull.objects.exists()
    assert view_of(policy).why_not == "acme has no secret ghcr for a registry."
    put_secret(SYSTEM, tenant.id, "ghcr", kept)
    rounds(2)
    assert Prepull.objects.filter(outcome="pulled").count() == 2
    space = namespace_of("acme", tenant.id)
    assert not secrets(path_of(home, cluster.server), space)
    for table in ("federation_prepull", "federation_prepullpolicy", "tenancy_auditentry"):
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT row_to_json(t)::text FROM {table} AS t")
            assert not any(CANARY in row for (row,) in cursor.fetchall())


def test_a_secret_deleted_between_creation_and_release_fails_in_words(admin, cluster, monkeypatch):
    kept = NewValue(Kind.REGISTRY, pull_config("registry.example", "ada", CANARY), "registry.example")
    tenant = Tenant.objects.get(path="acme")
    put_secret(SYSTEM, tenant.id, "ghcr", kept)
    make(admin, cluster, pull_secret="ghcr")
    record = prepulling.record

    def deleted_first(row, result):
        record(row, result)
        if row.phase == "planned":
            delete_secret(SYSTEM, tenant.id, "ghcr")

    monkeypatch.setattr(prepulling, "record", deleted_first)
    rounds()
    assert Prepull.objects.get().message == "Its secret was changed or deleted meanwhile."
    assert objects(cluster) == []


def test_without_policies_a_round_is_one_query(cluster, django_assert_num_queries):
    with django_assert_num_queries(1):
        assert operations.keep_images() == 0


def test_a_missing_namespace_is_made_again(admin, cluster, monkeypatch):
    create, asked = SimulatedDriver.create_job, []

    async def gone_once(self, manifest):
        asked.append(manifest)
        if len(asked) == 1:
            raise NotThere("namespace", status=404)
        return await create(self, manifest)

    monkeypatch.setattr(SimulatedDriver, "create_job", gone_once)
    policy = make(admin, cluster)
    rounds(3)
    assert {outcome for _, _, outcome in states(policy)} == {"pulled"}

import json

import pytest
from django.db import connection

from federation import operations
from federation.models import Attempt, Job, JobEvent
from federation.operations import submit_job, submit_jobs
from federation.queries import feasibility
from foundation.models import OutboxMessage
from foundation.problem_json import problem_body
from foundation.problems import Invalid, NotFound, PermissionDenied
from quotas.operations import put_limit
from tenancy.models import AuditEntry, IdempotencyRecord
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bind, make_cluster, make_flavor, make_node, make_spec, make_tenant, make_user
from tests.kept_statements import forget_statements

pytestmark = pytest.mark.django_db
TENANT = "acme/research"


def show(job):
    return {"id": str(job.id), "name": job.name}


@pytest.fixture
def actor():
    user = make_user()
    bind(user, "acme", "submitter")
    make_tenant(TENANT)
    return actor_for(user)


@pytest.fixture
def cluster():
    cluster = make_cluster("acme", "east")
    make_flavor(cluster, "h100")
    make_node(cluster)
    return cluster


def submit(actor, *, key="", tenant=TENANT, **changes):
    body = {"tenant": tenant, **make_spec(**changes)}
    return submit_job(actor, body, show=show, key=key, raw=json.dumps(body).encode())


def submit_many(actor, items, **more):
    return submit_jobs(actor, {"tenant": TENANT, "jobs": items}, show=show, tell=problem_body, **more)


def test_a_job_comes_with_its_event_its_audit_entry_and_a_wake_up(actor):
    answer = submit(actor, labels={"experiment": "42"}, priority_class="high")
    job = Job.objects.get()
    assert (answer.status, answer.body, answer.replayed) == (201, {"id": str(job.id), "name": "train"}, False)
    assert (job.state, job.reason_code, job.priority, job.labels) == ("queued", "new", 100, {"experiment": "42"})
    assert (job.created_by_id, job.tenant.path, job.attempts_made) == (actor.user_id, TENANT, 0)
    assert list(JobEvent.objects.values_list("job_id", "kind", "at")) == [(job.id, "submitted", job.created_at)]
    [entry] = AuditEntry.objects.filter(action="job.submit")
    assert (entry.object_id, entry.tenant_id, entry.actor_id) == (str(job.id), job.tenant_id, actor.user_id)
    assert list(OutboxMessage.objects.values_list("topic", flat=True)) == ["cycle"]


def test_a_submit_costs_few_queries(actor, django_assert_max_num_queries):
    submit(actor)
    with django_assert_max_num_queries(7):
        submit(actor)


def test_the_same_key_and_body_get_the_first_answer_again(actor):
    first, again = submit(actor, key="k"), submit(actor, key="k")
    assert (again.status, again.body, again.replayed) == (201, first.body, True)
    assert Job.objects.count() == 1


def test_the_same_key_with_another_body_is_refused(actor):
    submit(actor, key="k")
    with pytest.raises(Invalid) as caught:
        submit(actor, key="k", name="other")
    assert caught.value.code == "idempotency_key_reused"
    assert Job.objects.count() == 1


def test_a_refused_body_leaves_its_key_free(actor, cluster):
    with pytest.raises(feasibility.NeverFits):
        submit(actor, key="k", pod={"gpu": {"count": 9}})
    assert IdempotencyRecord.objects.count() == 0
    assert submit(actor, key="k").status == 201


def test_foreign_tenants_look_absent_and_seen_ones_need_the_right_role(actor):
    make_tenant("other/team")
    for tenant in ("other/team", "no/such"):
        with pytest.raises(NotFound):
            submit(actor, tenant=tenant)
    viewer = make_user()
    bind(viewer, "acme", "viewer")
    with pytest.raises(PermissionDenied):
        submit(actor_for(viewer))
    with pytest.raises(PermissionDenied):
        submit(SYSTEM)
    assert Job.objects.count() == 0


def test_without_any_cluster_a_job_just_queues(actor):
    assert submit(actor, pod={"gpu": {"count": 64}}).status == 201


def test_what_no_cluster_could_ever_run_is_refused_with_the_reason_on_each(actor, cluster):
    make_cluster("acme", "west", inventory_version=1)
    make_cluster("other", "theirs")
    with pytest.raises(feasibility.NeverFits) as caught:
        submit(actor, pod={"gpu": {"count": 16}})
    assert caught.value.status == 422
    assert sorted(error.field for error in caught.value.errors) == ["clusters.east", "clusters.west"]
    assert Job.objects.count() == 0


def test_a_short_model_name_is_accepted_and_placed(actor, cluster):
    assert submit(actor, pod={"gpu": {"count": 8, "models": ["H100"]}}).status == 201
    operations.run_scheduling_cycle()
    assert Attempt.objects.get().remote_objects.get().gpu_units == 8


def test_an_unknown_model_is_answered_with_the_nearest_that_the_tenant_may_use(actor, cluster):
    make_flavor(make_cluster("other", "theirs", inventory_version=1), gpu_model="H1O0-80GB")
    with pytest.raises(feasibility.NeverFits) as caught:
        submit(actor, pod={"gpu": {"count": 1, "models": ["H1O0"]}})
    (unknown,) = [error for error in caught.value.errors if error.code == "unknown_model"]
    assert unknown.field == "pod_sets[0].gpu.models[0]"
    assert unknown.detail == "No cluster has H1O0. Did you mean H100-80GB?"
    assert unknown.detail in caught.value.detail


def test_of_a_cluster_that_was_not_looked_at_yet_nobody_can_tell(actor, cluster):
    make_cluster("acme", "west")
    assert submit(actor, pod={"gpu": {"count": 16}}).status == 201


def test_what_fits_an_empty_cluster_is_queued_however_busy_it_is(actor, cluster):
    cluster.nodes.update(foreign_cpu_millicores=64_000, foreign_devices={"nvidia.com/gpu": 8})
    assert submit(actor, pod={"gpu": {"count": 8}}).status == 201


def test_a_new_node_turns_never_into_queued_at_once(actor, cluster):
    with pytest.raises(feasibility.NeverFits):
        submit(actor, pod={"gpu": {"count": 16}})
    make_node(cluster, devices=[{"flavor": "h100", "units": 16}])
    assert submit(actor, pod={"gpu": {"count": 16}}).status == 201


def test_a_foreign_cluster_and_none_look_the_same(actor, cluster):
    make_cluster("other", "theirs")
    answers = []
    for name in ("theirs", "nowhere"):
        with pytest.raises(NotFound) as caught:
            submit(actor, constraints={"clusters": [name]})
        answers.append((str(caught.value), caught.value.code, caught.value.errors))
    assert answers[0] == answers[1]
    assert submit(actor, constraints={"clusters": ["east"]}).status == 201


def test_more_than_any_limit_on_the_path_would_ever_allow_is_refused(actor, cluster):
    put_limit(SYSTEM, "acme", "gpu", nominal=4000)
    assert submit(actor, pod={"gpu": {"count": 4}}).status == 201
    with pytest.raises(feasibility.QuotaExceededForGood) as caught:
        submit(actor, pod={"gpu": {"count": 5}})
    assert caught.value.code == "quota_exceeded_for_good"
    assert [error.field for error in caught.value.errors] == ["quota.acme.gpu"]


def test_a_limit_on_one_cluster_leaves_the_others_open(actor, cluster):
    west = make_cluster("acme", "west")
    make_flavor(west, "h100")
    make_node(west)
    put_limit(SYSTEM, "acme", "gpu", clusters=["east"], nominal=0)
    assert submit(actor, pod={"gpu": {"count": 8}}).status == 201
    with pytest.raises(feasibility.QuotaExceededForGood):
        submit(actor, pod={"gpu": {"count": 8}}, constraints={"clusters": ["east"]})


def test_each_item_of_a_bulk_is_judged_by_itself(actor, cluster):
    items = [
        make_spec(name="good"),
        make_spec(name="BAD"),
        make_spec(name="huge", pod={"gpu": {"count": 64}}),
        {**make_spec(name="elsewhere"), "tenant": "no/such"},
        7,
        make_spec(name="also-good"),
    ]
    answer = submit_many(actor, items)
    assert answer.status == 200
    assert [(item["index"], item["status"]) for item in answer.body["items"]] == [
        (0, 201), (1, 422), (2, 422), (3, 404), (4, 422), (5, 201)
    ]  # fmt: skip
    problems = [item["problem"]["code"] for item in answer.body["items"] if "problem" in item]
    assert problems == ["validation_failed", "never_fits", "not_found", "validation_failed"]
    assert sorted(Job.objects.values_list("name", flat=True)) == ["also-good", "good"]
    assert JobEvent.objects.count() == 2
    assert OutboxMessage.objects.count() == 1
    [entry] = AuditEntry.objects.filter(action="job.submit_many")
    assert sorted(entry.detail["jobs"]) == sorted(str(job.id) for job in Job.objects.all())


def test_a_bulk_job_is_the_same_row_as_a_single_one(actor):
    submit(actor, labels={"a": "b"})
    submit_many(actor, [make_spec(labels={"a": "b"})])
    one, other = map(dict, Job.objects.order_by("id").values())
    differing = {name for name in one if one[name] != other[name]}
    assert differing == {"id", "created_at", "reason_at"}


def test_item_keys_are_honoured_within_and_across_bulks(actor):
    items = [
        {**make_spec(name="a"), "idempotency_key": "k1"},
        {**make_spec(name="a"), "idempotency_key": "k1"},
        {**make_spec(name="b"), "idempotency_key": "k1"},
        {**make_spec(name="c"), "idempotency_key": ""},
    ]
    first = submit_many(actor, items).body["items"]
    assert [item["status"] for item in first] == [201, 201, 422, 422]
    assert first[1] == {"index": 1, "status": 201, "job": first[0]["job"], "replayed": True}
    assert first[2]["problem"]["code"] == "idempotency_key_reused"
    again = submit_many(actor, items[:1]).body["items"]
    assert again == [{"index": 0, "status": 201, "job": first[0]["job"], "replayed": True}]
    assert Job.objects.count() == 1


def test_an_item_key_never_makes_a_second_job_of_a_single_submit(actor):
    submit(actor, key="k")
    [item] = submit_many(actor, [{**make_spec(), "idempotency_key": "k"}]).body["items"]
    assert item["problem"]["code"] == "idempotency_key_reused"
    assert Job.objects.count() == 1


def test_a_bulk_as_a_whole_is_answered_once_per_key(actor):
    first = submit_many(actor, [make_spec()], key="k", raw=b"body")
    again = submit_many(actor, [make_spec()], key="k", raw=b"body")
    assert (again.body, again.replayed) == (first.body, True)
    assert Job.objects.count() == 1


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ([], "", "wrong_type"),
        ({}, "jobs", "required"),
        ({"jobs": []}, "jobs", "required"),
        ({"jobs": {}}, "jobs", "wrong_type"),
        ({"jobs": [1] * 10_001}, "jobs", "too_many"),
        ({"jobs": [1], "x": 1}, "x", "unknown_field"),
    ],
)
def test_the_list_itself_is_checked(actor, body, field, code):
    with pytest.raises(Invalid) as caught:
        submit_jobs(actor, body, show=show, tell=problem_body)
    assert [(error.field, error.code) for error in caught.value.errors] == [(field, code)]


def test_ten_thousand_jobs_are_stored_in_a_handful_of_statements(actor, django_assert_max_num_queries):
    items = [make_spec(name=f"job-{n}") for n in range(10_000)]
    with django_assert_max_num_queries(40):
        answer = submit_many(actor, items)
    assert {item["status"] for item in answer.body["items"]} == {201}
    assert (Job.objects.count(), JobEvent.objects.count()) == (10_000, 10_000)
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


def test_the_statements_of_a_submission_are_not_planned_again_each_time(actor):
    forget_statements()
    for number in range(20):
        submit(actor, name=f"train-{number}")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT generic_plans, custom_plans, statement FROM pg_prepared_statements WHERE custom_plans > 4"
        )
        plans = cursor.fetchall()
    assert len(plans) >= 3
    assert [statement for reused, planned, statement in plans if not reused and planned > 6] == []

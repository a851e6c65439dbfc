"""Staging plans: who may make which, what becomes of hostile ones, and what the database refuses."""

import pytest
from django.db import IntegrityError, connection, transaction

from clusters.models import StagingPlan, Storage
from clusters.operations.staging import Spot, WantedPlan, make_staging_plan, remove_staging_plan
from federation import operations
from federation.engine.staging import Progress, progress_in
from foundation.problems import Conflict, Invalid
from tenancy.models import Tenant
from tenancy.queries import SYSTEM
from tests.builders import actor_for, bind, make_tenant, make_user
from tests.staged import (
    IMAGE,
    SUM,
    TENANT,
    copying,
    cycle,
    make_plan,
    plan,
    rounds,
    staged_job,
    storages,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("storages")]
assert copying  # fixtures
assert plan
assert storages


def test_the_object_has_our_image_our_program_and_nothing_of_users(cluster, submitter, copying):
    hostile = "a$(id)b"
    with pytest.raises(Invalid):
        make_plan(cluster, source=Spot("archive", hostile))
    make_plan(cluster, name="x--rm.rf", source=Spot("archive", "--help/,~@=+"), target=Spot("fast", "-rf"), sha256=SUM)
    staged_job(submitter, "x--rm.rf")
    cycle()
    rounds()
    (manifest,) = copying.sent
    pod = manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == IMAGE
    assert container["args"] == ["--from", "/switchyard/from", "--to", "/switchyard/to", "--sha256", SUM]
    assert "rm.rf" not in str(container["command"])
    assert {
        mount["mountPath"]: (mount["subPath"], mount.get("readOnly", False)) for mount in container["volumeMounts"]
    } == {
        "/switchyard/from": ("--help/,~@=+", True),
        "/switchyard/to": ("-rf", False),
    }
    claims = [volume["persistentVolumeClaim"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
    assert claims == [{"claimName": "archive", "readOnly": True}, {"claimName": "fast"}]
    assert not any("gpu" in key for key in container["resources"]["limits"])
    assert manifest["metadata"]["labels"]["switchyard.dev/preparation"] == "stage-in"


@pytest.mark.parametrize("path", ["../up", "/abs", "a//b", "a/../b", ".", "a b", "a;b", "a\nb", "%00", "x" * 600, ""])
def test_hostile_paths_are_refused(cluster, path):
    with pytest.raises(Invalid):
        make_plan(cluster, target=Spot("fast", path))


def test_a_plan_that_would_copy_itself_or_write_where_it_may_not_is_refused(cluster):
    for source, target in (
        (Spot("fast", "a"), Spot("fast", "a/b")),
        (Spot("fast", "a/b"), Spot("fast", "a")),
        (Spot("fast", "a"), Spot("fast", "a")),
        (Spot("fast", "a"), Spot("archive", "b")),
        (Spot("nowhere", "a"), Spot("fast", "b")),
    ):
        with pytest.raises(Invalid):
            make_plan(
                cluster,
                name=f"d{StagingPlan.objects.count()}{abs(hash((source, target)))}",
                source=source,
                target=target,
            )
    assert not StagingPlan.objects.exists()


def test_another_tenants_storage_looks_absent(cluster):
    make_tenant("acme/other")
    Storage.objects.filter(name="archive").update(tenant=Tenant.objects.get(path="acme/other"))
    with pytest.raises(Invalid) as refused:
        make_plan(cluster)
    assert [error.field for error in refused.value.errors] == ["source.storage"]


def test_only_managers_of_its_tenant_change_plans(plan, cluster):
    user = make_user()
    bind(user, TENANT, "submitter")
    actor = actor_for(user)
    for work in (operations.start_stage_in, operations.cancel_stage_in, remove_staging_plan):
        with pytest.raises(Exception, match=r"role|allowed|permission"):
            work(actor, plan.dataset_id, plan.id)
    assert StagingPlan.objects.count() == 1


def test_a_second_plan_of_a_dataset_on_a_cluster_is_refused(plan):
    wanted = WantedPlan("east", Spot("archive", "x"), Spot("fast", "y"))
    with pytest.raises(Conflict) as refused:
        make_staging_plan(SYSTEM, plan.dataset_id, wanted)
    assert refused.value.code == "staging_plan_exists"


def test_a_log_is_read_strictly():
    assert progress_in("switchyard-stage 5 10\n") == Progress(5, 10, "", "switchyard-stage 5 10")
    assert progress_in(f"x\nswitchyard-staged 7 {SUM}\n").sha256 == SUM
    assert progress_in(f"see switchyard-staged 7 {SUM}").sha256 == ""
    assert progress_in("switchyard-stage -1 5\nswitchyard-stage 9999999999999999999 5").total is None
    assert progress_in("a\x00b\x1b[31m\n").last_line == "a b [31m"
    assert progress_in("") == Progress()


def attack(statement):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


ATTACKS = {
    "INSERT INTO federation_stagein (plan_id, cluster_id, is_wanted, phase, namespace, uid, outcome, message, failures, image,"
    " mounts) SELECT plan_id, cluster_id, true, 'idle', '', '', '', '', 0, '', '[]' FROM federation_stagein": "plan_id",
    "UPDATE federation_stagein SET phase = 'planned', slot = 0": "live_stage_in_has_a_slot_and_an_object",
    "UPDATE federation_stagein SET slot = 4, phase = 'planned', object_id = gen_random_uuid(), begun_at = now()": "stage_in_slot_exists",
    "UPDATE federation_stagein SET slot = 1, phase = 'created', object_id = gen_random_uuid(), begun_at = now()": "created_stage_in_has_a_uid",
    "UPDATE federation_stagein SET outcome = 'staged', ended_at = now(), failures = 1": "staged_stage_in_is_done",
    "UPDATE federation_stagein SET outcome = 'pulled', ended_at = now()": "stage_in_outcome_is_known",
    "UPDATE federation_stagein SET outcome = 'failed'": "ended_stage_in_has_its_time",
    "UPDATE federation_stagein SET copied_bytes = -1": "stage_in_copies_no_negative_amount",
    'UPDATE federation_stagein SET store = \'{"bucket": "b"}\'': "stage_in_from_a_store_has_a_key",
    'UPDATE federation_stagein SET secrets = \'{"object": "s"}\'': "stage_in_from_a_store_has_a_key",
    "UPDATE federation_stagein SET cluster_id = gen_random_uuid()": "stage_in_is_on_the_cluster_of_its_plan|cluster_id",
    "INSERT INTO federation_datawait (id, job_id, cluster_id, plans, until_at, outcome)"
    " SELECT gen_random_uuid(), job_id, cluster_id, plans, until_at, '' FROM federation_datawait": "a_job_waits_for_data_once",
    "UPDATE federation_datawait SET ended_at = now()": "ended_data_wait_has_an_outcome",
    "UPDATE federation_datawait SET ended_at = now(), outcome = 'forever'": "data_wait_outcome_is_known",
    "UPDATE federation_datawait SET plans = '{}'": "data_wait_names_plans",
    "UPDATE clusters_stagingplan SET target_path = 'a/../../b'": "staged_target_is_a_plain_path",
    "UPDATE clusters_stagingplan SET source_path = '$(id)'": "staged_source_is_a_plain_path",
    "UPDATE clusters_stagingplan SET sha256 = 'x; rm'": "staged_sha256_is_a_digest",
    "UPDATE clusters_stagingplan SET created_by = ''": "staging_plan_was_made_by_someone",
    "INSERT INTO clusters_stagingplan (id, dataset_id, cluster_id, source_id, source_path, target_id, target_path, sha256, created_by)"
    " SELECT gen_random_uuid(), dataset_id, cluster_id, source_id, source_path, target_id, target_path, '', 'x'"
    " FROM clusters_stagingplan": "a_dataset_comes_to_a_cluster_one_way",
    "UPDATE clusters_stagingplan SET source_id = gen_random_uuid()": "source_id|staged_source_is_on_the_cluster",
}


@pytest.mark.parametrize("statement", ATTACKS)
def test_attack_the_database_refuses_what_no_operation_writes(plan, submitter, statement):
    staged_job(submitter)
    cycle()
    known = ATTACKS[statement]
    with pytest.raises(IntegrityError, match=known):
        attack(statement)


def test_attack_a_replica_is_what_its_plan_says(plan, submitter, copying):
    staged_job(submitter)
    cycle()
    rounds(4)
    archive = Storage.objects.get(name="archive").id
    for statement, known in (
        (f"UPDATE clusters_datasetreplica SET storage_id = '{archive}'", "replica_is_what_its_plan_says"),
        ("UPDATE clusters_datasetreplica SET size_bytes = 0", "replica_size_is_within_bounds"),
        ("UPDATE clusters_datasetreplica SET egress_cost = 1, egress_currency = ''", "replica_egress_has_a_currency"),
        ("UPDATE clusters_datasetreplica SET path = '..'", "replica_path_is_plain"),
        ("UPDATE clusters_datasetreplica SET sha256 = 'A'", "replica_sha256_is_a_digest"),
    ):
        with pytest.raises(IntegrityError, match=known):
            attack(statement)

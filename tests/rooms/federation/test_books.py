"""The proof of the books: across all rooms, over any row, told to those who look after the installation."""

from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from billing.models import Meter, NegativeNodeHour
from federation.models import Attempt, BookProof, Job
from federation.operations import prove_books, settle_attempts
from foundation.clock import now
from tests.builders import make_user
from tests.rooms.federation.forging import attempt_with_hold, forge, write
from tests.rooms.federation.test_hostile_reports import end, pod_of, report
from tests.rooms.federation.test_metrics import samples

pytestmark = pytest.mark.django_db


def test_a_row_that_breaks_one_question_does_not_keep_the_others_from_being_asked(books, monkeypatch):
    monkeypatch.setattr("federation.queries.proof.PROOFS", (("one {0}", "SELECT 1 / 0"), ("the other {0}", "SELECT 7")))
    told = prove_books().told
    assert "division by zero" in told[0]
    assert told[1] == "the other 7"


def test_what_is_wrong_is_told_every_night_until_it_is_right(books):
    forge("UPDATE federation_attempt SET finished_at = '1970-01-01' WHERE settled_at IS NOT NULL")
    Attempt.objects.filter(settled_at__isnull=False).update(settled_at=now() - timedelta(minutes=1))
    assert [prove_books().found for _ in range(3)] == [1, 1, 1]
    forge(f"UPDATE federation_attempt SET finished_at = '{now().isoformat()}' WHERE settled_at IS NOT NULL")
    assert prove_books().found == 0


def test_a_night_looks_at_what_changed_and_a_full_proof_at_everything(books):
    forge(
        "UPDATE federation_attempt SET finished_at = '1970-01-01', settled_at = now() - interval '9 days' WHERE settled_at IS NOT NULL"
    )
    assert prove_books().found == 0
    assert prove_books(full=True).found == 1


def test_old_proofs_go_and_the_last_good_one_stays(books, monkeypatch):
    monkeypatch.setattr("federation.operations.proving.MOST_KEPT", 3)
    good = BookProof.objects.latest("id").id
    forge("DELETE FROM quotas_hold")
    for _ in range(6):
        prove_books()
    assert BookProof.objects.count() <= 5
    assert BookProof.objects.filter(id=good).exists()


def test_what_is_wrong_is_in_the_figures_on_the_page_of_operators_and_in_the_commands_words(books, client, capsys):
    forge("DELETE FROM quotas_hold")
    with pytest.raises(CommandError):
        call_command("prove_ledger")
    assert "has no pending hold" in capsys.readouterr().err
    found = samples(client)
    assert found["switchyard_book_findings"] >= 1
    assert found["switchyard_books_proven_age_seconds"] < 60
    assert found["switchyard_attempts_in_trouble"] == 0
    for is_superuser in (True, False):
        user = make_user()
        type(user).objects.filter(id=user.id).update(is_superuser=is_superuser)
        client.force_login(type(user).objects.get(id=user.id))
        assert ("The ledger check found" in client.get("/").content.decode()) is is_superuser


def test_hours_in_which_jobs_paid_too_much_for_a_node_are_a_figure_and_no_finding(books, client):
    cluster, meter = books["done"].cluster, Meter.objects.get(run_id=books["done"].id)
    assert meter.node == "node-1"
    NegativeNodeHour.objects.create(
        organisation=cluster.owner, cluster=cluster, node=meter.node, hour=datetime(2026, 10, 5, tzinfo=UTC), currency="USD",
        cost=1, charged=2, cause="overlap",
    )  # fmt: skip
    assert samples(client)["switchyard_negative_node_hours"] == 1
    assert prove_books(full=True).found == 0
    assert samples(client)["switchyard_negative_node_hours"] == 0


def test_a_settlement_in_the_middle_of_the_proof_is_no_finding(books):
    attempt = attempt_with_hold()
    report(attempt.cluster, pod_of(attempt, finished_at=now(), phase="Failed", exit_code=1))
    assert prove_books(full=True).found == 0
    end(attempt)
    assert settle_attempts() == 0
    assert prove_books(full=True).found == 0
    assert Job.objects.filter(state="running").count() == 1


FORGERIES = {
    "UPDATE quotas_hold SET state = 'posted', ended_at = clock_timestamp() WHERE holder_id = '{running}'": "has no pending hold",
    "DELETE FROM quotas_hold WHERE holder_id = '{running}'": "has no pending hold",
    "UPDATE quotas_hold SET state = 'pending', ended_at = NULL WHERE holder_id = '{done}'": "belongs to no attempt that is live",
    "UPDATE quotas_hold SET state = 'voided' WHERE holder_id = '{done}'": "its hold is voided and it has 1 meters",
    "UPDATE federation_job SET state = 'failed', finished_at = now() WHERE state = 'running'": "although its job is failed",
    "UPDATE federation_job SET state = 'running', finished_at = NULL WHERE state <> 'running'": "although it has no live attempt",
    "DELETE FROM billing_meter": "ran and has no closed meter",
    "UPDATE billing_meter SET is_closed = false": "ran and has no closed meter",
    "UPDATE federation_podrun SET finished_at = finished_at + interval '1 hour' WHERE finished_at IS NOT NULL": (
        "which its meters do not cover"
    ),
    "UPDATE billing_meter SET certain_until = metered_from; UPDATE federation_podrun SET finished_at = started_at + interval '1 s'"
    " WHERE finished_at IS NOT NULL": "still assumed to have run longer",
    "DELETE FROM federation_podrun WHERE attempt_id = '{done}'": "which has no such pod",
    "UPDATE federation_attempt SET finished_at = '1970-01-01' WHERE id = '{done}'": "and ended at 1970-01-01",
    "UPDATE federation_attempt SET settled_at = NULL WHERE id = '{done}'": "its hold was posted before its usage was settled",
    "INSERT INTO quotas_hold (holder_id, tenant_id, cluster_name, amounts, state) SELECT gen_random_uuid(), tenant_id, 'n', '{{}}',"
    " 'pending' FROM quotas_hold LIMIT 1": "belongs to no attempt that is live",
    "INSERT INTO billing_meter (cluster_id, source_uid, tenant_id, user_id, user_name, workload_id, workload_name, run_id, flavor,"
    " capacity_type, unit, gpu_units, cpu_millicores, metered_from, metered_until, is_closed) SELECT cluster_id, source_uid || '~1',"
    " tenant_id, user_id, '', workload_id, '', run_id, flavor, capacity_type, unit, gpu_units, cpu_millicores, metered_from,"
    " metered_until, true FROM billing_meter": "is metered twice",
}


# Last: the tables have no triggers from here on.
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize(("forgery", "said"), FORGERIES.items())
def test_the_proof_finds_what_does_not_agree(unguarded, forgery, said, full):
    write(forgery.format(**{name: attempt.id for name, attempt in unguarded.items()}))
    assert said in "\n".join(prove_books(full=full).told)

"""What an operator sees when a cluster is gone, and while a restored installation stands still."""

import pytest

from clusters.models import Cluster
from federation.models import Attempt, ComparedCluster, Standstill
from federation.operations.restoration import begin_standstill
from foundation.clock import now
from tenancy.models import AuditEntry, User
from tenancy.queries import SYSTEM
from tests.browser.reading import fits
from tests.rooms.federation.test_hostile_reports import make_attempt

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def silent(admin):
    """A run on a cluster that has long fallen silent."""
    cluster = Cluster.objects.get(name="north")
    attempt = make_attempt(cluster=cluster)
    Attempt.objects.filter(id=attempt.id).update(state="unknown", state_before_unknown="running", released_at=now())
    Cluster.objects.filter(id=cluster.id).update(health="unreachable", silent_since=now())
    return cluster


def test_an_administrator_answers_for_a_destroyed_cluster_and_says_how_they_know(window, admin, silent):
    w = window().sign_in(admin)
    w.open(f"/clusters/{silent.id}/")
    w.page.get_by_role("link", name="Runs", exact=True).click()
    w.page.get_by_text("Cluster is destroyed").click()
    w.page.get_by_label("How do you know?").first.fill("ticket 4711")
    w.page.get_by_role("button", name="Attest").first.click()
    w.page.get_by_text("No runs.").wait_for()
    assert Attempt.objects.get().state == "lost"
    assert AuditEntry.objects.get(action="cluster.attest_destroyed").detail["note"] == "ticket 4711"


def test_the_page_of_runs_fits_and_every_page_says_that_the_installation_stands_still(window, admin, silent):
    begin_standstill(SYSTEM, "restored to 14:00")
    w = window().sign_in(admin)
    for path in (f"/clusters/{silent.id}/runs/", "/"):
        w.open(path)
        w.page.get_by_text("restored to 14:00").wait_for()
        fits(w)


def compare(cluster):
    """The cluster was compared meanwhile, and runs three objects that nothing knows."""
    ComparedCluster.objects.create(standstill=Standstill.objects.get(), cluster=cluster, compared_at=now(), strangers=3)


def test_an_operator_sees_what_is_left_and_resumes_dispatch_with_a_reason(window, admin, silent):
    begin_standstill(SYSTEM, "restored to 14:00")
    User.objects.filter(id=admin.id).update(is_staff=True)
    w = window().sign_in(admin)
    w.open("/")
    w.page.get_by_role("link", name="See what is left").click()
    w.page.get_by_role("cell", name="north").first.wait_for()
    fits(w, w.page.get_by_text("Resume dispatch"))
    w.page.get_by_text("Resume dispatch").click()
    w.page.get_by_label("why does it not matter?").fill("ticket 4711")
    with w.page.expect_response("**/standstill/"):  # a poll takes nothing that the operator types
        compare(silent)
    w.page.get_by_text("3 objects of no known attempt").wait_for()
    fits(w, w.page.get_by_role("button", name="Resume", exact=True))
    w.page.get_by_role("button", name="Resume", exact=True).click()
    w.page.get_by_text("Dispatch is open").wait_for()
    assert "ticket 4711" in Standstill.objects.get().ended_by

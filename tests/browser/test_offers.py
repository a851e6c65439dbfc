"""Offers on the submit form, live and without script, and the page that counts what fits."""

import pytest
from playwright.sync_api import expect

from federation.models import Job
from tests.browser.test_jobs import fill
from tests.builders import make_cluster, make_flavor, make_node

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("quotes_look_anew"),
]


@pytest.fixture
def south(admin):
    """A second cluster, with A100s and without a price."""
    cluster = make_cluster("acme", "south", region="<b>south</b>")
    make_flavor(cluster, "a100", gpu_model="A100-80GB")
    make_node(cluster, devices=[{"flavor": "a100", "units": 4}])
    return cluster


def test_offers_follow_what_is_typed(window, admin, south):
    w = window().sign_in(admin)
    w.open("/jobs/new/")
    offers, status = w.page.locator("#offers"), w.page.locator("#offers [role=status]")
    status.filter(has_text="there is room on 2 clusters").wait_for()
    expect(offers.get_by_text("<b>south</b>")).to_be_visible()
    expect(w.page.get_by_role("button", name="Show offers")).to_be_hidden()
    fill(w, **{"Number per pod": "8"})
    status.filter(has_text="It would start now on north; there is room on one cluster.").wait_for()
    offers.get_by_text("Why not elsewhere (1)").click()
    expect(offers.get_by_text("needs 8 GPUs on one node")).to_be_visible()
    w.page.get_by_label("Number per pod").fill("many")
    status.filter(has_text="the form is not complete").wait_for()
    expect(offers.get_by_text("must be a whole number")).to_be_visible()
    w.page.get_by_label("Number per pod").fill("64")
    status.filter(has_text="No cluster can run this job, even when empty").wait_for()
    assert not Job.objects.exists()


def test_offers_can_be_asked_for_without_script(window, admin, south):
    w = window(java_script_enabled=False).sign_in(admin)
    w.open("/jobs/new/")
    w.page.get_by_label("Number per pod").fill("8")
    w.page.get_by_role("button", name="Show offers").click()
    expect(w.page.locator("#offers")).to_contain_text("It would start now on north")
    expect(w.page.get_by_label("Number per pod")).to_have_value("8")
    assert not Job.objects.exists()
    fill(w, **{"GPU models": "H100-80GB"})
    w.page.get_by_role("button", name="Submit the job").click()
    w.page.get_by_role("status").filter(has_text="is queued").wait_for()
    assert Job.objects.get().name == "train-resnet"


def test_enter_in_the_form_submits_and_does_not_merely_ask(window, admin):
    for script in (True, False):
        w = window(java_script_enabled=script).sign_in(admin)
        w.open("/jobs/new/")
        fill(w, Name=f"train-{script}".lower())
        w.page.get_by_label("Name").first.press("Enter")
        w.page.get_by_role("status").filter(has_text="is queued").wait_for()
    assert Job.objects.count() == 2


def test_the_json_way_has_offers_too(window, admin):
    w = window().sign_in(admin)
    w.open("/jobs/new/?by=json")
    w.page.locator("#offers [role=status]").filter(has_text="It would").wait_for()
    w.page.get_by_label("Job spec").fill("{")
    w.page.locator("#offers").get_by_text("This is not valid JSON").wait_for()


def test_what_fits_is_counted_as_it_is_picked(window, admin, south):
    w = window().sign_in(admin)
    w.open("/clusters/")
    w.page.get_by_role("link", name="What fits now").click()
    status = w.page.locator("#capacity [role=status]")
    status.filter(has_text="There is room for 12 more").wait_for()
    w.page.get_by_label("GPU models").fill("A100-80GB")
    status.filter(has_text="There is room for 4 more").wait_for()
    expect(w.page.get_by_role("row").filter(has_text="north")).to_contain_text("No such model")
    w.page.get_by_label("GPUs per pod").fill("-1")
    w.page.locator("#capacity").get_by_role("alert").wait_for()


def test_what_fits_works_without_script(window, admin):
    w = window(java_script_enabled=False).sign_in(admin)
    w.open("/capacity/")
    w.page.get_by_label("GPUs per pod").fill("4")
    w.page.get_by_role("button", name="Count").click()
    expect(w.page.locator("#capacity")).to_contain_text("There is room for 2 more")
    expect(w.page.get_by_label("GPUs per pod")).to_have_value("4")

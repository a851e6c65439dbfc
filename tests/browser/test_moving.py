"""The dialog in which a user moves a running job."""

import os

import pytest
from playwright.sync_api import expect

from clusters.models import Cluster
from federation import operations
from federation.models import Attempt, Job, Move
from federation.queries.quotes import _desk
from tenancy.queries import actor_for
from tests.browser.reading import FITS, fits
from tests.builders import make_tenant
from tests.live import simulated_cluster
from tests.live_fixtures import home as home  # clusters keep their state there
from tests.live_fixtures import kept_pools as kept_pools
from tests.rooms.federation.test_migration import checkpoint, started
from tests.rooms.federation.test_saving_moves import THRIFTY, cost, saved

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def vision(admin):
    make_tenant("acme/research/vision")
    Cluster.objects.filter(name="north").update(wish="cordoned")


def test_a_job_is_moved_with_the_keyboard_after_its_preview(window, admin, home):
    simulated_cluster("east")
    simulated_cluster("west")
    job, attempt = started(actor_for(admin))
    checkpoint(attempt)
    _desk.forget()
    w = window(color_scheme="dark").sign_in(admin)
    w.open(f"/jobs/{job.id}/")
    summary = w.page.locator("details.confirm > summary", has_text="Move")
    summary.focus()
    w.page.keyboard.press("Enter")
    w.page.get_by_text("Continues on").wait_for()
    there = ({"east", "west"} - {attempt.cluster.name}).pop()
    chosen = w.page.locator("[data-move] select")
    expect(chosen.locator("option")).to_have_text(["the best other cluster", *sorted([there, "north"])])
    chosen.select_option(there)
    w.page.locator("[data-move] dd", has_text=there).wait_for()
    expect(chosen).to_have_value(there)
    expect(w.page.get_by_text("5 min").first).to_be_visible()
    fits(w)
    w.page.get_by_label("Reason, for its timeline").fill("slow today")
    w.page.keyboard.press("Enter")
    w.page.get_by_text("continues on another one").wait_for()
    assert Attempt.objects.get(id=attempt.id).stop_reason == "migrated"
    assert len(Move.objects.get().clusters) == 1


def test_the_page_of_a_move_works_without_script(window, admin, home):
    simulated_cluster("east")
    job, attempt = started(actor_for(admin))
    w = window(java_script_enabled=False).sign_in(admin)
    w.open(f"/jobs/{job.id}/")
    w.page.locator("details.confirm > summary", has_text="Move").click()
    w.page.get_by_role("link", name="Where it would continue").click()
    w.page.get_by_text("no other cluster would take it now").wait_for()
    simulated_cluster("west")
    _desk.forget()
    w.open(f"/jobs/{job.id}/move/")
    w.page.get_by_role("button", name="Move it and lose this work").click()
    assert Attempt.objects.get(id=attempt.id).stop_reason == "migrated"


def test_moves_for_price_and_deadline_are_on_the_page_of_the_job(window, admin, home):
    east, west = simulated_cluster("east"), simulated_cluster("west")
    for one, price in ((east, 4), (west, 3), (Cluster.objects.get(name="north"), 9)):
        cost(one, price)
    job, attempt = started(actor_for(admin), **THRIFTY, constraints={"clusters": ["east"]})
    Job.objects.filter(id=job.id).update(spec=job.spec | {"constraints": job.spec["constraints"] | {"clusters": []}})
    saved(attempt)
    assert operations.relocate_jobs() == 1
    for width, scheme in ((1440, "light"), (390, "dark")):
        w = window(width, 900, color_scheme=scheme).sign_in(admin)
        w.open(f"/jobs/{job.id}/")
        card = w.page.get_by_role("region", name="Moves for price and deadline")
        expect(card).to_contain_text("Costs less")
        expect(card).to_contain_text("32.00")
        assert w.page.evaluate(FITS)
        if folder := os.environ.get("PICTURES"):
            card.screenshot(path=f"{folder}/{width}-{scheme}.png")

"""The preview of a limit, from the form to the saved limit."""

import pytest
from playwright.sync_api import expect

from federation.models import Job, PriorityClass
from quotas.models import QuotaLimit
from quotas.operations import put_limit
from tenancy.queries import actor_for
from tests.browser.reading import fits
from tests.builders import make_tenant
from tests.live import simulated_cluster
from tests.live_fixtures import home as home  # clusters keep their state there
from tests.live_fixtures import kept_pools as kept_pools
from tests.rooms.federation.test_reclaim import job_of, started

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def own():
    return QuotaLimit.objects.get(tenant__path="acme/a")


def test_a_limit_is_previewed_corrected_and_saved(window, admin, home):
    actor = actor_for(admin)
    PriorityClass.objects.update(shield_seconds=0)
    simulated_cluster("east")
    make_tenant("acme/a")
    put_limit(actor, "acme/a", "gpu", nominal=16000)
    started(actor, "acme/a", "old", 600, gpus=4), started(actor, "acme/a", "young", 10, gpus=4)
    job_of(actor, "acme/a", "next", gpus=4)
    w = window().sign_in(admin)
    w.open(f"/quotas/set/?limit={own().id}")
    w.page.get_by_label("Limit", exact=False).first.wait_for()
    w.page.locator("[name=nominal]").fill("4")
    w.page.locator("[name=reclaim_after]").fill("0")
    fits(w, w.page.get_by_role("button", name="Preview"))
    w.page.get_by_role("button", name="Preview").click()
    w.page.get_by_role("heading", name="Are stopped: 1").wait_for()
    w.page.get_by_role("heading", name="Wait longer: 1").wait_for()
    expect(w.page.get_by_role("link", name="young")).to_have_count(1)
    acts = ("Back to the form", "Save the limit")
    fits(w, *(w.page.get_by_role("button", name=name) for name in acts))
    assert own().nominal == 16000
    w.page.get_by_role("button", name="Back to the form").click()
    w.page.get_by_role("button", name="Preview").wait_for()
    expect(w.page.locator("[name=nominal]")).to_have_value("4")
    w.page.locator("[name=nominal]").fill("16")
    w.page.get_by_role("button", name="Preview").click()
    w.page.get_by_text("does the same with this limit as without it").or_(
        w.page.get_by_role("heading", name="Start")
    ).first.wait_for()
    w.page.get_by_role("button", name="Save the limit").click()
    w.page.get_by_text("is changed").wait_for()
    assert own().reclaim_after == 0
    assert Job.objects.filter(state="running").count() == 2

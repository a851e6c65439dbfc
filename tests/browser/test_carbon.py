"""Energy and emissions on the page of usage, on a phone, a tablet and a wide screen."""

from datetime import timedelta

import pytest

from billing.operations import record_runs
from clusters.models import Cluster
from foundation.clock import now
from tests.builders import make_cluster, make_flavor, make_run
from tests.rooms.billing.emitting import counted

from .reading import FITS, fits, look

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
LONGEST = "a-cluster-with-a-name-that-is-as-long-as-a-name-can-possibly-be"


def test_the_page_fits_the_screen_and_can_be_read(window, admin):
    north, other = Cluster.objects.get(name="north"), make_cluster("acme", LONGEST)
    make_flavor(other)
    counted()
    start = now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    for cluster in (north, other):
        runs = [
            make_run(
                cluster, path, started_at=start, until_at=start + timedelta(hours=5), gpu_model="H100", gpu_units=units,
                user_name="somebody.with-a-long-name@acme.example",
            )
            for path in ("acme/research", "acme/a-team-with-a-rather-long-name")
            for units in (8, 0)
        ]  # fmt: skip
        record_runs(runs)
    w = window(reduced_motion="reduce").sign_in(admin)
    w.open("/usage/?group_by=tenant,job")
    w.page.get_by_label("energy and emissions").check()
    w.page.get_by_role("button", name="Show").click()
    w.page.get_by_text("estimated from rated power").wait_for()
    assert w.page.get_by_label("energy and emissions").is_checked()
    w.page.set_viewport_size({"width": 820, "height": 900})
    assert w.page.evaluate(FITS)
    fits(w, w.page.get_by_role("button", name="Show"))
    look(w, "/usage/")
    assert "carbon=true" in w.page.get_by_role("link", name="CSV").get_attribute("href")

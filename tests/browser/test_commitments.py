"""The page of commitments with long names, large sums and several tables, on a phone and a wide screen."""

from datetime import UTC, timedelta

import pytest

from billing.models import LedgerPeriod
from billing.operations import posting, record_runs
from billing.operations.commitment_days import split_commitments
from billing.operations.commitments import apply_commitments
from clusters.models import Cluster
from foundation.clock import now
from tenancy.queries import SYSTEM
from tests.builders import make_cluster, make_flavor, make_run
from tests.rooms.billing.committing import file_of

from .reading import fits, look

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
LONGEST = "a-cluster-with-a-name-that-is-as-long-as-a-name-can-possibly-be"


def test_the_page_fits_the_screen_and_can_be_read(window, admin):
    north, other = Cluster.objects.get(name="north"), make_cluster("acme", LONGEST)
    make_flavor(other)
    today = now().replace(hour=0, minute=0, second=0, microsecond=0)
    start = today - timedelta(days=2)
    LedgerPeriod.objects.create(organisation=north.owner, month=start.date().replace(day=1))
    term = {"start": f"{start:%Y-%m-%dT%H:00:00Z}", "until": f"{today:%Y-%m-%dT%H:00:00Z}"}
    whole = {
        **term,
        "clusters": f"[north, {LONGEST}]",
        "name": "n" * 63,
        "units": 1000000,
        "upfront": "999999999999.999999",
    }
    apply_commitments(SYSTEM, "acme", file_of(whole, {**term, "name": "two"}))
    for path in ("acme/research", "acme/a-team-with-a-rather-long-name"):
        record_runs([make_run(other, path, started_at=start, until_at=start + timedelta(hours=5))])
    posting.post_days()
    assert split_commitments() == 2
    w = window(reduced_motion="reduce").sign_in(admin)
    w.open(f"/commitments/?month={start.astimezone(UTC):%Y-%m}")
    for heading in ("Utilisation", "Coverage", "What tenants bear"):
        w.page.get_by_role("heading", name=heading).wait_for()
    fits(w)
    look(w, "/commitments/")
    assert w.page.get_by_role("link", name="CSV").get_attribute("href").endswith("format=csv")

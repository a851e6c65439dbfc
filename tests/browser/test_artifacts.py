"""The artifacts on a job's page, with what copies where they are and their digests."""

import pytest

from federation.operations.reports import admit_report, record_report
from tests.browser.reading import fits
from tests.builders import stored_spec
from tests.rooms.federation.test_retries import make_attempt

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
MODEL = {"name": "model", "storage": "shared", "path": "runs/7/" + "model/" * 20 + "weights", "required": True}
LOGS = {"name": "logs", "url": "s3://bucket/logs", "required": False}


def test_a_digest_is_copied_also_after_the_page_has_asked_again(window, admin):
    attempt = make_attempt(**stored_spec(), reports=True, artifacts=[MODEL, LOGS])
    w = window().sign_in(admin)
    w.open(f"/jobs/{attempt.job_id}/")
    assert w.page.get_by_text("not announced").count() == 2
    admit_report(attempt.id)
    told = {"name": "model", "sha256": "ab" * 32, "size_bytes": 7_400_000_000}
    record_report(attempt.id, {"sequence": 1, "artifacts": [told]})
    button = w.page.get_by_role("button", name="Copy the digest of model")
    button.wait_for()
    fits(w)
    w.page.evaluate(
        "navigator.clipboard.writeText = async (text) => { window.copied = text; }"
    )  # reading back is not allowed
    button.focus()
    w.page.keyboard.press("Enter")
    w.page.get_by_role("button", name="Copied the digest of model").wait_for()
    assert w.page.evaluate("window.copied") == "ab" * 32

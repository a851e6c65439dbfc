"""How users ask for a stop that waits for a checkpoint: by API and page, with what is refused and what they see."""

from uuid import uuid4

import pytest

from federation.models import JobEvent
from tenancy.models import User
from tests.builders import bind, make_user
from tests.live import simulated_cluster
from tests.rooms.federation.test_migration import started
from tests.rooms.federation.test_pending_stops import GOES_ON, MOVE, STOPS, WAIT, run, state_of
from tests.rooms.federation.test_reports import takes_reports

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["run", "takes_reports"]


def test_it_is_shown_with_the_job_and_in_its_timeline_and_page(run, submitter, call, client):
    job, _ = run
    ada = User.objects.get(id=submitter.user_id)
    assert call(ada, "get", f"/jobs/{job.id}")[1]["pending_stop"] is None
    status, shown = call(ada, "post", f"/jobs/{job.id}/suspend", WAIT)
    stop = shown["pending_stop"]
    assert (status, shown["state"], stop["then"], stop["by"]) == (202, "running", "suspend", "ada@acme.example")
    assert shown["suspend_requested_at"] is None
    assert stop == call(ada, "get", f"/jobs/{job.id}")[1]["pending_stop"]
    told = JobEvent.objects.get(job=job, kind="stop_waits").message
    assert told == "To be suspended when it reports its next checkpoint, in 10 min at most, by ada@acme.example."
    client.force_login(ada)
    page = client.get(f"/jobs/{job.id}/").content.decode()
    assert "It waits for its next checkpoint, at most until" in page
    assert "Do not suspend" in page
    assert "Suspend now" in page
    client.post(f"/jobs/{job.id}/resume/")
    page = client.get(f"/jobs/{job.id}/").content.decode()
    assert "It waits for its next checkpoint" not in page
    assert "Suspend now" not in page
    assert state_of(job) == ("running", None, False, "")


@pytest.mark.parametrize(("wait", "then"), [("300", "suspend"), ("0", None), ("", None), (None, None)])
def test_the_form_of_the_page_asks_for_it(run, submitter, client, wait, then):
    job, _ = run
    client.force_login(User.objects.get(id=submitter.user_id))
    assert 'name="wait"' in client.get(f"/jobs/{job.id}/").content.decode()
    client.post(f"/jobs/{job.id}/suspend/", {} if wait is None else {"wait": wait})
    assert state_of(job) == (GOES_ON["suspend"] if then else STOPS["suspend"])


@pytest.mark.parametrize("wait", ["-1", "3601", "99999", "9" * 50, "<b>", "1.5", "٣", "0x10"])
@pytest.mark.parametrize("form", ["suspend", "move"])
def test_the_form_refuses_what_is_no_time(run, submitter, client, wait, form):
    job, _ = run
    client.force_login(User.objects.get(id=submitter.user_id))
    answer = client.post(f"/jobs/{job.id}/{form}/", {"wait": wait, "lose_work": "yes"}, follow=True)
    assert answer.status_code == 200
    assert state_of(job) == ("running", None, False, "")
    assert "<b>" not in answer.content.decode()


def test_a_job_that_does_not_report_offers_no_wait(cluster, submitter, client):
    job, _ = started(submitter)
    client.force_login(User.objects.get(id=submitter.user_id))
    assert 'name="wait"' not in client.get(f"/jobs/{job.id}/").content.decode()


BAD = {
    "negative": (-1, "out_of_range"),
    "too long": (3601, "out_of_range"),
    "text": ("600", "wrong_type"),
    "a fraction": (1.5, "wrong_type"),
    "a truth": (True, "wrong_type"),
    "a list": ([600], "wrong_type"),
    "huge": (10**30, "out_of_range"),
}
PATHS = ("suspend", "migrate", "migrate/preview")


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("path", PATHS)
def test_a_wait_that_is_none_is_refused(run, submitter, call, path, case):
    job, _ = run
    value, code = BAD[case]
    status, answer = call(
        User.objects.get(id=submitter.user_id), "post", f"/jobs/{job.id}/{path}", {next(iter(WAIT)): value}
    )
    assert (status, [(one["field"], one["code"]) for one in answer["errors"]]) == (422, [(next(iter(WAIT)), code)])
    assert state_of(job) == ("running", None, False, "")


@pytest.mark.parametrize("path", PATHS)
def test_a_job_that_does_not_report_cannot_wait(cluster, submitter, call, path):
    simulated_cluster("west")
    job, _ = started(submitter)
    status, answer = call(
        User.objects.get(id=submitter.user_id), "post", f"/jobs/{job.id}/{path}", MOVE if path[0] == "m" else WAIT
    )
    assert (status, [(one["field"], one["code"]) for one in answer["errors"]]) == (
        422,
        [(next(iter(WAIT)), "not_allowed")],
    )
    assert "does not report checkpoints" in answer["errors"][0]["detail"]
    assert state_of(job) == ("running", None, False, "")


@pytest.mark.parametrize(("body", "field"), [({"reason": "x"}, "reason"), ([], ""), ("x", ""), (7, "")])
def test_a_suspension_takes_nothing_else(run, submitter, call, body, field):
    job, _ = run
    status, answer = call(User.objects.get(id=submitter.user_id), "post", f"/jobs/{job.id}/suspend", body)
    assert status in (400, 422), answer
    assert state_of(job) == ("running", None, False, "")


@pytest.mark.parametrize("path", ["suspend", "migrate"])
def test_it_is_nothing_to_strangers_and_refused_to_those_who_may_only_look(run, call, path):
    job, _ = run
    viewer = make_user("looks@acme.example")
    bind(viewer, "acme", "viewer")
    assert (
        call(make_user("eve@other.example"), "post", f"/jobs/{job.id}/{path}", MOVE if path == "migrate" else WAIT)[0]
        == 404
    )
    assert call(viewer, "post", f"/jobs/{job.id}/{path}", MOVE if path == "migrate" else WAIT)[0] == 403
    assert call(viewer, "post", f"/jobs/{uuid4()}/{path}", MOVE if path == "migrate" else WAIT)[0] == 404
    assert state_of(job) == ("running", None, False, "")

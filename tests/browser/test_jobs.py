import json
import re
from datetime import timedelta

import pytest
from playwright.sync_api import expect

from federation.models import Job, RemoteObject
from federation.operations import request_cancellation, run_scheduling_cycle
from foundation.clock import now
from foundation.problems import RateLimited, Unavailable
from quotas.models import QuotaLimit
from tenancy.queries import actor_for
from tests.browser.test_pages import waiting_job
from tests.builders import bind, make_user

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def fill(w, **fields):
    for label, value in {"Name": "train-resnet", "Image": "registry.example/train:1", **fields}.items():
        w.page.get_by_label(label, exact=False).first.fill(value)


def test_a_job_is_submitted_by_the_form(window, admin):
    w = window().sign_in(admin)
    w.open("/jobs/new/")
    w.page.get_by_label("Tenant").select_option("acme/research")
    fill(
        w, Command="python train.py --name 'a b'", Environment="EPOCHS=3\nMODE=fast", Labels="team=vision", CPU="4",
        Memory="16Gi", Pods="12", **{"Fewest pods": "2", "Number per pod": "2", "GPU models": "H100-80GB"},
    )  # fmt: skip
    w.page.get_by_role("button", name="Submit the job").click()
    w.page.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}/$"))
    job = Job.objects.get()
    assert w.page.url.endswith(f"/jobs/{job.id}/")
    expect(w.page.get_by_role("status").filter(has_text="train-resnet is queued")).to_be_visible()
    (pod_set,) = job.spec["pod_sets"]
    assert pod_set["command"] == ["python", "train.py", "--name", "a b"]
    assert pod_set["env"] == {"EPOCHS": "3", "MODE": "fast"}
    assert pod_set["gpu"] == {"count": 2, "models": ["H100-80GB"]}
    assert job.labels == {"team": "vision"}
    assert (job.tenant.path, job.created_by) == ("acme/research", admin)
    assert w.page.get_by_text("2 to 12", exact=True).is_visible()
    run_scheduling_cycle()
    (run,) = RemoteObject.objects.all()
    assert 2 <= run.pods < 12, "what fits"
    w.page.reload()
    assert w.page.get_by_text(f"{run.pods} of 2 to 12 pods", exact=True).is_visible()


def test_the_form_works_without_script(window, admin):
    w = window(java_script_enabled=False).sign_in(admin)
    w.open("/jobs/new/")
    fill(w, **{"GPU models": "H100-80GB"})
    w.page.get_by_role("button", name="Submit the job").click()
    w.page.get_by_role("status").filter(has_text="is queued").wait_for()
    assert Job.objects.get().name == "train-resnet"
    w.page.get_by_role("link", name="Jobs", exact=True).first.click()
    w.page.get_by_role("link", name="train-resnet").wait_for()


def test_the_same_form_sent_twice_is_one_job(window, admin):
    w = window().sign_in(admin)
    w.open("/jobs/new/")
    fill(w)
    send = """async () => {
        const form = document.querySelector("main form");
        const post = () => fetch(form.action, { method: "POST", body: new FormData(form) });
        return (await Promise.all([post(), post()])).map((answer) => answer.url);
    }"""
    first, second = w.page.evaluate(send)
    assert first == second == f"{w.address}/jobs/{Job.objects.get().id}/"


def test_a_refusal_marks_each_field_and_keeps_what_was_typed(window, admin):
    w = window().sign_in(admin)
    w.open("/jobs/new/")
    fill(w, Name="Not A Name", CPU="lots", Labels="no-equals-sign-needed=ok")
    w.page.get_by_role("button", name="Submit the job").click()
    w.page.get_by_role("alert").wait_for()
    name = w.page.get_by_label("Name").first
    assert name.input_value() == "Not A Name"
    assert name.get_attribute("aria-invalid") == "true"
    described = name.get_attribute("aria-describedby").split()
    assert any("lower-case" in w.page.locator(f"#{part}").inner_text() for part in described)
    assert w.page.get_by_label("CPU").first.get_attribute("aria-invalid") == "true"
    assert not Job.objects.exists()


def test_a_job_that_fits_nowhere_is_refused_with_the_reason(window, admin):
    w = window().sign_in(admin)
    w.open("/jobs/new/")
    fill(w, **{"Number per pod": "16", "GPU models": "H100-80GB"})
    w.page.get_by_role("button", name="Submit the job").click()
    expect(w.page.get_by_role("alert")).to_have_text("No cluster can run this job, even when empty. See why below.")
    expect(w.page.locator("#offers").get_by_role("row", name="Never fits")).to_contain_text("north")
    assert not Job.objects.exists()


def test_a_job_beyond_every_quota_is_refused_with_the_limit(window, admin):
    QuotaLimit.objects.update(nominal=1000, cap=1000)
    w = window().sign_in(admin)
    w.open("/jobs/new/")
    fill(w, **{"Number per pod": "4"})
    w.page.get_by_role("button", name="Submit the job").click()
    w.page.get_by_role("alert").wait_for()
    expect(w.page.locator("main")).to_contain_text("acme")
    assert not Job.objects.exists()


def test_a_job_is_submitted_as_json(window, admin):
    w = window().sign_in(admin)
    w.open("/jobs/new/?by=json")
    spec = json.loads(w.page.get_by_label("Job spec").input_value())
    spec |= {"name": "from-json"}
    spec["pod_sets"][0] |= {"image": "registry.example/x:1", "gpu": {"count": 1}}
    w.page.get_by_label("Job spec").fill(json.dumps(spec))
    w.page.get_by_role("button", name="Submit", exact=True).click()
    w.page.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}/$"))
    assert Job.objects.get().name == "from-json"


def test_json_that_is_no_spec_is_refused_and_kept(window, admin):
    w = window().sign_in(admin)
    w.open("/jobs/new/?by=json")
    for text in ("{", '{"a": 1, "a": 2}', "[]", '"x"', "null", '{"tenant": "acme/research"}', "[" * 500):
        w.page.get_by_label("Job spec").fill(text)
        with w.page.expect_navigation() as navigation:
            w.page.get_by_role("button", name="Submit", exact=True).click()
        assert 400 <= navigation.value.status < 500, text
        assert w.page.locator(".field-error, [role=alert]").count(), text
        assert w.page.get_by_label("Job spec").input_value() == text
    assert not Job.objects.exists()


def test_an_earlier_job_is_submitted_again(window, admin):
    job = waiting_job(admin)
    w = window().sign_in(admin)
    w.open(f"/jobs/{job.id}/")
    w.page.get_by_role("link", name="Submit again").click()
    w.page.get_by_role("button", name="Submit", exact=True).click()
    w.page.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}/$"))
    first, second = Job.objects.order_by("id")
    assert first.spec == second.spec


def test_a_job_is_cancelled_after_a_second_look(window, admin):
    job = waiting_job(admin)
    w = window().sign_in(admin)
    w.open(f"/jobs/{job.id}/")
    question, answer = w.page.get_by_text("Cancel", exact=True), w.page.get_by_role("button", name="Cancel the job")
    question.click()
    answer.focus()
    w.page.keyboard.press("Escape")
    expect(answer).to_be_hidden()
    assert question.evaluate("summary => document.activeElement === summary.closest('summary')")
    question.click()
    w.page.get_by_role("heading", level=1).click()
    expect(answer).to_be_hidden()
    question.click()
    answer.click()
    w.page.get_by_role("status").filter(has_text="cancelled").wait_for()
    job.refresh_from_db()
    assert job.state == "cancelled"


def test_who_only_looks_on_sees_no_button_that_changes_anything(window, admin):
    job = waiting_job(admin)
    viewer = make_user()
    viewer.set_password("correct-horse-battery")
    viewer.save()
    bind(viewer, "acme", "viewer")
    w = window().sign_in(viewer)
    w.open(f"/jobs/{job.id}/")
    assert w.page.get_by_text("Cancel", exact=True).count() == 0
    assert w.page.get_by_role("link", name="Submit again").count() == 0


def test_the_list_is_filtered_by_what_is_asked(window, admin):
    job = waiting_job(admin)
    w = window().sign_in(admin)
    for query, is_there in [
        ("state=queued", True), ("state=running", False), ("tenant=acme/research", True), ("label=team%3Dvision", True),
        ("label=team%3Dother", False), ("q=tra", True), ("q=zzz", False), ("cluster=north", False),
    ]:  # fmt: skip
        w.open(f"/jobs/?{query}")
        assert (w.page.get_by_role("link", name=job.name, exact=True).count() == 1) is is_there, query


def test_the_job_page_follows_the_job_by_itself(window, admin):
    job = waiting_job(admin)
    w = window().sign_in(admin)
    w.open(f"/jobs/{job.id}/")
    Job.objects.filter(id=job.id).update(reason_message="now it waits for something else")
    w.page.get_by_text("now it waits for something else").first.wait_for()


def test_when_a_job_ends_its_page_stops_offering_to_cancel_it_and_its_title_says_so(window, admin):
    job = waiting_job(admin)
    w = window().sign_in(admin)
    w.open(f"/jobs/{job.id}/")
    cancel = w.page.locator("#job-actions summary", has_text="Cancel")
    cancel.wait_for()
    expect(w.page).to_have_title(f"{job.name}: queued · Switchyard")
    request_cancellation(actor_for(admin), job.id)
    cancel.wait_for(state="detached")
    expect(w.page).to_have_title(f"{job.name}: cancelled · Switchyard")
    expect(w.page.get_by_role("link", name="Submit again")).to_be_visible()
    expect(w.page.locator("#job .state").first).to_have_text("cancelled")


def test_a_lost_connection_is_said_at_once_and_no_longer_than_it_lasts(window, admin):
    w = window(fresh=True).sign_in(admin)
    stop_clock(w)  # so that no poll finds it out
    w.open("/jobs/")
    lost = w.page.get_by_text("The connection to Switchyard is lost")
    assert lost.is_hidden()
    w.page.context.set_offline(True)
    lost.wait_for()
    w.page.context.set_offline(False)
    w.page.clock.resume()
    lost.wait_for(state="hidden")


@pytest.mark.parametrize(
    ("problem", "refusals", "least_ticks"),
    [(RateLimited(retry_after_seconds=30), 2, 9), (Unavailable(), 4, 8)],
    ids=["too many requests", "no database"],
)
def test_a_refused_poll_is_said_comes_more_rarely_and_leaves_the_page_as_it_was(
    window, admin, monkeypatch, problem, refusals, least_ticks
):
    def refused(*_):
        seen.append(problem.status)
        raise problem

    waiting_job(admin)
    seen, ticks = [], 0
    w = window(fresh=True).sign_in(admin)
    stop_clock(w)
    w.open("/jobs/")
    said, rows = w.page.get_by_text("Switchyard is busy or has a fault"), w.page.locator("#jobs tbody tr")
    with monkeypatch.context() as patch:
        patch.setattr("federation.web.jobs.job_list", refused)
        while len(seen) < refusals and ticks < 200:
            ticks += 1
            next_poll(w)
        said.wait_for()
        assert ticks >= least_ticks, "it asked again as if nothing had happened"
        assert rows.count() == 1
        assert w.page.get_by_text("The connection to Switchyard is lost").is_hidden()
    waiting_job(admin)
    while said.is_visible() and ticks < 400:
        ticks += 1
        next_poll(w)
    assert said.is_hidden()
    next_poll(w)
    rows.nth(1).wait_for()
    w.troubles[:] = [trouble for trouble in w.troubles if f"answered {problem.status}" not in trouble]


def stop_clock(w):
    """The page's time stands still until the test moves it, however long the test takes."""
    w.page.clock.install()
    w.page.clock.pause_at(now() + timedelta(minutes=1))


def next_poll(w):
    """Moves the page's clock on by the time between two polls, and waits for the answer, if it asked."""
    w.page.clock.run_for(4_000)
    w.page.locator(".htmx-request").first.wait_for(state="detached")
    w.page.wait_for_timeout(60)


def test_other_clusters_of_a_reason_unfold_by_keyboard_and_stay_unfolded(window, admin):
    job = waiting_job(admin)
    told = [
        {"cluster": name, "code": "not_enough_free", "message": "none is free", "is_for_good": False}
        for name in ("north", "south", "west")
    ]
    Job.objects.filter(id=job.id).update(explanation={"clusters": told})
    w = window().sign_in(admin)
    w.open(f"/jobs/{job.id}/")
    fold, others = w.page.locator("#job summary", has_text="2 more"), w.page.get_by_text("south, west")
    assert others.is_hidden()
    with w.page.expect_response(lambda response: response.status in {200, 304} and response.url.endswith(f"{job.id}/")):
        fold.focus()
        w.page.keyboard.press("Enter")
    expect(others).to_be_visible()


def test_a_poll_that_brings_no_news_is_answered_304(window, admin):
    waiting_job(admin)
    w = window().sign_in(admin)
    with w.page.expect_response(lambda response: response.status == 304, timeout=60_000) as answer:
        w.open("/jobs/")
    assert answer.value.request.headers["hx-request"] == "true"

from datetime import timedelta

import pytest

from clusters.models import Cluster
from devtools.screenshots import OF_A_TENANT
from federation.models import Attempt, Job, JobEvent, Reservation
from federation.operations import make_reservation
from federation.operations.kept_room import keep_room
from foundation.clock import now
from foundation.plain_json import instant
from placement.values.decisions import KeptRoom
from tenancy.models import RoleBinding
from tests.browser.reading import look
from tests.builders import actor_for, make_cluster, make_spec, redate, submit

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
WIDTHS = (390, 820, 1440)
LOW = 300
"""The height of windows whose height does not matter: it costs half as much to paint them."""
SMALL = {"width": 390, "height": LOW}
"""Of windows whose size does not matter at all."""
SETTLED = "new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
"""What the page's scripts put off until after the load has been done, and was reported if the policy stopped it."""
NASTY = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
FOR_THOSE_WHO_SET_PRICES = {"/prices/own-costs/", "/prices/file/"}
PATHS = [
    "/", "/jobs/", "/jobs/new/", "/jobs/new/?by=json", "/clusters/", "/clusters/register/",
    "/clusters/register/?by=parts", "/quotas/", "/quotas/set/", "/usage/", "/usage/?group_by=job&group_by=day", "/usage/utilisation/", "/usage/unit-costs/?group_by=user&group_label=team", "/usage/recommendations/", "/usage/recommendations/month/", "/usage/recommendations/labels/", "/usage/overview/", "/usage/?group_by=job&group_by=day&carbon=yes", "/prices/",
    "/prices/egress/", "/prices/own-costs/", "/prices/file/", "/datasets/", "/priority-classes/", "/reservations/", "/reservations/?state=ended&cluster=x%00", "/reservations/new/",
    "/budgets/", "/budgets/set/", "/forecast/", "/anomalies/", "/months/", "/months/conflicts/", "/months/reconciliation/", "/idle/", "/idle/policies/", "/commitments/", "/lost-work/", "/currencies/", "/invoices/", "/invoices/terms/", "/invoices/remarks/",
    "/shares/", "/quotas/users/set/", "/quotas/submission/set/", "/tenants/", "/tokens/", "/audit/", "/jobs/?tenant=Rese&state=queued,running", "/quotas/?tenant=nobody", "/usage/?tenant=ac",
    "/capacity/", "/capacity/?gpus=x&models=%3Cb%3E&tenant=nobody",
]  # fmt: skip


def waiting_job(user, **more):
    """A queued job of acme/research with a reason on a cluster."""
    body = make_spec(pod={"gpu": {"count": 4, "models": ["H100-80GB"]}}, labels={"team": "vision"}, **more)
    job = submit(actor_for(user), {"tenant": "acme/research", **body})
    why = {"cluster": "north", "code": "not_enough_free", "message": "needs 4; 2 are free", "is_for_good": False}
    Job.objects.filter(id=job.id).update(
        reason_code="waiting_for_capacity", reason_message="needs 4; 2 are free", explanation={"clusters": [why]}
    )
    return job


def reserve(user):
    """The id of a reservation of all of acme's nodes, in force for two hours."""
    pods = {"cpu": "8", "memory": "32Gi", "gpu": {"count": 8, "models": ["H100-80GB"]}}
    body = {"tenant": "acme", "name": "eval", "ends_at": instant(now() + timedelta(hours=2)), "pod_sets": [pods]}
    return make_reservation(actor_for(user), body, show=lambda row: {"id": str(row.id)}).body["id"]


def keep_nodes_for(job):
    """Room that is kept for the job since an hour ago."""
    began, hour = now() - timedelta(hours=1), timedelta(hours=1)
    north = Cluster.objects.get(name="north")
    kept = KeptRoom(job.id, north.id, ("n0", "n1"), began, began + 6 * hour, began + 12 * hour, None, {"gpu": 8000})
    keep_room((kept,))


def every_path(user):
    job = waiting_job(user)
    keep_nodes_for(job)
    cluster, tenant = Cluster.objects.get(name="north"), job.tenant
    reserved = reserve(user) if not Reservation.objects.exists() else Reservation.objects.get().id
    return [*PATHS, f"/jobs/{job.id}/", f"/jobs/{job.id}/logs/", f"/clusters/{cluster.id}/", f"/clusters/{cluster.id}/nodes/{cluster.nodes.all()[0].name}/", f"/tenants/{tenant.id}/",
            *(f"/tenants/{tenant.id}/{part}/" for part in OF_A_TENANT.values()), f"/people/{user.id}/",
            *(f"/tenants/{b.tenant_id}/roles/{b.id}/" for b in RoleBinding.objects.filter(user=user)[:1]),
            f"/jobs/new/?from={job.id}", f"/reservations/{reserved}/"]  # fmt: skip


def test_every_page_opens_without_a_complaint_of_the_browser_and_is_never_wider_than_the_screen(window, admin):
    """Each is opened once, on a phone, whose screen then becomes wider; there it can be read in both themes, and controls have names."""
    make_cluster("acme", "a-cluster-with-a-name-that-is-as-long-as-a-name-can-possibly-be")
    w, too_wide = window(**SMALL, reduced_motion="reduce").sign_in(admin), {}
    for path in every_path(admin):
        answer = w.open(path)
        assert answer.status == 200, path
        assert w.page.get_by_role("heading", level=1).count() == 1, path
        for width in WIDTHS:
            w.page.set_viewport_size({"width": width, "height": LOW})
            w.page.evaluate(SETTLED)
            scroll, inner = w.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
            assert inner == width
            if scroll > inner:
                too_wide[path, width] = scroll
        look(w, path)
        w.page.set_viewport_size({"width": WIDTHS[0], "height": LOW})
    assert not too_wide


def test_every_page_opens_for_someone_without_any_role(window, admin):
    admin.role_bindings.all().delete()
    w = window(**SMALL).sign_in(admin)
    for path in PATHS:
        assert w.open(path).status == (403 if path in FOR_THOSE_WHO_SET_PRICES else 200), path


def test_what_users_write_is_shown_as_text_also_to_an_operator_and_the_policy_stops_nothing(window, superuser):
    admin = superuser
    job = waiting_job(admin)
    Job.objects.filter(id=job.id).update(
        name=NASTY[:63],
        labels={NASTY: NASTY},
        reason_message=NASTY,
        explanation={"clusters": [{"cluster": NASTY, "code": NASTY, "message": NASTY, "is_for_good": False}]},
    )
    JobEvent.objects.create(job=job, at=now(), kind="note", message=NASTY)
    Cluster.objects.filter(name="north").update(
        reasons=[{"code": "x", "message": NASTY}], region=NASTY[:63], labels={NASTY: NASTY}
    )
    w = window(**SMALL).sign_in(admin)
    for path in every_path(admin):
        assert w.open(path).status == 200, path
        w.page.evaluate(SETTLED)
        assert w.page.evaluate("window.hacked") is None, path
        assert w.page.locator("img[src=x]").count() == 0, path
    w.open(f"/jobs/{job.id}/")
    assert NASTY in w.page.locator("#job").inner_text()


def test_a_job_that_ran_shows_its_attempt_and_its_timeline(window, admin):
    job, at = waiting_job(admin), now()
    Attempt.objects.create(
        job=job, number=1, cluster=Cluster.objects.get(name="north"), state="succeeded", flavor="h100",
        namespace="swy-research-1", spec_hash="0" * 32, reserved_at=at, started_at=at, finished_at=at, unit_price="2.74",
        starting_at=at, next_action_at=None,
    )  # fmt: skip
    redate(
        Job.objects.filter(id=job.id),
        state="succeeded", started_at=at, finished_at=at + timedelta(minutes=3), exit_code=0, explanation={},
    )  # fmt: skip
    w = window().sign_in(admin)
    w.open(f"/jobs/{job.id}/")
    text = w.page.locator("main").inner_text()
    assert "Attempt 1" in text
    assert "2.74 USD per unit-hour" in text
    assert "ran 3 min 00 s, exit code 0" in text
    assert w.page.get_by_role("link", name="Submit again").is_visible()
    assert w.page.get_by_text("Cancel", exact=True).count() == 0


def test_a_page_that_is_not_there_says_so_in_style(window, admin):
    w = window().sign_in(admin)
    assert w.open("/no/such/page/").status == 404
    assert w.page.get_by_role("link", name="Go to the overview").is_visible()


def test_a_foreign_job_looks_absent(window, admin):
    job = waiting_job(admin)
    admin.role_bindings.all().delete()
    w = window().sign_in(admin)
    assert w.open(f"/jobs/{job.id}/").status == 404


def test_times_are_shown_in_the_readers_zone_with_utc_on_hover(window, admin):
    job = waiting_job(admin)
    Job.objects.filter(id=job.id).update(created_at="2026-03-01T23:30:00Z")
    w = window(timezone_id="Asia/Tokyo", locale="en-GB").sign_in(admin)
    w.open(f"/jobs/{job.id}/")
    time = w.page.locator('#job time[datetime^="2026-03-01T23:30:00"]').first
    assert "2 Mar" in time.inner_text()
    assert "08:30" in time.inner_text()
    assert time.get_attribute("title") == "2026-03-01 23:30:00 UTC"
    assert "Times are in Asia/Tokyo; hover for UTC." in w.page.locator("footer").inner_text()


def test_a_reader_in_utc_is_not_sent_to_utc(window, admin):
    w = window(timezone_id="UTC").sign_in(admin)
    w.open("/")
    assert "Times are in UTC." in w.page.locator("footer").inner_text()


def sent_bytes(w, path):
    """What a visit moves over the network, headers included, as Chromium counts it; and the files' addresses. On a slow host the
    page's live parts ask for news before the network is idle, which is not part of the visit.
    """
    session, moved, addresses, news = w.page.context.new_cdp_session(w.page), {}, [], set()
    session.on(
        "Network.requestWillBeSent",
        lambda event: news.add(event["requestId"]) if "HX-Request" in event["request"]["headers"] else None,
    )
    session.on("Network.loadingFinished", lambda event: moved.update({event["requestId"]: event["encodedDataLength"]}))
    session.on("Network.responseReceived", lambda event: addresses.append(event["response"]["url"]))
    w.page.goto("about:blank")  # what the page before still asks for is not counted
    session.send("Network.enable")
    w.page.goto(f"{w.address}{path}", wait_until="networkidle")
    return sum(size for request, size in moved.items() if request not in news), addresses


def test_a_first_visit_of_the_overview_moves_at_most_130_kb_and_a_second_only_the_page(window, admin):
    for _ in range(8):
        waiting_job(admin)
    w = window(fresh=True).sign_in(admin)
    first, addresses = sent_bytes(w, "/")
    assert len([address for address in addresses if "/static/" in address]) >= 6
    assert first <= 130_000, first
    again, _ = sent_bytes(w, "/")
    assert again < first / 3, (again, first)

"""A session is opened in a tab, at an origin where its program can do nothing to the gateway."""

from urllib.parse import urlsplit

import pytest

import clusters.queries
from clusters.drivers import NotAnswered, PortAnswer
from federation.engine.sessions import read_origin
from federation.models import Attempt
from federation.operations import issue_ticket
from foundation.clock import now
from tenancy.models import RoleBinding
from tests.browser.reading import FITS, fits
from tests.builders import actor_for, bind
from tests.rooms.federation.test_sessions import running

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
PAGE = """<!doctype html><title>lab</title><h1>A notebook</h1><p id="told"></p><script>
const own = fetch("/data", {method: "POST", body: "x"}).then((answer) => "own " + answer.status, () => "own failed");
const theirs = ["GET", "POST"].map((method) => fetch("GATEWAY/api/v1/jobs", {method, credentials: "include"})
  .then(() => "read", () => "kept out"));
Promise.all([own, ...theirs]).then((told) => {
  document.getElementById("told").textContent = [...told, "cookie:" + document.cookie].join(", ");
});
</script>"""


class Program:
    def __init__(self, gateway):
        self.page, self.asked = PAGE.replace("GATEWAY", gateway).encode(), []

    async def ask_pod(self, namespace, pod, port, request):
        self.asked.append(request)
        if request.target == "/down":
            raise NotAnswered("nothing answers on this port of the pod", status=502)
        if request.target == "/data":
            return PortAnswer(201, [("Set-Cookie", "a=b")], b"")
        return PortAnswer(200, [("Content-Type", "text/html"), ("Set-Cookie", "sessionid=planted")], self.page)


def test_a_session_opens_in_a_tab_of_its_own_origin(window, admin, live_server, settings, monkeypatch):
    program = Program(live_server.url)
    monkeypatch.setattr(clusters.queries, "driver_of", lambda _: program)
    settings.SESSION_ORIGIN = read_origin(f"http://*.sessions.localhost:{urlsplit(live_server.url).port}")
    bind(admin, "acme/vision")
    attempt = running(admin)
    w = window(fresh=True).sign_in(admin)
    w.open(f"/jobs/{attempt.job_id}/")
    fits(w, w.page.get_by_role("button", name="Open"))
    w.page.get_by_role("button", name="Open").click()
    link = w.page.get_by_role("link", name="Open the session")
    fits(w, link)
    with w.page.context.expect_page() as opened:
        link.click()
    tab = opened.value
    tab.get_by_role("heading", name="A notebook").wait_for()
    tab.get_by_text("cookie:").wait_for()
    assert tab.locator("#told").inner_text() == "own 201, kept out, kept out, cookie:"
    assert tab.url == f"http://{attempt.id.hex}.sessions.localhost:{urlsplit(live_server.url).port}/"
    assert tab.evaluate("window.opener") is None
    sent = {name for request in program.asked for name, _ in request.headers}
    assert not sent & {"cookie", "authorization", "referer"}
    # the link works once
    with w.page.context.expect_page() as again:
        link.click()
    again.value.get_by_text("This ticket is not valid").wait_for()
    assert not [cookie for cookie in w.page.context.cookies() if cookie["value"] == "planted"]


CLOSED = {
    "You may no longer open this session": lambda _: RoleBinding.objects.all().delete(),
    "The cluster of this session does not answer": lambda attempt: Attempt.objects.filter(id=attempt.id).update(
        state="unknown", state_before_unknown="running"
    ),
    "This run is being stopped": lambda attempt: Attempt.objects.filter(id=attempt.id).update(
        stop_requested_at=now(), stop_reason="cancelled"
    ),
    "This run has ended": lambda attempt: Attempt.objects.filter(id=attempt.id).update(
        state="failed", state_before_unknown="", finished_at=now()
    ),
}


@pytest.mark.parametrize("look", [(390, "dark"), (1440, "light")])
def test_what_the_gateway_says_at_a_sessions_address_is_a_page(window, admin, live_server, settings, monkeypatch, look):
    program = Program(live_server.url)
    monkeypatch.setattr(clusters.queries, "driver_of", lambda _: program)
    settings.SESSION_ORIGIN = read_origin(f"http://*.sessions.localhost:{urlsplit(live_server.url).port}")
    bind(admin, "acme/vision")
    attempt = running(admin)
    w = window(look[0], 900, color_scheme=look[1], fresh=True)
    own = settings.SESSION_ORIGIN.of(attempt.id)
    w.address = own

    def says(path, status, title, words):
        assert w.open(path).status == status
        assert w.page.get_by_role("heading").inner_text() == title
        assert words in w.page.get_by_role("main").inner_text()
        assert w.page.evaluate(FITS)
        dark = w.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 18, 25)"
        assert dark is (look[1] == "dark")

    says("/", 401, "The session is not open", "not open in this browser")
    says("/.switchyard/open#stolen", 200, "The session is not open", "This ticket is not valid")
    w.page.goto("about:blank")  # else the address would differ in its # alone
    w.page.goto(issue_ticket(actor_for(admin), attempt.job_id).url)
    w.page.get_by_role("heading", name="A notebook").wait_for()
    assert w.page.evaluate("async () => (await fetch('/down')).text()") == (
        "The program of the session: nothing answers on this port of the pod.\n"
    )
    assert w.open("/down").status == 502
    assert w.page.locator("meta[http-equiv=refresh]").get_attribute("content") == "5"
    for words, happens in CLOSED.items():  # each is said before those above it
        happens(attempt)
        says("/", 401, "The session is not open", words)
    w.troubles.clear()  # a browser reports answers of 401 and 502 as errors

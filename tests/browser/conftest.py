"""Real Chromium against pytest-django's live server; whatever goes wrong in a window fails its test."""

import os
import secrets

import pytest
from django.conf import settings
from django.core.servers.basehttp import ThreadedWSGIServer
from django.db import connection
from django.test import Client
from playwright.sync_api import expect, sync_playwright
from pytest_django.live_server_helper import LiveServer

from devtools.browser import locate
from tests.builders import bind, make_cluster, make_flavor, make_limit, make_node, make_user
from tests.kept_sessions import end_sessions, sessions_are_kept

# Playwright keeps an event loop in this thread; Django would refuse queries here although nothing runs at the same time.
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
PASSWORD = "correct-horse-battery"
# Before any script of a page: what its security policy stopped becomes an error on the console, and so a trouble.
TELL_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`stopped by ${event.effectiveDirective}: ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""
MEDIA = {"color_scheme": "light", "reduced_motion": "no-preference"}
"""Options that an open page can change, as they are unless a test says otherwise."""
# The browser draws windows around the pages: without toolbar and animations, a fifth less of its time. Pages are emulated without
# the preference for reduced motion, which is its own.
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--in-process-gpu", "--disable-dev-shm-usage", "--kiosk", "--animation-duration-scale=0",
    "--wm-window-animations-disabled", "--force-prefers-reduced-motion",
]  # fmt: skip
# As long as actions wait: how fast the host is decides nothing.
expect.set_options(timeout=30_000)


class Window:
    """A browser window on the gateway that keeps a list of everything that should not have happened in it."""

    def __init__(self, page, address):
        self.page, self.address, self.troubles = page, address, []
        page.add_init_script(TELL_VIOLATIONS)
        page.on("console", self._note_console)
        page.on("pageerror", self._note_error)
        page.on("response", self._note_response)

    def open(self, path):
        return self.page.goto(f"{self.address}{path}", wait_until="load")

    def sign_in(self, user):
        """The window gets the cookie of a new session and opens no page: the form and the page behind it would be two for each
        test. `test_sign_in.py` has the form.
        """
        visitor = Client()
        visitor.force_login(user)
        name = settings.SESSION_COOKIE_NAME
        cookie = {"name": name, "value": visitor.cookies[name].value, "url": self.address}
        self.page.context.add_cookies([{**cookie, "httpOnly": True, "sameSite": "Lax"}])
        return self

    def sign_in_by_form(self, user, password=PASSWORD):
        self.open("/login/")
        self.page.get_by_label("Email").fill(user.email)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Sign in").click()
        return self

    def post_without_token(self, path):
        """The status of a POST sent with the session's cookie but without the form's token."""
        script = "path => fetch(path, {method: 'POST', credentials: 'same-origin'}).then(answer => answer.status)"
        return self.page.evaluate(script, path)

    def _note_console(self, message):
        # Chromium logs every answer from 400 on; tests that provoke one look at the answer itself.
        if message.type in {"error", "warning"} and "Failed to load resource" not in message.text:
            self.troubles.append(f"{self.page.url}: {message.text}")

    def _note_error(self, error):
        self.troubles.append(f"{self.page.url}: {error}")

    def _note_response(self, response):
        if response.status >= 500:
            self.troubles.append(f"{response.url} answered {response.status}")
        if not response.url.startswith((self.address, "data:")):
            self.troubles.append(f"{response.url} is not ours")


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        program = playwright.chromium.launch(executable_path=locate(), args=ARGUMENTS)
        yield program
        program.close()


@pytest.fixture(scope="session")
def live_server():
    """The gateway's own way of serving static files is on trial too: Django's stand-in for it would find no hashed name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.contrib.staticfiles.handlers.StaticFilesHandler", lambda application: application)
        server = LiveServer("localhost")
    yield server
    server.stop()


@pytest.fixture(autouse=True, scope="session")
def kept_sessions(django_db_setup, live_server):
    """A thread of the server, which serves one connection of the browser, goes on with a session of one before."""
    with sessions_are_kept(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(ThreadedWSGIServer, "_close_connections", lambda _: end_sessions())
        yield


class KeptWindow:
    """One window for all tests that ask for no other: to start a process for its page and to read scripts and styles again takes
    half a second of a core. Each test begins without cookies and without what scripts have stored.
    """

    def __init__(self, browser, address, *, runs_scripts):
        self._browser, self._address, self._window = browser, address, None
        self._runs_scripts = runs_scripts
        self.is_taken = False

    def take(self, size, media):
        if self._window is None:
            context = self._browser.new_context(viewport=size, java_script_enabled=self._runs_scripts)
            self._window = Window(context.new_page(), self._address)
            self._protocol = context.new_cdp_session(self._window.page)
        self._window.page.set_viewport_size(size)
        self._window.page.emulate_media(**{name: media.get(name, usual) for name, usual in MEDIA.items()})
        self.is_taken = True
        return self._window

    def give_back(self, *, is_whole):
        self.is_taken = False
        troubles = self._window.troubles[:]
        if troubles or not is_whole:
            self.close()
            return troubles
        self._window.open("/robots.txt")  # it asks for nothing, and the next page of the same site has the same process
        self._window.page.context.clear_cookies()
        stored = {"origin": self._address, "storageTypes": "local_storage"}
        self._protocol.send("Storage.clearDataForOrigin", stored)
        self._window.troubles.clear()  # of what the page was still asking for when it was left
        return []

    def close(self):
        if self._window is not None:
            self._window.page.context.close()
            self._window = None


@pytest.fixture(scope="session")
def kept_windows(browser, live_server, django_db_setup, django_db_blocker):
    """One that runs scripts and one that does not. They close before the tests' database is dropped: the server has a session for
    each connection that is open. So has this thread, and another one when the browser's event loop does not run any more.
    """
    kept = {runs: KeptWindow(browser, live_server.url, runs_scripts=runs) for runs in (True, False)}
    yield kept
    for each in kept.values():
        each.close()
    with django_db_blocker.unblock():
        connection.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    item.has_failed = getattr(item, "has_failed", False) or report.failed
    return report


@pytest.fixture
def window(request, browser, live_server, kept_windows):
    """Opens windows: `window()`, `window(width=390)`, `window(color_scheme="dark")`, `window(java_script_enabled=False)`.

    A test's second one, those with further options, and one that is `fresh` share nothing with any other.
    """
    opened = []

    def open_window(width=1440, height=900, *, fresh=False, **options):
        size = {"width": width, "height": height}
        kept = kept_windows[options.get("java_script_enabled", True)]
        if not fresh and options.keys() <= {*MEDIA, "java_script_enabled"} and not kept.is_taken:
            return kept.take(size, options)
        context = browser.new_context(viewport=size, **options)
        made = Window(context.new_page(), live_server.url)
        opened.append((made, context))
        return made

    yield open_window
    taken = [kept for kept in kept_windows.values() if kept.is_taken]
    troubles = [one for kept in taken for one in kept.give_back(is_whole=not request.node.has_failed)]
    for made, context in opened:
        context.close()
        troubles += made.troubles
    assert not troubles, "\n".join(troubles)


@pytest.fixture
def admin(live_server):
    """An administrator of acme, with a cluster of eight free H100s and a quota, who knows the password."""
    user = make_user(f"{secrets.token_hex(4)}@example.org")
    user.set_password(PASSWORD)
    user.save()
    bind(user, "acme")
    bind(user, "acme/research")
    cluster = make_cluster("acme", "north")
    make_flavor(cluster)
    make_node(cluster)
    make_limit("acme", nominal="64")
    return user


@pytest.fixture
def superuser(admin):
    admin.is_staff = admin.is_superuser = True
    admin.save()
    return admin

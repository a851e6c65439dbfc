"""Real Chromium against pytest-django's live server; whatever goes wrong in a window fails its test."""

import os
import secrets

import pytest
from playwright.sync_api import sync_playwright
from pytest_django.live_server_helper import LiveServer

from devtools.browser import locate
from tests.builders import bind, make_cluster, make_flavor, make_limit, make_node, make_user

# Playwright keeps an event loop in this thread; Django would refuse queries here although nothing runs at the same time.
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
PASSWORD = "correct-horse-battery"
# Before any script of a page: what its security policy stopped becomes an error on the console, and so a trouble.
TELL_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`stopped by ${event.effectiveDirective}: ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


class Window:
    """A browser window on the gateway that keeps a list of everything that should not have happened in it."""

    def __init__(self, page, address):
        self.page, self.address, self.troubles = page, address, []
        page.add_init_script(TELL_VIOLATIONS)
        page.on("console", self._note_console)
        page.on("pageerror", lambda error: self.troubles.append(f"{page.url}: {error}"))
        page.on("response", self._note_response)

    def open(self, path):
        return self.page.goto(f"{self.address}{path}", wait_until="load")

    def sign_in(self, user, password=PASSWORD):
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


@pytest.fixture
def window(browser, live_server):
    """Opens windows: `window()`, `window(width=390)`, `window(color_scheme="dark")`, `window(java_script_enabled=False)`."""
    opened = []

    def open_window(width=1440, height=900, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        made = Window(context.new_page(), live_server.url)
        opened.append((made, context))
        return made

    yield open_window
    for made, context in opened:
        context.close()
        assert not made.troubles, "\n".join(made.troubles)


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

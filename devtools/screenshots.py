"""Pictures of every page of a running gateway, wide and narrow, light and dark: `python -m devtools.screenshots --out DIR`.

Signs in with the demo's login unless the arguments name another. Fails on a page that answers with an error, that writes an error to
the console, or that is wider than the screen.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from devtools.browser import locate

CHROMIUM_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
WIDTHS = {"wide": (1440, 900), "narrow": (390, 844)}
SCHEMES = ("light", "dark")
PAGES = {
    "overview": "/",
    "jobs": "/jobs/",
    "jobs-none": "/jobs/?q=there-is-no-such-job",
    "jobs-of-tenants": "/jobs/?tenant=e",
    "unknown-parameter": "/jobs/?colour=red",
    "submit": "/jobs/new/",
    "submit-json": "/jobs/new/?by=json",
    "fleet": "/clusters/",
    "capacity": "/capacity/?gpus=8&count=2",
    "register": "/clusters/register/",
    "register-parts": "/clusters/register/?by=parts",
    "reservations": "/reservations/",
    "reserve": "/reservations/new/",
    "quotas": "/quotas/",
    "quotas-of-tenants": "/quotas/?tenant=e",
    "quota-edit": "/quotas/set/",
    "user-limit-edit": "/quotas/users/set/",
    "submission-limit-edit": "/quotas/submission/set/",
    "usage": "/usage/?group_by=tenant,flavor",
    "usage-energy": "/usage/?group_by=tenant,flavor&carbon=yes",
    "usage-files": "/usage/files/",
    "cost-overview": "/usage/overview/",
    "unit-costs": "/usage/unit-costs/?group_by=tenant,user",
    "utilisation": "/usage/utilisation/?group_by=tenant,flavor",
    "recommendations": "/usage/recommendations/",
    "recommendations-accepted": "/usage/recommendations/?state=accepted",
    "recommendations-of-a-month": "/usage/recommendations/month/",
    "required-labels": "/usage/recommendations/labels/",
    "idle": "/idle/",
    "sharing-policies": "/idle/policies/",
    "node-hours": "/idle/node-hours/",
    "lost-work": "/lost-work/",
    "currencies": "/currencies/",
    "commitments": "/commitments/",
    "shares": "/shares/",
    "budgets": "/budgets/",
    "budget-edit": "/budgets/set/",
    "alert-hooks": "/budgets/hooks/",
    "months": "/months/",
    "conflicts": "/months/conflicts/",
    "reconciliation": "/months/reconciliation/",
    "invoices": "/invoices/",
    "invoice-terms": "/invoices/terms/",
    "invoice-remarks": "/invoices/remarks/",
    "forecast": "/forecast/",
    "anomalies": "/anomalies/",
    "prices": "/prices/",
    "own-costs": "/prices/own-costs/",
    "price-book": "/prices/file/",
    "egress": "/prices/egress/",
    "datasets": "/datasets/",
    "priority-classes": "/priority-classes/",
    "tenants": "/tenants/",
    "tokens": "/tokens/",
    "audit": "/audit/",
    "account": "/account/",
    "one-time-link": "/sign-in/link/",
    "not-found": "/there-is-no-such-page/",
}
FIRST_LINKS = {  # a page, where to find its address, and the link that leads there
    "job-queued": ("/jobs/?state=queued", "#jobs tbody a.title-link"),
    "job-running": ("/jobs/?state=running", "#jobs tbody a.title-link"),
    "job-failed": ("/jobs/?state=failed", "#jobs tbody a.title-link"),
    "recommendation": ("/usage/recommendations/?kind=smaller", "tbody a.title-link"),
    "recommendation-accepted": ("/usage/recommendations/?state=accepted", "tbody a.title-link"),
    "cluster": ("/clusters/", ".cluster-card:last-child a.title-link"),
    "tenant": ("/tenants/", "tbody tr:nth-child(3) a.title-link"),
    "organisation": ("/tenants/", "tbody tr:first-child a.title-link"),
    "month": ("/months/", "tbody a[href^='/months/']"),
    "invoice": ("/invoices/", "tbody a[href^='/invoices/']"),
    "budget": ("/budgets/", "main a[href^='/budgets/']:not([href*='set'])"),
}
FAILING = "tokyo", "a100-02"
"""The demo's node with a failing GPU (`federation.management.demo`)."""
OF_A_TENANT = {  # below a tenant's address
    "policy": "policy",
    "people": "people",
    "tenant-new": "new",
    "tenant-edit": "edit",
    "failure-rules": "failure-rules",
    "failure-rule": "failure-rules/rule",
}


@dataclass(slots=True)
class Visit:
    """One signed-in browser window and its errors."""

    page: Page
    address: str
    troubles: list[str]

    def look(self, path: str, picture: Path) -> None:
        """Opens a page, checks it, and saves its picture."""
        answer = self.page.goto(f"{self.address}{path}", wait_until="networkidle")
        expected = 404 if "no-such-page" in path else 400 if "colour=" in path else 200
        if answer is None or answer.status != expected:
            self.troubles.append(f"{path}: answered {answer.status if answer else 'nothing'}")
        width = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if width > 0:
            self.troubles.append(f"{path}: {width} px wider than the screen at {picture.stem}")
        self.page.screenshot(path=str(picture), full_page=True)


def main() -> int:
    """0 if every page was correct, else 1 with the errors listed."""
    parser = argparse.ArgumentParser(prog="python -m devtools.screenshots", description=__doc__)
    parser.add_argument("--address", default="http://127.0.0.1:8000")
    parser.add_argument("--email", default="admin@acme.example")
    parser.add_argument("--password", default="switchyard-demo")
    parser.add_argument("--out", type=Path, default=Path(".switchyard/screenshots"))
    parser.add_argument("--only", default="", help="names of pages, with commas between")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    troubles: list[str] = []
    with _chromium() as browser:
        for scheme in SCHEMES:
            for size in WIDTHS:
                troubles += _round(browser, options, scheme, size)
    for trouble in dict.fromkeys(troubles):
        print(trouble)
    return 1 if troubles else 0


def _round(browser: Browser, options: argparse.Namespace, scheme: str, size: str) -> list[str]:
    width, height = WIDTHS[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
    visit = Visit(context.new_page(), options.address.rstrip("/"), [])
    visit.page.on("console", lambda message: _note(visit, message))
    visit.page.on("pageerror", lambda error: visit.troubles.append(f"{visit.page.url}: {error}"))
    wanted = set(filter(None, options.only.split(",")))
    if not wanted or "sign-in" in wanted:
        visit.look("/login/", options.out / f"sign-in-{size}-{scheme}.png")
    _sign_in(visit, options.email, options.password)
    for name, path in {**PAGES, **_found_pages(visit)}.items():
        if not wanted or name in wanted:
            visit.look(path, options.out / f"{name}-{size}-{scheme}.png")
    context.close()
    return visit.troubles


def _sign_in(visit: Visit, email: str, password: str) -> None:
    visit.page.goto(f"{visit.address}/login/")
    visit.page.get_by_label("Email").fill(email)
    visit.page.get_by_label("Password").fill(password)
    visit.page.get_by_role("button", name="Sign in").click()
    visit.page.wait_for_url(f"{visit.address}/")


def _found_pages(visit: Visit) -> dict[str, str]:
    found = {}
    for name, (path, selector) in FIRST_LINKS.items():
        visit.page.goto(f"{visit.address}{path}")
        link = visit.page.locator(selector).first
        if link.count():
            found[name] = link.get_attribute("href") or path
    if "tenant" in found:
        found |= {name: f"{found['tenant']}{path}/" for name, path in OF_A_TENANT.items()}
        found |= _linked_pages(visit, found["organisation"])
    if "job-running" in found:
        found["job-logs"] = f"{found['job-running']}logs/"
    if node := _failing_node(visit):
        found["node"] = node
    if "cluster" in found:
        found["images"] = f"{found['cluster']}images/"
    return found


def _failing_node(visit: Visit) -> str:
    """The page of the demo's node with a failing GPU; empty if there is none."""
    visit.page.goto(f"{visit.address}/clusters/")
    cluster = visit.page.locator(".cluster-card a.title-link", has_text=FAILING[0]).first
    if not cluster.count():
        return ""
    visit.page.goto(f"{visit.address}{cluster.get_attribute('href')}")
    link = visit.page.locator("td a", has_text=FAILING[1]).first
    return link.get_attribute("href") or "" if link.count() else ""


def _linked_pages(visit: Visit, organisation: str) -> dict[str, str]:
    """A role's page and a person's."""
    found = {}
    for name, path, selector in (("role", "", "a[href*='/roles/']"), ("person", "people/", "a[href^='/people/']")):
        visit.page.goto(f"{visit.address}{organisation}{path}")
        link = visit.page.locator(selector).last
        if link.count():
            found[name] = link.get_attribute("href") or organisation
    return found


def _note(visit: Visit, message: ConsoleMessage) -> None:
    if message.type in {"error", "warning"} and not any(sign in visit.page.url for sign in ("no-such-page", "colour=")):
        visit.troubles.append(f"{visit.page.url}: {message.text}")


@contextmanager
def _chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=locate(), args=list(CHROMIUM_ARGUMENTS))
        yield browser
        browser.close()


if __name__ == "__main__":
    sys.exit(main())

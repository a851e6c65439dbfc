"""What the gateway itself says at the origin of a session, as a page for people and as text for programs.

The page needs no file: nothing of the gateway is served at these origins.
"""

import base64
import hashlib
from html import escape
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse

AGAIN_SECONDS = 5
TITLES = {
    HTTPStatus.UNAUTHORIZED: "The session is not open",
    HTTPStatus.FORBIDDEN: "Not allowed",
    HTTPStatus.NOT_FOUND: "No session here",
    HTTPStatus.BAD_GATEWAY: "The session does not answer",
    HTTPStatus.SERVICE_UNAVAILABLE: "Try again in a moment",
    HTTPStatus.GATEWAY_TIMEOUT: "The session does not answer",
}
STYLE = """
:root { color-scheme: light dark; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 1rem; box-sizing: border-box;
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere;
  background: light-dark(#f6f7f9, #0f1219); color: light-dark(#1d2330, #e8eaf0); }
main { width: 100%; max-width: 30rem; box-sizing: border-box; padding: 1.5rem 1.75rem; border-radius: 8px;
  background: light-dark(#fff, #191d27); border: 1px solid light-dark(#dfe3ea, #303646); }
h1 { margin: 0 0 .5rem; font-size: 1.25rem; }
p { margin: .5rem 0 0; }
.muted { color: light-dark(#596173, #a9b0c0); font-size: .875rem; }
"""


def digest_of(content: str) -> str:
    """The source of a policy that allows this inline style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


POLICY = (
    f"default-src 'none'; style-src {digest_of(STYLE)}; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


def page(title: str, content: str, *, head: str = "") -> str:
    """A page in the gateway's look. `content` and `head` are HTML."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>{head}'
        f"<style>{STYLE}</style></head><body><main><h1>{escape(title)}</h1>{content}</main></body></html>\n"
    )


def notice(request: HttpRequest, status: int, words: str, *, is_passing: bool = False) -> HttpResponse:
    """The words with this status. A page that shows what passes is loaded again after some seconds."""
    if not _is_for_people(request):
        return HttpResponse(f"{words}\n", status=status, content_type="text/plain; charset=utf-8")
    found = HTTPStatus(status)
    content = f"<p>{escape(words)}</p>"
    head = ""
    if is_passing and request.method == "GET":
        content += '<p class="muted">This page tries again every few seconds.</p>'
        head = f'<meta http-equiv="refresh" content="{AGAIN_SECONDS}">'
    answer = HttpResponse(page(TITLES.get(found, found.phrase), content, head=head), status=status)
    answer["Content-Security-Policy"] = POLICY
    return answer


def _is_for_people(request: HttpRequest) -> bool:
    """Whether a browser asks for a page, not a script for data."""
    return request.headers.get("Sec-Fetch-Dest", "document") == "document" and "text/html" in request.headers.get(
        "Accept", ""
    )

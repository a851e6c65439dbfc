"""Limits on passwords: budgets of attempts by account and address, and a limit on concurrent checks of passwords.

From one address, an account allows at most five attempts in a quarter of an hour, and an address may fail sixty times.
A browser in which the owner signed in before carries a signed cookie and has its own budget. So an attacker, even at
the same address, cannot lock the owner out. Unknown emails are counted and answered like any other.
"""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.conf import settings
from django.core import signing
from django.http import HttpRequest, HttpResponse

from foundation.ids import new_id
from foundation.problems import Overloaded
from tenancy.operations import refill, return_try, take_try

TRIES_FROM_ONE_ADDRESS = 5
TRIES_FROM_ANYWHERE = 50
TRIES_OF_AN_ADDRESS = 60
TRIES_OF_A_DEVICE = 10
COOKIE = "known_device"
COOKIE_SECONDS = 180 * 24 * 3600
LOOK_SECONDS = 10
RETRY_SECONDS = 3
MOST_INSIDE = 3
_at_work = threading.BoundedSemaphore(1)
_inside: set[str] = set()
_inside_lock = threading.Lock()
"""Checking a password takes both cores for a moment and 100 MiB. One runs at a time and two may wait; the other threads
serve signed-in users. No address has more than one of these places, so that no flood keeps others out.
"""


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt that was taken from these budgets."""

    account: str
    device: str
    budgets: dict[str, int]

    def succeed(self) -> None:
        """It was no guess: refills its own budgets and returns the attempt to those shared with others."""
        own = [key for key in self.budgets if key.startswith(("device|", "pair|"))]
        for key in own:
            refill(key)
        return_try([key for key in self.budgets if key not in own])

    def undo(self) -> None:
        """The password was not checked."""
        return_try(list(self.budgets))


def begin_try(request: HttpRequest, email: str) -> Try | None:
    """Takes an attempt for this account from this request's address; None if none is left."""
    account = hashlib.sha256(email.encode()).hexdigest()
    device = _device(request, account)
    source = request.META.get("REMOTE_ADDR", "")
    budgets = (
        {f"device|{account}|{device}": TRIES_OF_A_DEVICE}
        if device
        else {
            f"pair|{account}|{source}": TRIES_FROM_ONE_ADDRESS,
            f"source|{source}": TRIES_OF_AN_ADDRESS,
            f"account|{account}": TRIES_FROM_ANYWHERE,
        }
    )
    return Try(account, device or str(new_id()), budgets) if take_try(budgets) else None


def remember_device(response: HttpResponse, taken: Try) -> None:
    """Marks the browser as one in which the account's owner has signed in. It grants no access, only a budget of
    attempts.
    """
    response.set_cookie(
        COOKIE,
        signing.dumps([taken.account, taken.device], salt=COOKIE),
        max_age=COOKIE_SECONDS,
        path=settings.EDGE_SIGN_IN_PATH,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )


@contextmanager
def password_look(taken: Try) -> Iterator[None]:
    """A turn to check a password; Overloaded if too many wait for one, or if one from the same address already does."""
    place = next(key for key in taken.budgets if key.startswith(("device|", "source|")))
    with _inside_lock:
        if place in _inside or len(_inside) >= MOST_INSIDE:
            raise Overloaded(retry_after_seconds=RETRY_SECONDS)
        _inside.add(place)
    try:
        if not _at_work.acquire(timeout=LOOK_SECONDS):
            raise Overloaded(retry_after_seconds=RETRY_SECONDS)
        try:
            yield
        finally:
            _at_work.release()
    finally:
        with _inside_lock:
            _inside.discard(place)


def _device(request: HttpRequest, account: str) -> str:
    """The device's id, if the cookie is ours and of this account; empty otherwise."""
    try:
        owner, device = signing.loads(request.COOKIES.get(COOKIE, ""), salt=COOKIE, max_age=COOKIE_SECONDS)
    except (signing.BadSignature, ValueError, TypeError):
        return ""
    return str(device) if owner == account else ""

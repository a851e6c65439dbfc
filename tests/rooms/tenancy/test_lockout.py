"""Guessing passwords: how often, from where, and that its owner still gets in."""

import re
import threading

import pytest
import redis
from django.conf import settings
from django.contrib.auth.hashers import Argon2PasswordHasher
from django.test import Client

from foundation.clock import now
from tenancy.models import AuditEntry, SignInTry, User
from tenancy.operations import WINDOW, forget_what_is_over, return_try, take_try
from tenancy.web import lockout
from tests.kept_sessions import end_sessions

pytestmark = pytest.mark.django_db(transaction=True)
PASSWORD = "correct horse battery staple"
OWNER = "owner@example.org"
ATTACKER, HOME = "192.0.2.66", "198.51.100.7"


@pytest.fixture(scope="module")
def encoded():
    return Argon2PasswordHasher().encode(PASSWORD, "salt-of-the-tests")


@pytest.fixture(autouse=True)
def looks(monkeypatch, encoded):
    """Every password that was looked at; looking costs nothing here. For an unknown email one is hashed in vain."""
    seen = []

    def verify(self, password, _):
        seen.append(password)
        return password == PASSWORD

    def encode(self, password, _):
        seen.append(password)
        return encoded

    monkeypatch.setattr(Argon2PasswordHasher, "verify", verify)
    monkeypatch.setattr(Argon2PasswordHasher, "encode", encode)
    User.objects.create_user(OWNER, PASSWORD)
    seen.clear()
    return seen


def sign_in(password, email=OWNER, *, source=ATTACKER, client=None):
    return (client or Client()).post("/login/", {"email": email, "password": password}, REMOTE_ADDR=source)


def is_in(answer):
    return answer.status_code == 302


def known_device(source=HOME):
    """The owner's browser, which was signed in with and out again."""
    client = Client()
    assert is_in(sign_in(PASSWORD, client=client, source=source))
    client.cookies.pop("sessionid")
    return client


def guess(times, **where):
    return [sign_in("wrong", **where).status_code for _ in range(times)]


def in_parallel(count, work):
    barrier = threading.Barrier(count)
    results = []

    def run(number):
        barrier.wait()
        try:
            results.append(work(number))
        finally:
            end_sessions()

    threads = [threading.Thread(target=run, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_of_40_parallel_guesses_at_most_five_are_looked_at(looks):
    answers = in_parallel(40, lambda _: sign_in("wrong").status_code)
    assert len(looks) <= 5
    assert set(answers) <= {401, 503}
    guess(10)
    assert len(looks) == 5


def test_emptying_redis_makes_no_guess_free(looks):
    guess(5)
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        for key in client.scan_iter():
            client.delete(key)
    guess(5)
    assert len(looks) == 5


def test_the_right_password_is_not_looked_at_either_once_the_budget_is_spent(looks):
    guess(5)
    assert not is_in(sign_in(PASSWORD))
    assert PASSWORD not in looks


def test_an_attack_from_one_address_leaves_the_owner_in_from_another():
    guess(30)
    assert is_in(sign_in(PASSWORD, source=HOME))


def test_a_device_that_the_owner_knows_gets_in_from_the_attackers_own_address():
    client = known_device()
    guess(30)
    assert not is_in(sign_in(PASSWORD)), "an unknown browser there is locked out"
    assert is_in(sign_in(PASSWORD, source=ATTACKER, client=client))


def test_a_device_that_the_owner_knows_gets_in_while_the_whole_world_guesses():
    client = known_device()
    for number in range(lockout.TRIES_FROM_ANYWHERE + 5):
        take_try({"account|" + client_account(client): lockout.TRIES_FROM_ANYWHERE, f"x|{number}": 1})
    assert not is_in(sign_in(PASSWORD, source="203.0.113.5"))
    assert is_in(sign_in(PASSWORD, source="203.0.113.5", client=client))


def client_account(client):
    from django.core import signing  # noqa: PLC0415 - of this one test

    return signing.loads(client.cookies[lockout.COOKIE].value, salt=lockout.COOKIE)[0]


def test_a_stolen_device_cookie_gives_ten_guesses_at_its_own_account_and_none_at_others(looks):
    client = known_device()
    looks.clear()
    guess(15, client=client)
    assert len(looks) == lockout.TRIES_OF_A_DEVICE
    guess(15, client=client, email="other@example.org")
    assert len(looks) == lockout.TRIES_OF_A_DEVICE + lockout.TRIES_FROM_ONE_ADDRESS


@pytest.mark.parametrize("forge", [lambda text: text[:-2], lambda _: "a:b:c", lambda _: "", lambda text: "x" + text])
def test_a_forged_device_cookie_is_no_device(looks, forge):
    client = known_device()
    client.cookies[lockout.COOKIE] = forge(client.cookies[lockout.COOKIE].value)
    looks.clear()
    guess(8, client=client)
    assert len(looks) == lockout.TRIES_FROM_ONE_ADDRESS


def test_the_device_cookie_is_read_by_the_server_alone_and_signs_nobody_in():
    client = known_device()
    cookie = client.cookies[lockout.COOKIE]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Lax", "/login/")
    assert OWNER not in cookie.value
    assert client.get("/jobs/").status_code == 302


def test_an_address_may_not_go_through_many_accounts(looks):
    for number in range(lockout.TRIES_OF_AN_ADDRESS + 10):
        sign_in("wrong", email=f"p{number}@example.org")
    assert len(looks) == lockout.TRIES_OF_AN_ADDRESS


def test_a_success_gives_back_what_it_took():
    guess(4, source=HOME)
    for _ in range(lockout.TRIES_OF_AN_ADDRESS):
        assert is_in(sign_in(PASSWORD, source=HOME))
    guess(4, source=HOME)
    assert is_in(sign_in(PASSWORD, source=HOME))


def test_a_budget_is_full_again_after_its_window_and_is_then_forgotten(looks):
    guess(5)
    SignInTry.objects.update(until=now())
    guess(1)
    assert len(looks) == 6
    SignInTry.objects.update(until=now() - WINDOW)
    forget_what_is_over()
    assert not SignInTry.objects.exists()


def test_an_unknown_email_is_counted_looked_at_and_answered_like_a_known_one(looks):
    def told(email):
        answers = [sign_in("wrong", email=email, source=f"192.0.2.{len(email)}") for _ in range(7)]
        text = re.sub(r'value="[^"]*"', "", answers[0].content.decode())
        return [answer.status_code for answer in answers], text, len(looks)

    known = told(OWNER)
    looks.clear()
    assert told("nobody@example.org") == known


class Refusals:
    """Counts answers that say that all places are taken."""

    def __init__(self, enough):
        self.count, self.enough, self.lock, self.are_enough = 0, enough, threading.Lock(), threading.Event()

    def note(self, answer):
        with self.lock:
            self.count += answer.status_code == 503
            if self.count >= self.enough:
                self.are_enough.set()
        return answer


def test_many_at_once_do_not_keep_all_threads_waiting_for_a_password_to_be_looked_at(monkeypatch):
    at_once, most, lock, refusals = [0], [0], threading.Lock(), Refusals(17)

    def slow(*_, **__):
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        refusals.are_enough.wait(60)
        with lock:
            at_once[0] -= 1

    monkeypatch.setattr("tenancy.web.sign_in.authenticate", slow)
    answers = in_parallel(
        20, lambda number: refusals.note(sign_in("wrong", email=f"p{number}@example.org", source=f"192.0.2.{number}"))
    )
    assert most[0] == 1
    refused = [answer for answer in answers if answer.status_code == 503]
    assert len(refused) >= 17
    assert refused[0]["Retry-After"] == str(lockout.RETRY_SECONDS)
    kept = SignInTry.objects.filter(key__startswith="source|", tries=1).count()
    assert kept == 20 - len(refused), "who was not looked at lost no try"


def test_a_flood_from_one_address_leaves_places_for_others_to_have_their_password_looked_at(monkeypatch):
    go, refusals = threading.Event(), Refusals(8)

    def slow(request, **_):
        if request.META["REMOTE_ADDR"] == ATTACKER:
            go.wait(60)
            return None
        return User.objects.get(email=OWNER)

    monkeypatch.setattr("tenancy.web.sign_in.authenticate", slow)
    monkeypatch.setattr("tenancy.web.sign_in.login", lambda *_: None)

    def work(number):
        if number < 10:
            return refusals.note(sign_in("wrong", email=f"p{number}@example.org")).status_code
        assert refusals.are_enough.wait(60)
        threading.Timer(1.0, go.set).start()
        return sign_in(PASSWORD, source=HOME).status_code

    answers = in_parallel(11, work)
    assert answers.count(302) == 1
    assert answers.count(503) >= 8


def test_no_email_is_kept_in_a_budgets_key():
    guess(1)
    assert SignInTry.objects.count() == 3
    assert not SignInTry.objects.filter(key__contains="owner").exists()
    assert AuditEntry.objects.get().detail == {"email": OWNER, "why": "wrong_credentials"}


def test_tries_taken_and_given_back_at_once_wait_for_nobody_and_are_never_more_than_there_are():
    def work(number):
        taken = 0
        for turn in range(40):
            budgets = {f"pair|{turn % 3}": 30, "source|s": 60, f"account|{number % 2}": 50}
            if take_try(budgets):
                taken += 1
                if turn % 3 == 0:
                    return_try(list(budgets))
                    taken -= 1
        return taken

    kept = sum(in_parallel(8, work))
    assert kept <= 60
    assert SignInTry.objects.get(key="source|s").tries == kept

import pytest
from django.core.cache import cache
from redis.exceptions import ConnectionError as CacheAway

from tenancy.web import lockout


@pytest.fixture(autouse=True)
def _clean_counts():
    cache.clear()
    lockout._fallback.clear()


def fail(times, email="a@example.org", address="192.0.2.1"):
    for _ in range(times):
        lockout.note_failure(email, address)


def test_five_failures_from_one_address_lock_the_account_there():
    fail(4)
    assert not lockout.is_locked_out("a@example.org", "192.0.2.1")
    fail(1)
    assert lockout.is_locked_out("a@example.org", "192.0.2.1")
    assert lockout.is_locked_out(" A@Example.org", "192.0.2.1")


def test_an_account_is_not_locked_for_its_owner_elsewhere_by_a_few_failures():
    fail(5)
    assert not lockout.is_locked_out("a@example.org", "192.0.2.2")
    assert not lockout.is_locked_out("b@example.org", "192.0.2.1")


def test_many_failures_from_many_addresses_lock_the_account_everywhere():
    for number in range(lockout.FAILURES_FROM_ANYWHERE):
        fail(1, address=f"192.0.2.{number}")
    assert lockout.is_locked_out("a@example.org", "198.51.100.1")


def test_a_success_forgets_the_failures_from_its_address():
    fail(4)
    lockout.forget_failures("a@example.org", "192.0.2.1")
    fail(4)
    assert not lockout.is_locked_out("a@example.org", "192.0.2.1")


def test_guessing_is_not_free_while_the_cache_is_away(monkeypatch):
    def away(*_, **__):
        raise CacheAway

    for name in ("add", "incr", "get_many", "delete"):
        monkeypatch.setattr(lockout.cache, name, away)
    fail(5)
    assert lockout.is_locked_out("a@example.org", "192.0.2.1")
    lockout.forget_failures("a@example.org", "192.0.2.1")
    assert not lockout.is_locked_out("a@example.org", "192.0.2.1")

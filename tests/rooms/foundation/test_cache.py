"""Whoever can write to Redis can put anything under a key of the cache: it is a number, or it is not there."""

import logging
import os
import pickle

import pytest
import redis
from django.conf import settings
from django.core.cache import cache

from tenancy.web import lockout

KEY = "sign-in|planted"


class Runs:
    """Unpickled, it makes a folder."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


@pytest.fixture
def stranger():
    """A client with every right over the keys."""
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        yield client


@pytest.fixture(autouse=True)
def _empty():
    cache.clear()
    lockout._fallback.clear()


def hostile(folder):
    return {
        "pickle": pickle.dumps(Runs(folder)),
        "a pickled number": pickle.dumps(7.5),
        "text": b'"5"',
        "an object": b'{"a": 1}',
        "a fraction": b"1.5",
        "no end": b"9" * 5000,
        "too large for a counter": b"9223372036854775808",
        "a megabyte": b"x" * 2**20,
        "digits of another script": "\N{ARABIC-INDIC DIGIT FIVE}".encode(),
        "not text": b"\xff\xfe\x00",
        "nothing": b"",
        "spaces": b" 5 ",
        "underscores": b"1_0",
    }


def plant(client, key, value):
    client.set(cache.make_key(key), value)


@pytest.mark.parametrize("what", list(hostile(".")))
def test_whatever_is_planted_is_a_miss_and_is_told_and_never_runs(stranger, tmp_path, caplog, what):
    trap = tmp_path / "it-ran"
    plant(stranger, KEY, hostile(trap)[what])
    with caplog.at_level(logging.WARNING):
        assert cache.get(KEY) is None
        assert cache.get_many([KEY]) == {}
    assert not trap.exists()
    if what != "nothing":
        assert "not ours" in caplog.text
    assert "x" * 100 not in caplog.text


@pytest.mark.parametrize("make", ["rpush", "sadd", "hset", "zadd"])
def test_a_key_of_another_kind_is_a_miss_too(stranger, make):
    arguments = {"rpush": ["a"], "sadd": ["a"], "hset": ["a", "b"], "zadd": [{"a": 1}]}[make]
    getattr(stranger, make)(cache.make_key(KEY), *arguments)
    assert cache.get(KEY) is None
    with pytest.raises(ValueError, match="not found"):
        cache.incr(KEY)
    cache.set(KEY, 3, 60)
    assert cache.incr(KEY) == 4


@pytest.mark.parametrize("what", list(hostile(".")))
def test_counting_goes_on_over_whatever_was_planted(stranger, tmp_path, what):
    trap = tmp_path / "it-ran"
    for key in lockout._keys("a@example.org", "192.0.2.1"):
        plant(stranger, key, hostile(trap)[what])
    assert not lockout.is_locked_out("a@example.org", "192.0.2.1")
    for _ in range(lockout.FAILURES_FROM_ONE_ADDRESS):
        lockout.note_failure("a@example.org", "192.0.2.1")
    assert lockout.is_locked_out("a@example.org", "192.0.2.1")
    assert not trap.exists()


def test_a_counter_at_its_end_stays_there(stranger):
    plant(stranger, KEY, str(2**63 - 1).encode())
    assert cache.get(KEY) == 2**63 - 1
    with pytest.raises(ValueError, match="not found"):
        cache.incr(KEY)


@pytest.mark.parametrize("value", ["text", b"bytes", 1.5, True, None, [1], {"a": 1}, 2**63])
def test_nothing_but_whole_numbers_goes_in(value):
    with pytest.raises((TypeError, ValueError)):
        cache.set(KEY, value, 60)
    assert cache.get(KEY) is None


def test_clearing_the_cache_leaves_everything_else(stranger):
    stranger.set("swy-broker-somebody", "kept")
    cache.set(KEY, 1, 60)
    cache.clear()
    assert cache.get(KEY) is None
    assert stranger.get("swy-broker-somebody") == b"kept"
    stranger.delete("swy-broker-somebody")

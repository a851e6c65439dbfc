import os
import threading

import pytest
from argon2 import low_level
from django.contrib.auth.hashers import Argon2PasswordHasher, check_password, make_password

from foundation.passwords import NICE


@pytest.fixture
def lanes(monkeypatch):
    """What Argon2 is asked for: its lanes, and how much the thread that asks gives way."""
    seen = []

    def spy(name):
        real = getattr(low_level, name)

        def look(*arguments, **named):
            seen.append((threading.current_thread().name, os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))
            return real(*arguments, **named)

        monkeypatch.setattr(low_level, name, look)

    spy("hash_secret")
    return seen


def test_a_password_is_worked_out_on_one_lane_by_a_thread_that_gives_way(lanes):
    own = os.getpriority(os.PRIO_PROCESS, 0)
    encoded = make_password("correct horse", hasher="argon2")
    assert ",p=1$" in encoded
    [(thread, nice)] = lanes
    assert thread.startswith("password")
    assert nice == min(19, own + NICE)
    assert check_password("correct horse", encoded)
    assert not check_password("correct house", encoded)
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == own, "those who ask keep their place"


def test_a_password_kept_on_eight_lanes_still_opens_and_is_kept_anew():
    kept = []
    old = Argon2PasswordHasher().encode("correct horse", "salt-of-the-tests")
    assert ",p=8$" in old
    assert check_password("correct horse", old, setter=kept.append)
    assert kept == ["correct horse"]


def test_a_forked_child_looks_at_passwords_with_a_thread_of_its_own():
    encoded = make_password("correct horse", hasher="argon2")
    child = os.fork()
    if child == 0:
        os._exit(0 if check_password("correct horse", encoded) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

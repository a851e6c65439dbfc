"""How passwords are kept: Argon2id on one lane, worked out in a thread that gives way to all others.

The library's usual eight lanes take every core of a small machine for as long as one password is looked at, and whoever
guesses passwords then slows down those who work. One lane takes one core, and only while nobody else wants it.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from django.contrib.auth.hashers import Argon2PasswordHasher

NICE = 10


class GivingWayArgon2PasswordHasher(Argon2PasswordHasher):
    """Django's hasher, with its memory and its passes. A password kept with other parameters is kept anew at its next use."""

    parallelism = 1

    def encode(self, password: str, salt: str) -> str:
        return _thread(os.getpid()).submit(super().encode, password, salt).result()

    def verify(self, password: str, encoded: str) -> bool:
        return _thread(os.getpid()).submit(super().verify, password, encoded).result()


@cache
def _thread(_process: int) -> ThreadPoolExecutor:
    """The thread of one process; a forked child starts its own."""
    return ThreadPoolExecutor(1, thread_name_prefix="password", initializer=_give_way)


def _give_way() -> None:
    """Linux takes a thread's id where POSIX takes a process's."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + NICE)

"""Password hashing: Argon2id on one lane, computed in a thread with lower priority than all others.

The library's default of eight lanes takes every core of a small host while it checks one password. Then an attacker who
guesses passwords slows down other users. One lane takes one core, and only while it is otherwise idle.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from django.contrib.auth.hashers import Argon2PasswordHasher

NICE = 10


class GivingWayArgon2PasswordHasher(Argon2PasswordHasher):
    """Django's hasher with its memory and passes. A password stored with other parameters is hashed again at its next
    use.
    """

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
    """Linux accepts a thread's id where POSIX specifies a process's."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + NICE)

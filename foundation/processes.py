"""Requirements of a process at start, and the link between a forked child and its parent."""

import ctypes
import os
import signal

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

PR_SET_PDEATHSIG = 1
VARIABLES = {"REDIS_URL": "REDIS_URL", "SECRET_KEY": "SWITCHYARD_SECRET_KEY", "KEY_RING": "SWITCHYARD_KEY_RING"}
"""Settings that only some processes need, and their variables. A process gets only the secrets that it needs."""


def demand(process: str, *names: str) -> None:
    """Stops the boot of a process that lacks a required setting; ImproperlyConfigured names the variables."""
    missing = [VARIABLES[name] for name in names if not _is_set(name)]
    if missing:
        raise ImproperlyConfigured(
            f"{' and '.join(missing)} must be set for {process}, as a value or as NAME_FILE; .env.example lists every setting."
        )


def _is_set(name: str) -> bool:
    try:
        return bool(getattr(settings, name))
    except ImproperlyConfigured:  # Django's error for an empty SECRET_KEY
        return False


def die_with_parent(parent: int | None = None) -> None:
    """Makes the kernel kill this process when its parent ends, even by SIGKILL. If `parent`, the pid of the process that
    forked this one, has ended before, this one ends now. Does nothing except on Linux.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None:
        return
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)

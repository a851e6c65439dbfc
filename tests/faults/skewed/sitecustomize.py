"""Loaded by every process under test before all else: its wall clock is wrong by what a file says for its role.

The product asks one function for the time (`foundation.clock.now`); that is the one that lies. The file is named by
SWITCHYARD_TEST_SKEWS and holds seconds by role: {"worker": 7200}.
"""

import json
import os
import sys
import time
from datetime import timedelta
from importlib.machinery import PathFinder
from pathlib import Path

_FILE = Path(os.environ.get("SWITCHYARD_TEST_SKEWS", "/nonexistent"))
_ROLE = next((role for role in ("worker", "observer", "beat", "gunicorn") if role in sys.orig_argv), "")
_LOOK_SECONDS = 0.2


class _Finder:
    """Finds the module as ever, and puts the wrong clock in as soon as it is loaded."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "foundation.clock":
            return None
        spec = PathFinder.find_spec(name, path, target)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            _put_wrong(module)

        spec.loader.exec_module = exec_module
        return spec


def _put_wrong(module):
    right, seen = module.now, {"until": 0.0, "seconds": 0.0}

    def now():
        if time.monotonic() >= seen["until"]:
            seen["until"] = time.monotonic() + _LOOK_SECONDS
            try:
                seen["seconds"] = json.loads(_FILE.read_text()).get(_ROLE, 0.0)
            except (OSError, ValueError):
                seen["seconds"] = 0.0
        return right() + timedelta(seconds=seen["seconds"])

    module.now = now


if _ROLE:
    sys.meta_path.insert(0, _Finder)

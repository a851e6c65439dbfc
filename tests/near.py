"""Sessions that the tests' own processes have with the tests' server use its socket in the file system, which costs both sides less
than loopback.

And the server plans each of their statements once. By default it makes five plans for the values of each use, and then one for any
values: most statements of a test come two or three times, so that planning was a third of the server's work.

A process of the tests and the server's process of its session take turns. On one core, that costs both somewhat less than to wake each
other on another (7 % in the mean of six pairs of runs on a busy host): where a process of the tests stays on a core, its sessions do too.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

SOCKETS = "SERVER_SOCKETS"
"""The variable that names the folder of the server's socket, if it has one."""
ONE_PLAN = "-c plan_cache_mode=force_generic_plan"


def near(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a session, with the socket's folder as its host, and one plan for each statement, if it is one with that server."""
    given = dict(parameters)
    own = os.environ.get("DATABASE_URL", "")
    if SOCKETS in os.environ and f"@{given.get('host')}:{given.get('port')}/" in own:
        given["host"] = os.environ[SOCKETS]
        given["options"] = f"{given.get('options', '')} {ONE_PLAN}".lstrip()
    return given


def stay_on_a_core(worker: str) -> None:
    """Of xdist's workers (gw0, gw1), each on its own, as long as there are enough."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})


def stay_near(session: Any) -> None:
    """The server's process stays on the core on which ours stays, if that is one alone, and if it is the tests' server."""
    cores = os.sched_getaffinity(0)
    if len(cores) == 1 and session.info.host == os.environ.get(SOCKETS):
        with suppress(OSError):  # without it, the session costs more
            os.sched_setaffinity(session.info.backend_pid, cores)

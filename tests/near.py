"""Sessions that the tests' own processes have with the tests' server use its socket in the file system, which costs both sides less
than loopback.

And the server plans each of their statements once. By default it makes five plans for the values of each use, and then one for any
values: most statements of a test come two or three times, so that planning was a third of the server's work.
"""

import os
from collections.abc import Mapping
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

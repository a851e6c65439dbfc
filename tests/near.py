"""Sessions that the tests' own processes have with the tests' server use its socket in the file system, which costs both sides less
than loopback.
"""

import os
from collections.abc import Mapping
from typing import Any

SOCKETS = "SERVER_SOCKETS"
"""The variable that names the folder of the server's socket, if it has one."""


def near(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a session, with the socket's folder as its host if it is one with that server."""
    given = dict(parameters)
    own = os.environ.get("DATABASE_URL", "")
    if SOCKETS in os.environ and f"@{given.get('host')}:{given.get('port')}/" in own:
        given["host"] = os.environ[SOCKETS]
    return given

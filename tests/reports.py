"""What a process that xdist started tells the one that prints: the result of each test.

By default it also tells the begin and the end of each test, and that its fixtures were made and undone: four of six messages, which
cost both processes a millisecond and a half a test.
"""

from collections.abc import Callable
from typing import Any

import pytest

UNREAD = frozenset({"logstart", "logfinish"})


def pytest_sessionstart(session: pytest.Session) -> None:
    for plugin in session.config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":
            plugin.sendevent = _only_what_is_read(plugin.sendevent)


def _only_what_is_read(send: Callable[..., None]) -> Callable[..., None]:
    def sent(name: str, **given: Any) -> None:
        if not is_unread(name, **given):
            send(name, **given)

    return sent


def is_unread(name: str, data: Any = None, **_: object) -> bool:
    """Whether a message says nothing that is printed."""
    if name == "testreport":
        return bool(data["outcome"] == "passed" and data["when"] != "call")
    return name in UNREAD

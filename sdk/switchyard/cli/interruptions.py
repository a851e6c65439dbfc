"""What Ctrl-C does, and SIGTERM, which pipelines send when they are cancelled."""

import signal
from types import FrameType

INTERRUPTED = 130
"""The exit status of an interrupted command."""


class Interrupted(BaseException):
    """The command was interrupted. KeyboardInterrupt would become typer's own exit status."""


def end_by_exception() -> None:
    """From now on, both signals raise Interrupted."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise Interrupted

"""Named points at which a test may have the process killed, to prove that dying there is harmless.

With `SWITCHYARD_CRASH_FLAGS=/some/folder`, passing the point `NAME` while the file `NAME` exists there kills this process
with SIGKILL; the file is removed first, so the restarted process survives. Without the variable it does nothing.
"""

import os
import signal
from pathlib import Path

_FLAGS = os.environ.get("SWITCHYARD_CRASH_FLAGS", "")


def crash_point(name: str) -> None:
    """Dies here if a flag of this name stands."""
    if not _FLAGS:
        return
    try:
        (Path(_FLAGS) / name).unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)

"""Named points at which a test may kill the process, to prove that a crash there does no harm.

With `SWITCHYARD_CRASH_FLAGS=/some/folder`, passing the point `NAME` while the file `NAME` exists there kills this
process with SIGKILL. The file is removed first, so the restarted process survives. Without the variable, the points do
nothing.
"""

import os
import signal
from pathlib import Path

_FLAGS = os.environ.get("SWITCHYARD_CRASH_FLAGS", "")


def crash_point(name: str) -> None:
    """Kills the process here if a flag of this name exists."""
    if not _FLAGS:
        return
    try:
        (Path(_FLAGS) / name).unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)

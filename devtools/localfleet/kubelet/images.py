"""What stands for a container's image: this host's files, with the project's Python first on the PATH."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RUN_SECONDS = "sim.switchyard.dev/run-seconds"
EXIT_CODE = "sim.switchyard.dev/exit-code"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROGRAM = 'trap "exit 143" TERM; sleep "$0" & wait $!; exit "$1"'
"""A program that runs as long, and ends so, as KWOK pretends."""


def variables_of_image(hostname: str) -> dict[str, str]:
    """The variables that every container has."""
    return {"PATH": f"{Path(sys.executable).parent}:{SYSTEM_PATH}", "HOME": "/", "HOSTNAME": hostname}


def program_of(manifest: Mapping[str, Any]) -> Sequence[str]:
    """The program of the image, for a container without a command: it follows the annotations that KWOK follows."""
    annotations = manifest["metadata"].get("annotations") or {}
    seconds = annotations.get(RUN_SECONDS, "1")
    return ["/bin/sh", "-c", PROGRAM, "infinity" if seconds == "never" else seconds, annotations.get(EXIT_CODE, "0")]

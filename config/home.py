"""The settings that `make serve` keeps in its home: `manage.py` uses them if none are given."""

import json
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

FILE = "environment.json"
SERVERS = ("DATABASE_URL", "REDIS_URL")
PREFIX = "SWITCHYARD_"


def is_ours(name: str) -> bool:
    """Whether the gateway reads this variable."""
    return name.startswith(PREFIX) or name.removesuffix("_FILE") in SERVERS


def take_settings_of_home(environment: MutableMapping[str, str], project: Path) -> None:
    """Adds the settings of the home, unless the environment names a database, which belongs to another installation.

    The home is SWITCHYARD_HOME, or `.switchyard` in the project. A file that other users can write is ignored.
    """
    if any(environment.get(name) for name in ("DATABASE_URL", "DATABASE_URL_FILE")):
        return
    file = Path(environment.get("SWITCHYARD_HOME") or project / ".switchyard") / FILE
    for name, value in _kept(file).items():
        if is_ours(name) and not {name, f"{name}_FILE"} & environment.keys():
            environment[name] = value


def _kept(file: Path) -> Mapping[str, str]:
    try:
        state = file.stat()
        if state.st_uid != os.geteuid() or state.st_mode & 0o022:
            return {}
        kept: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept

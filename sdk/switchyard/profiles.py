"""Where the address and the token of a gateway come from: options, the environment, or what `switchyard login` stored."""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .client import checked_address, checked_token
from .problems import NotConfigured

ADDRESS, TOKEN, TOKEN_FILE, CA_FILE = "SWITCHYARD", "SWITCHYARD_TOKEN", "SWITCHYARD_TOKEN_FILE", "SWITCHYARD_CA_FILE"


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a gateway, and as whom."""

    address: str
    token: str
    ca_file: str | None = None

    def __repr__(self) -> str:
        return f"Access({self.address!r})"  # never the token


def access(profile: str, environment: Mapping[str, str] = os.environ) -> Access:
    """The gateway and token to use: each variable of the environment before what the profile has. Raises NotConfigured."""
    stored = _stored().get(profile, {})
    address = environment.get(ADDRESS) or stored.get("address")
    if not address:
        raise NotConfigured(f"No gateway is known. Run `switchyard login ADDRESS`, or set {ADDRESS} and {TOKEN}.")
    token = environment.get(TOKEN) or _from_file(environment.get(TOKEN_FILE))
    if not token and checked_address(address) == stored.get("address"):  # a stored token goes to its own gateway only
        token = stored.get("token")
    if not token:
        raise NotConfigured(f"No token for {address} is known. Run `switchyard login {address}`, or set {TOKEN}.")
    return Access(checked_address(address), checked_token(token), environment.get(CA_FILE) or stored.get("ca_file"))


def store(profile: str, what: Access) -> Path:
    """The file in which the profile now stands. Only its owner can read it."""
    return _write(_stored() | {profile: {"address": what.address, "token": what.token, "ca_file": what.ca_file}})


def forget(profile: str) -> bool:
    """Whether there was such a profile."""
    stored = _stored()
    if profile not in stored:
        return False
    del stored[profile]
    _write(stored)
    return True


def file() -> Path:
    """The file of profiles."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "switchyard" / "profiles.json"


def _stored() -> dict[str, dict[str, Any]]:
    try:
        stored = json.loads(file().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise NotConfigured(f"{file()} cannot be read: {error}. Mend it, or delete it and log in again.") from error
    if not isinstance(stored, dict) or not all(isinstance(one, dict) for one in stored.values()):
        raise NotConfigured(f"{file()} has another form than this program writes: delete it and log in again.")
    return stored


def _write(stored: Mapping[str, Any]) -> Path:
    path = file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, written = tempfile.mkstemp(dir=path.parent)  # which is readable for its owner only
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        json.dump(stored, out, indent=2)
    Path(written).replace(path)
    return path


def _from_file(name: str | None) -> str | None:
    if not name:
        return None
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise NotConfigured(f"{TOKEN_FILE}: {error}") from error

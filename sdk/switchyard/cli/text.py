"""How values read in a terminal."""

import re
import time
import unicodedata
from collections.abc import Mapping
from datetime import datetime
from typing import Any

MINUTE, HOUR, DAY = 60, 3600, 86400
_UNITS = {"": 1, "s": 1, "m": MINUTE, "min": MINUTE, "h": HOUR}
_DURATION = re.compile(r"([0-9]{1,6})(|s|m|min|h)", re.ASCII)


def clean(value: Any) -> str:
    """The value as one line of text, without characters that steer a terminal: names and messages come from others."""
    return "".join("�" if unicodedata.category(sign) in {"Cc", "Cf", "Zl", "Zp"} else sign for sign in str(value))


def clean_line(text: str) -> str:
    """A line of a program's output; it may have tabs."""
    return "\t".join(clean(part) for part in text.split("\t"))


def age(instant: str | None) -> str:
    """How long ago it was, such as `5 min`."""
    if instant is None:
        return ""
    return duration(max(0, int(time.time() - datetime.fromisoformat(instant).timestamp())))


def duration(seconds: int) -> str:
    """In the largest fitting unit, rounded down."""
    for unit, length in (("d", DAY), ("h", HOUR), ("min", MINUTE)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def seconds_of(text: str) -> int | None:
    """The seconds that `600`, `600s`, `10m`, `10min` or `1h` names; None if it names none."""
    found = _DURATION.fullmatch(text)
    return None if found is None else int(found[1]) * _UNITS[found[2]]


def waiting_stop(stop: Mapping[str, Any]) -> str:
    """Until when a stop waits for a checkpoint, behind a job's state."""
    then = "suspended" if stop["then"] == "suspend" else "moved"
    return f"; {then} at its next checkpoint, {local(stop['until'])} at the latest"


def local(instant: str | None) -> str:
    """In this host's time zone, which it names."""
    return "" if instant is None else datetime.fromisoformat(instant).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def money(amount: Mapping[str, Any] | None) -> str:
    """To cents, rounded down; `--output json` has all places."""
    if not amount or not amount.get("currency"):
        return ""
    whole, _, places = str(amount["amount"]).partition(".")
    return f"{whole}.{places[:2]:0<2} {amount['currency']}"


def request(spec: Mapping[str, Any]) -> str:
    """What a job asks for, such as `8 × 8 H100-80GB`."""
    return ", ".join(_pods(pod_set) for pod_set in spec.get("pod_sets", []))


def _pods(pod_set: Mapping[str, Any]) -> str:
    gpu = pod_set.get("gpu") or {}
    if gpu.get("mig"):
        what = f"{gpu.get('count') or 1} MIG {gpu['mig']}"
    elif gpu.get("fraction"):
        what = f"{gpu['fraction']} GPU"
    elif gpu.get("count"):
        what = f"{gpu['count']} {' or '.join(gpu.get('models') or []) or 'GPU'}"
    else:
        what = f"{pod_set.get('cpu', '?')} CPU, {pod_set.get('memory', '?')}"
    count = pod_set.get("count") or 1
    return what if count == 1 else f"{count} × {what}"

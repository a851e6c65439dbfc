"""A pod's status from the states of its containers, as a kubelet reports it."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

Status = dict[str, Any]
PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
ENDED = (SUCCEEDED, FAILED)
UNKNOWN_CODE = 137


def now() -> str:
    """The time in Kubernetes' form, which has whole seconds."""
    return f"{datetime.fromtimestamp(time.time(), UTC):%Y-%m-%dT%H:%M:%SZ}"


def waiting(reason: str, message: str = "") -> Status:
    """The state of a container that does not run yet, or not at present."""
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def running(started_at: str) -> Status:
    """The state of a container that runs."""
    return {"running": {"startedAt": started_at}}


def terminated(code: int, reason: str, *, started_at: str = "", message: str = "") -> Status:
    """The state of a container that has ended now."""
    optional = {"startedAt": started_at, "message": message}
    found = {"exitCode": code, "reason": reason, "finishedAt": now()}
    return {"terminated": found | {key: value for key, value in optional.items() if value}}


def lost() -> Status:
    """The state of a container of which no process is left to ask: it counts as failed."""
    message = "The container could not be located when the pod was terminated"
    return {"terminated": {"exitCode": UNKNOWN_CODE, "reason": "ContainerStatusUnknown", "message": message}}


def phase_of(mains: Sequence[Status], *, is_over: bool, has_failed: bool) -> str:
    """The phase of a pod with these containers' statuses.

    `is_over`: no container runs or will run. `has_failed`: it is not initialized, or has failed otherwise.
    """
    if is_over:
        codes = [status["state"].get("terminated", {}).get("exitCode", UNKNOWN_CODE) for status in mains]
        return FAILED if any(codes) or has_failed else SUCCEEDED
    never_began = [status for status in mains if "waiting" in status["state"] and not status.get("lastState")]
    return PENDING if never_began else RUNNING


class Conditions:
    """The conditions that a kubelet owns; each keeps the time of its last change."""

    def __init__(self) -> None:
        self._known: dict[str, Status] = {}

    def put(self, kind: str, reason: str = "", *, holds: bool) -> None:
        """Records whether the condition holds now."""
        status = "True" if holds else "False"
        before = self._known.get(kind, {})
        since = before["lastTransitionTime"] if before.get("status") == status else now()
        self._known[kind] = {"type": kind, "status": status, "reason": reason or None, "lastTransitionTime": since}

    def all(self) -> list[Status]:
        """As the status has them, for a strategic merge."""
        return list(self._known.values())

"""The session of a job: read from untrusted JSON, checked against the rest of the job, and written in the normal form."""

from collections.abc import Mapping
from typing import Any

from federation.engine.sessions import (
    MAX_IDLE_SECONDS,
    MAX_PORT,
    MAX_SESSION_SECONDS,
    MIN_IDLE_SECONDS,
    MIN_PORT,
    Session,
)

from .reading import Fields
from .spec import Rules

SESSION_FIELDS = frozenset(["port", "idle_seconds"])


def read_session(fields: Fields, rules: Rules) -> Session | None:
    """The session that a job is."""
    given = Fields(fields.values["session"], fields.at("session"), fields.faults, SESSION_FIELDS)
    port = given.whole("port", MIN_PORT, MAX_PORT, required=True)
    idle = given.whole("idle_seconds", MIN_IDLE_SECONDS, MAX_IDLE_SECONDS, required=True)
    if not rules.has_sessions:
        told = "this installation has no sessions: an operator sets SWITCHYARD_SESSION_ORIGIN first"
        fields.fault("session", "not_allowed", told)
    return None if port is None or idle is None else Session(port, idle)


def check_session(fields: Fields, found: Mapping[str, Any]) -> None:
    """A session is one pod, and its job says when it ends at the latest."""
    if found.get("session") is None:
        return
    deadline = found.get("deadline_seconds")
    if deadline is None:
        fields.fault("deadline_seconds", "required", "a session needs a deadline")
    elif deadline > MAX_SESSION_SECONDS:
        fields.fault("deadline_seconds", "out_of_range", f"a session may have at most {MAX_SESSION_SECONDS}")
    pod_sets = found["pod_sets"]
    if len(pod_sets) > 1:
        fields.fault("pod_sets", "not_allowed", "a session has one pod set")
    elif pod_sets and pod_sets[0].count != 1:
        fields.fault("pod_sets[0].count", "not_allowed", "a session has one pod")
    if found.get("completions") is not None:
        fields.fault("completions", "not_allowed", "a session has no completions")


def session_json(session: Session) -> dict[str, int]:
    """The normal form of a session."""
    return {"port": session.port, "idle_seconds": session.idle_seconds}

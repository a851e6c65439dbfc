"""How a cluster's health is derived: from a response, silence or a refusal, and the findings against it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

MAX_CLOCK_SKEW_MS = 60_000
"""Beyond this difference the cluster's times cannot be trusted for usage, and tokens fail unpredictably."""
NOT_READY_SHARE = 4
"""A cluster is degraded if at least one node in this number is not ready."""
NODES_NAMED = 5
TOO_LARGE = "too_large"
TOO_MANY_VANISHED = "too_many_vanished"
OPEN_STATES = frozenset({"ready", "degraded"})
"""States of a cluster that takes new work."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a cluster is not simply ready: `code` is stable, `message` is for users."""

    code: str
    message: str

    def as_json(self) -> dict[str, str]:
        """The form in which it is stored and shown."""
        return {"code": self.code, "message": self.message}


@dataclass(frozen=True, slots=True)
class Freshness:
    """How current a cluster's data is: whole minutes since the last observation, 0 while that is recent."""

    minutes: int = 0
    is_stale: bool = False


FRESH = Freshness()


def freshness(
    now: datetime, last_seen_at: datetime | None, observed_at: datetime | None, limit_seconds: int
) -> Freshness:
    """Data is recent up to half of `limit_seconds` and stale beyond all of it; a cluster never reached has no data to
    trust.

    The age counts from the older of the two: contact may continue while the watches are stuck, and the reverse.
    """
    known = [at for at in (last_seen_at, observed_at) if at is not None]
    age_seconds = (now - min(known)).total_seconds() if known else 0
    if age_seconds <= limit_seconds / 2:
        return FRESH
    return Freshness(max(1, int(age_seconds // 60)), age_seconds > limit_seconds)


def stale_findings(found: Freshness) -> list[Reason]:
    """The reason against a cluster that was not observed for too long, if any."""
    if not found.is_stale:
        return []
    told = f"Last observed {found.minutes} min ago: it takes no new jobs until it is observed again."
    return [Reason("stale", told)]


def creates_findings(told: str) -> list[Reason]:
    """The reason against a cluster that responds but fails to create what jobs need; none if `told` is empty."""
    return [Reason("creates_fail", f"It fails to create jobs' objects: {told}")] if told else []


def services_findings(refusal: str) -> list[Reason]:
    """The reason against a cluster that denies the Services of gangs; `refusal` is empty if it does not."""
    if not refusal:
        return []
    return [Reason("services_closed", f"Jobs of several pods do not start there, others do: {refusal[:600]}")]


def vanished_finding(absent: int, released: int) -> Reason:
    """The reason against a cluster that lacks too many of the released objects: none of their runs is ended."""
    told = (
        f"{absent} of {released} released objects no longer exist (was the control plane restored from a backup?). No job"
        " was ended. Find out what still runs there, then attest that the rest is gone."
    )
    return Reason(TOO_MANY_VANISHED, told)


def orphans_finding(orphans: int, listed: int) -> Reason:
    """The reason against a cluster with too many objects of unknown attempts: none is deleted."""
    told = f"{orphans} of {listed} objects belong to unknown attempts (was an old backup restored?). None was deleted."
    return Reason("too_many_orphans", told)


def unknown_runs_finding(running: int) -> Reason:
    """The reason against a cluster where objects of unknown attempts run."""
    told = (
        f"{running} objects run for unknown attempts. Was the gateway's database restored? None was deleted. Run"
        " `manage.py standstill begin` to adopt them."
    )
    return Reason("unknown_runs", told)


ORIGIN_OF: Mapping[str, str] = MappingProxyType(
    {
        "unreachable": "contact",
        "identity_changed": "contact",
        "auth_failed": "contact",
        "clock_skew": "clock",
        "missing_permission": "access",
        "excess_permission": "access",
        "unproven_permission": "access",
        "devices_closed": "devices",
        "too_large": "size",
        "creates_fail": "creates",
        "services_closed": "services",
        "nodes_not_ready": "inventory",
        "implausible_capacity": "inventory",
        TOO_MANY_VANISHED: "comparison",
        "too_many_orphans": "comparison",
        "unknown_runs": "comparison",
    }
)
"""Each reason's origin: a new report of an origin replaces only the earlier reasons of that origin."""


def merged(current: Sequence[Mapping[str, str]], origin: str, found: Sequence[Reason]) -> list[dict[str, str]]:
    """The reasons after a report of `origin`, in a stable order."""
    kept = [dict(reason) for reason in current if ORIGIN_OF.get(reason["code"]) != origin]
    return sorted([*kept, *(reason.as_json() for reason in found)], key=lambda reason: reason["code"])


def clock_findings(skew_ms: int) -> list[Reason]:
    """The reason against a cluster whose clock differs too much from ours, if any."""
    if abs(skew_ms) <= MAX_CLOCK_SKEW_MS:
        return []
    direction = "ahead of" if skew_ms > 0 else "behind"
    return [Reason("clock_skew", f"The cluster's clock is {abs(skew_ms) // 1000} s {direction} the gateway's.")]


def inventory_findings(nodes: int, not_ready: int, implausible: Sequence[str]) -> list[Reason]:
    """The reasons against a cluster with too many nodes down, or with nodes (named) that claim an
    implausible capacity.
    """
    findings = []
    if not_ready and not_ready * NOT_READY_SHARE >= nodes:
        findings.append(Reason("nodes_not_ready", f"{not_ready} of {nodes} nodes are not ready."))
    if implausible:
        named = ", ".join(implausible[:NODES_NAMED]) + (" and more" if len(implausible) > NODES_NAMED else "")
        findings.append(Reason("implausible_capacity", f"Nodes whose implausible capacity counts as 0: {named}."))
    return findings


def device_findings(refusal: str) -> list[Reason]:
    """The reason against a cluster that denies access to its claimable devices; `refusal` is empty if it does not."""
    if not refusal:
        return []
    told = (
        f"Devices of dynamic resource allocation do not count because the credential cannot read them: {refusal[:300]}"
    )
    return [Reason("devices_closed", told)]


def size_findings(told: str) -> list[Reason]:
    """The reason against a cluster with more data than the gateway keeps of one; `told` is empty if it has not."""
    if not told:
        return []
    what_to_do = "Nothing is placed there until it reports less. Find out what fills it, or split the cluster."
    return [Reason(TOO_LARGE, f"It is not observed because {told[:300]}. {what_to_do}")]


def answering_health(reasons: Sequence[Mapping[str, str]]) -> str:
    """`ready`, or `degraded` if there is any finding against a cluster that responds."""
    return "degraded" if reasons else "ready"

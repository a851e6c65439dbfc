"""Why a job waits although there was room for it when the cycle began: another tenant's turn came first."""

from collections.abc import Callable

from placement.values.decisions import Placement, Wait
from placement.values.model import JobRequest
from placement.values.reason_codes import ReasonCode

from .fair_share import OWN, Behind, Turns

FOR_ROOM = frozenset({ReasonCode.WAITING_FOR_CAPACITY, ReasonCode.BEHIND_IN_QUEUE})
ANOTHER_TENANT = "another tenant"
MOST_EXPLAINED = 200
"""The kinds of waiting jobs in a cycle for which this is looked up: one costs about as much as considering a job."""


class ShareReasons:
    """Jobs of one tenant and shape share the answer, which is that of the first of them."""

    def __init__(self, turns: Turns, at_first: Callable[[JobRequest], Placement | None]) -> None:
        self._turns = turns
        self._at_first = at_first
        """Where a job would have gone before the cycle placed any."""
        self._found: dict[object, Behind | None] = {}

    def of(self, job: JobRequest, wait: Wait) -> Wait:
        """The wait, which says so if the job's room went to another tenant in this cycle."""
        if wait.code not in FOR_ROOM:
            return wait
        key = (job.tenant_path, job.shape or job.id)
        if key not in self._found:
            if len(self._found) >= MOST_EXPLAINED:
                return wait
            wanted = self._at_first(job)
            self._found[key] = None if wanted is None else self._turns.behind(job, wanted)
        behind = self._found[key]
        if behind is None:
            return wait
        message = f"{share_text(behind)}; {wait.message}"
        return wait._replace(code=ReasonCode.WAITING_FOR_SHARE, message=message, went_first=went_first(behind))


def went_first(behind: Behind) -> str:
    """The path of the tenant whose turn came first; empty if it is another organisation, or above the job's own tenant."""
    return "" if "/" not in behind.other or behind.other.endswith(OWN) else behind.other


def share_text(behind: Behind) -> str:
    """The text for all users who may see the job. It names the job's own tenant and those above it only."""
    other = "another organisation" if "/" not in behind.other else _named(behind.other)
    if went_first(behind):
        other = ANOTHER_TENANT
    return (
        f"its room went to {other}, whose share of the fleet was {_percent(behind.other_share)}; "
        f"that of {_named(behind.own)} is {_percent(behind.own_share)}"
    )


def _named(path: str) -> str:
    return f"the own jobs of {path.removesuffix(OWN)}" if path.endswith(OWN) else path


def _percent(share: float) -> str:
    return f"{share * 100:.2f} %"

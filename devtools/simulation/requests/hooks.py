"""A policy hook of the simulated installation: it changes jobs, refuses some, and fails at times."""

from collections.abc import Callable, Mapping
from typing import Any

from devtools.simulation.core.faults import Faults
from devtools.simulation.core.scheduler import Scheduler
from federation.engine.intake.policy_hooks import PolicyRefused

KINDS = ("hook_changes", "hook_refuses", "hook_fails")


class Hook:
    """Stands for an entry point of the group `switchyard.policies`."""

    name = "simulated"
    value = "simulation:hook"

    def __init__(self, faults: Faults, scheduler: Scheduler) -> None:
        self._faults = faults
        self._scheduler = scheduler

    def load(self) -> Callable[[Mapping[str, Any], object], Mapping[str, Any]]:
        """The hook itself."""
        return self._answer

    def _answer(self, spec: Mapping[str, Any], asker: object) -> Mapping[str, Any]:
        """The whole spec, perhaps changed. It takes its time, in which others run."""
        del asker
        self._scheduler.sleep(self._faults.between(0.001, 2))
        match self._faults.first(KINDS):
            case "hook_changes":
                return {**spec, "labels": spec["labels"] | {"policy": "changed"}}
            case "hook_refuses":
                raise PolicyRefused("not on a Friday")
            case "hook_fails":
                raise RuntimeError("the hook has a defect")
        return {**spec}


def hooks_of(faults: Faults, scheduler: Scheduler) -> tuple[Hook, ...]:
    """The hooks of a world: one if its seed has any of their kinds."""
    return (Hook(faults, scheduler),) if any(faults.rates.get(kind) for kind in KINDS) else ()

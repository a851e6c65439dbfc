"""The number of pods that an elastic job may run with."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Elastic:
    """The pod set of a job, by its position, that may have `fewest` to `most` pods in a run."""

    position: int
    fewest: int
    most: int

    def text(self, pods: int) -> str:
        """`6 of 4 to 8 pods`."""
        return f"{pods} of {self.fewest} to {self.most} pods"

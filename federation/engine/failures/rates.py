"""How often jobs failed on a node or device: a share with the range of true rates that it may come from."""

from dataclasses import dataclass
from math import sqrt

LEAST_FAILURES = 2
Z = 1.96
"""Of the normal distribution: the range contains the true rate in 95 of 100 cases."""


@dataclass(frozen=True, slots=True)
class Rate:
    """`failures` of `jobs`; each job counts once. `low` and `high` are Wilson's score interval for 95 %."""

    failures: int
    jobs: int

    @property
    def share(self) -> float | None:
        """The share that failed; None without a job."""
        return self.failures / self.jobs if self.jobs else None

    @property
    def low(self) -> float:
        """The lower end of the interval; 0 without a job."""
        return max(0.0, self._middle - self._reach) if self.failures else 0.0

    @property
    def high(self) -> float:
        """The upper end of the interval; 1 without a job."""
        return min(1.0, self._middle + self._reach) if self.failures < self.jobs else 1.0

    @property
    def _middle(self) -> float:
        return (self.failures + Z * Z / 2) / (self.jobs + Z * Z)

    @property
    def _reach(self) -> float:
        spread = self.failures * (self.jobs - self.failures) / self.jobs if self.jobs else 0.0
        return Z * sqrt(spread + Z * Z / 4) / (self.jobs + Z * Z)

    def is_above(self, usual: "Rate") -> bool:
        """Whether even its lower end is above the upper end of the usual rate, by two jobs or more: one failure proves nothing."""
        return self.failures >= LEAST_FAILURES and self.low > usual.high

"""The part of the usual pods that a node could not run, by its free units and cores: looked up, not counted for each node.

A kind of pod fits if the pool serves it and the node has its units and its cores. So the part that does not fit is a step
function of both, and changes only where some kind begins to fit. A row of the table is for nodes of pools that serve the kinds
alike and meet equally many of the different requests for units. It is made when the first such node is seen, because users may
queue thousands of kinds.
"""

from collections.abc import Sequence

import numpy as np

from placement.fleet.pools import Floats, Ints

_MISSING = -1
NOT_SERVED = -1
"""The units of a request that a pool does not serve, or that wants no GPU."""


class Misfits:
    """The table for some kinds of pods, each with its weight, its cores and the number of its request.

    `units` has a row per request and a column per pool. No node has more than `most_units`.
    """

    def __init__(self, weights: Ints, cpu: Ints, requests: Ints, units: Ints, most_units: int) -> None:
        self._weights = weights
        self._requests = requests
        self._total = int(weights.sum())
        self._cores: Ints = np.unique(cpu)
        self._cores_met: Ints = np.searchsorted(self._cores, cpu) + 1
        """Per kind: how many of the different requests for cores a node meets that meets the kind's own."""
        self._sizes: Ints = np.unique(units[units >= 0])
        largest = min(most_units, int(self._sizes.max(initial=0)))
        self._sizes_met: Ints = np.searchsorted(self._sizes, np.arange(largest + 1), side="right")
        """By free units: how many of the different requests for units are met."""
        self._wanted, self._class_of_pool = _classes(units)
        self._row_of: Ints = np.full((len(self._wanted), self._sizes.size + 1), _MISSING, dtype=np.int64)
        self._rows: Floats = np.zeros((0, self._cores.size + 1))

    def share(self, pools: Ints | int, units: Ints, cpu: Ints) -> Floats:
        """The part of the usual pods that does not fit on each node; `pools` has an entry per node, or is one for all."""
        classes, sizes = self._class_of_pool[pools], self._sizes_met.take(units, mode="clip")
        rows = self._row_of[classes, sizes]
        if rows.size and rows.min() == _MISSING:
            self._add_rows(np.unique((classes * self._row_of.shape[1] + sizes)[rows == _MISSING]))
            rows = self._row_of[classes, sizes]
        found: Floats = self._rows[rows, np.searchsorted(self._cores, cpu, side="right")]
        return found

    def _add_rows(self, numbers: Ints) -> None:
        known, width = len(self._rows), self._row_of.shape[1]
        self._row_of.flat[numbers] = np.arange(known, known + numbers.size)
        self._rows = np.vstack(
            [self._rows, *(self._row(number // width, number % width) for number in numbers.tolist())]
        )

    def _row(self, kind_of_pool: int, sizes_met: int) -> Floats:
        """By the number of requests for cores that are met: the part of the pods that does not fit."""
        if not self._total:
            return np.zeros(self._cores.size + 1)
        wanted = self._wanted[kind_of_pool][self._requests]
        fits = (wanted >= 0) & (wanted <= (self._sizes[sizes_met - 1] if sizes_met else NOT_SERVED))
        met = np.bincount(self._cores_met[fits], weights=self._weights[fits], minlength=self._cores.size + 1)
        row: Floats = (self._total - np.cumsum(met)) / self._total
        return row


def _classes(units: Ints) -> tuple[Sequence[Ints], Ints]:
    """The different columns, and the number of each pool's one."""
    numbers: dict[bytes, int] = {}
    wanted: list[Ints] = []
    class_of_pool: list[int] = []
    for column in np.ascontiguousarray(units.T):
        number = numbers.setdefault(column.tobytes(), len(wanted))
        if number == len(wanted):
            wanted.append(column)
        class_of_pool.append(number)
    return wanted, np.array(class_of_pool, dtype=np.int64)

"""The usual final waste of a partly used device, given the usual pods.

A device with 190 thousandths left has little value when most pods need 470; one with 530 left has a high value. The
table is learned by packing the usual pods, in their usual proportions, onto imaginary devices until these are full.
Each pod goes where it devalues its device least by the table so far. Then the final waste of each intermediate state is
counted.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TypeAlias

STEPS = 100
"""The table has an entry per hundredth of a device."""
DEVICES = 4000
DEMAND = 1.3
"""Pods arrive until their requests are this many times the capacity: more than fits, so that only unavoidable waste
remains."""
ROUNDS = 16
_MULTIPLIER, _INCREMENT, _MODULUS = 6364136223846793005, 1442695040888963407, 2**64
"""Knuth's MMIX generator: the same arrivals on every host, always."""

Table: TypeAlias = tuple[float, ...]
Kind: TypeAlias = tuple[int, int, int]
"""(hundredths of each device, devices, weight)."""


@lru_cache(maxsize=64)
def usual_waste(kinds: tuple[Kind, ...]) -> Table:
    """Per free hundredths of a device, the number of these that usually remain unused.

    The result is cached by `kinds`; none of them may have a weight below one.
    """
    if not kinds:
        return (0.0,) * (STEPS + 1)
    table: Table = tuple(float(free) for free in range(STEPS + 1))
    for number in range(ROUNDS):
        learned = _learned(kinds, table, number)
        table = tuple((old + new) / 2 if number else new for old, new in zip(table, learned, strict=True))
    return table


def _learned(kinds: Sequence[Kind], table: Table, seed: int) -> Table:
    count = [0] * STEPS + [DEVICES]
    visits = list(count)
    moves = [[0] * (STEPS + 1) for _ in range(STEPS + 1)]
    orders = {size: _preference(size, table) for size, _, _ in kinds}
    for size, devices in _arrivals(kinds, seed):
        for _ in range(devices):
            for free in orders[size]:
                if count[free]:
                    break
            else:
                break
            count[free] -= 1
            count[free - size] += 1
            visits[free - size] += 1
            moves[free][free - size] += 1
    return _ends(count, visits, moves)


def _preference(size: int, table: Table) -> list[int]:
    """Where a pod of this size goes: where it loses least value beyond its own size, then where it
    fits most tightly.
    """
    return sorted(range(size, STEPS + 1), key=lambda free: (round(table[free - size] - table[free], 6), free))


def _arrivals(kinds: Sequence[Kind], seed: int) -> Iterator[tuple[int, int]]:
    bounds = list(accumulate(weight for _, _, weight in kinds))
    chance, asked = seed, 0
    while asked < DEMAND * DEVICES * STEPS:
        chance = (chance * _MULTIPLIER + _INCREMENT) % _MODULUS
        size, devices, _ = kinds[bisect_right(bounds, chance * bounds[-1] // _MODULUS)]
        yield size, devices
        asked += size * devices


def _ends(count: Sequence[int], visits: Sequence[int], moves: Sequence[Sequence[int]]) -> Table:
    """The mean final waste of each state. A state never seen counts as the next smaller one plus the difference."""
    ends: list[float] = [0.0]
    for free in range(1, STEPS + 1):
        if visits[free]:
            onward = sum(moves[free][after] * ends[after] for after in range(free))
            ends.append((count[free] * free + onward) / visits[free])
        else:
            ends.append(ends[free - 1] + 1)
    return tuple(ends)

"""What is idle on nodes that are kept from others."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from placement.fleet.amounts import milli_gpu_per_unit
from placement.fleet.fleet_state import FleetState
from placement.fleet.pools import CPU, UNITS


def idle_on(nodes: Mapping[int, Iterable[int]], state: FleetState) -> dict[str, int]:
    """What is free on hidden nodes, given by pool, in base units; cores count only where there are no GPUs."""
    found: Counter[str] = Counter()
    for number, shared in nodes.items():
        flavor, own = state.fleet.pools[number].flavor, state.pool(number)
        free = [own.hidden[node] for node in shared if node in own.hidden]
        if flavor.gpu_model:
            milli, parts = milli_gpu_per_unit(flavor)
            found["gpu"] += sum(int(one[UNITS]) for one in free) * milli // parts
        else:
            found["cpu"] += sum(int(one[CPU]) for one in free)
    return {name: amount for name, amount in sorted(found.items()) if amount > 0}


def together(nodes: Iterable[tuple[int, Iterable[int]]]) -> dict[int, set[int]]:
    """The nodes of each pool; one that several pod sets share counts once."""
    found: dict[int, set[int]] = defaultdict(set)
    for number, each in nodes:
        found[number].update(each)
    return found

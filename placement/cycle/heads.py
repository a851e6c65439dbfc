"""How much of a long queue a cycle considers, tenant by tenant: one tenant's jobs never hide another's.

The depth of a cycle is shared evenly among the tenants that wait, and each tenant's share evenly among the shapes of
its jobs (jobs of one tenant and shape share one verdict, so more of them add nothing). The others share what one does
not use: max-min fairness by progressive filling (Bertsekas and Gallager, *Data Networks*, 1992, §6.5.2).
"""

from collections.abc import Mapping
from typing import TypeVar

Name = TypeVar("Name")
Other = TypeVar("Other")


def heads(depth: int, waiting: Mapping[Name, Mapping[Other, int]]) -> dict[Name, dict[Other, int]]:
    """The number of waiting jobs to take of each tenant and shape; at most `depth` in all, and all of it if enough jobs
    wait.
    """
    shares = fill(depth, {tenant: sum(shapes.values()) for tenant, shapes in waiting.items()})
    return {tenant: fill(share, waiting[tenant]) for tenant, share in shares.items()}


def fill(amount: int, wants: Mapping[Name, int]) -> dict[Name, int]:
    """The amount shared among those that want it: none gets more than it wants. One that gets less than it wants gets,
    within one, as much as any other. A remainder that cannot be split goes to the first ones in the given order.

    >>> fill(10, {"a": 100, "b": 2, "c": 100})
    {'a': 4, 'b': 2, 'c': 4}
    """
    given = dict.fromkeys(wants, 0)
    left = amount
    # The least first: what they leave of their even share goes to those after them.
    for number, name in enumerate(sorted(wants, key=lambda name: wants[name])):
        share = -(-left // (len(wants) - number))
        given[name] = min(share, wants[name])
        left -= given[name]
    return given

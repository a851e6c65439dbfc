"""How much of a long queue a cycle looks at, tenant by tenant: one tenant's jobs never hide another's.

The depth of a cycle is shared evenly among the tenants that wait, and each tenant's share evenly among the shapes of its
jobs (jobs of one tenant and shape share one verdict, so more of them tell nothing new). What one does not use, the others
share again: max-min fairness by progressive filling (Bertsekas and Gallager, *Data Networks*, 1992, §6.5.2).
"""

from collections.abc import Mapping
from typing import TypeVar

Name = TypeVar("Name")
Other = TypeVar("Other")


def heads(depth: int, waiting: Mapping[Name, Mapping[Other, int]]) -> dict[Name, dict[Other, int]]:
    """How many jobs to take of each tenant and shape, of those that wait; at most `depth` in all, none left unused."""
    shares = fill(depth, {tenant: sum(shapes.values()) for tenant, shapes in waiting.items()})
    return {tenant: fill(share, waiting[tenant]) for tenant, share in shares.items()}


def fill(amount: int, wants: Mapping[Name, int]) -> dict[Name, int]:
    """The amount shared among those who want it: nobody gets more than they want, and whoever gets less than they want
    gets within one as much as anybody. What cannot be split goes to the first by name of the order given.

    >>> fill(10, {"a": 100, "b": 2, "c": 100})
    {'a': 4, 'b': 2, 'c': 4}
    """
    given = dict.fromkeys(wants, 0)
    left = amount
    # The least first: what they leave of their even share is there for those after them.
    for number, name in enumerate(sorted(wants, key=lambda name: wants[name])):
        share = -(-left // (len(wants) - number))
        given[name] = min(share, wants[name])
        left -= given[name]
    return given

"""Quota limits in a cycle: what earlier jobs left of each limit on the path from the root of the tenant tree to a leaf.

How limits lend to each other is a rule of the room below: `quotas/engine/borrowing.py`.
"""

from typing import TypeAlias

from placement.values.model import LimitState, Snapshot
from quotas.engine.borrowing import Book, Chains, Obstacle

LimitBook: TypeAlias = Book[LimitState]
"""The limits of all tenants; what is held there grows as jobs are placed."""
Lines: TypeAlias = Chains[LimitState]
"""By resource, the limits that apply to a tenant on a cluster."""
Refusal: TypeAlias = Obstacle[LimitState]
"""A limit with too little left, and the requested amount."""


def limit_book(snapshot: Snapshot) -> LimitBook:
    """The limits of a cycle's input, with what is held there now."""
    return Book(snapshot.limits, snapshot.user_limits)

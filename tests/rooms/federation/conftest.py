"""Simulated clusters and somebody who submits to them."""

import math

import pytest

from tests.live_fixtures import cluster, home, kept_pools, submitter
from tests.rooms.federation.forging import books, unguarded

__all__ = ["books", "cluster", "home", "kept_pools", "submitter", "unguarded"]


@pytest.fixture(autouse=True)
def no_search_is_long(monkeypatch):
    """The next round searches for consolidations again, however slow the host was in the one before."""
    monkeypatch.setattr("federation.queries.consolidation.SHORT", math.inf)

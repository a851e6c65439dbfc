"""Simulated clusters and somebody who submits to them."""

from tests.live_fixtures import cluster, home, kept_pools, submitter
from tests.rooms.federation.forging import books

__all__ = ["books", "cluster", "home", "kept_pools", "submitter"]

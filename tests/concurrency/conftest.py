"""Simulated clusters and somebody who submits to them."""

from tests.live_fixtures import cluster, home, kept_pools, submitter

__all__ = ["cluster", "home", "kept_pools", "submitter"]

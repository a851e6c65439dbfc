"""Simulated clusters and somebody who submits to them."""

from tests.live_fixtures import cluster, home, submitter

__all__ = ["cluster", "home", "submitter"]

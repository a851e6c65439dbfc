"""Simulated clusters and somebody who submits to them; threads that come after others go on with their sessions."""

from tests.live_fixtures import cluster, home, kept_pools, kept_sessions, submitter

__all__ = ["cluster", "home", "kept_pools", "kept_sessions", "submitter"]

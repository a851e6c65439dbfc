"""Reads what users and operators write: job specs, manifests, policies, reservations, and the answers of policy hooks."""

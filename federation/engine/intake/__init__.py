"""Reads input of users and operators: job specs, manifests, policies, reservations, and the answers of policy hooks."""

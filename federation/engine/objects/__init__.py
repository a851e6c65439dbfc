"""The objects created on a cluster for an attempt: Jobs, ResourceClaims, network policies, and the ranks of pods."""

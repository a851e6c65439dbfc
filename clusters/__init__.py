"""Clusters: their inventory and health. Only this room calls Kubernetes."""

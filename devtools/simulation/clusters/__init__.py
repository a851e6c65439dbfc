"""Simulated clusters in memory: their API, controllers, nodes and networks, and the driver that reaches them."""

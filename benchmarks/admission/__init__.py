"""How fast work is admitted under quota: `make bench-admission`."""

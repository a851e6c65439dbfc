"""What there is in a run: its processes, clients and clusters, its beginning, and how much of each."""

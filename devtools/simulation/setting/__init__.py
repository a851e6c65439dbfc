"""What there is when a run begins, and how much of it."""

"""Which running jobs are stopped so that a more urgent one of their organisation fits, and why none are."""

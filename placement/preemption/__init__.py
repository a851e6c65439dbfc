"""Which running jobs are stopped so that another one of their organisation fits, and why none are."""

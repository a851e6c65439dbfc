"""Which of the possible places is best for one job, and why the other places are not possible."""

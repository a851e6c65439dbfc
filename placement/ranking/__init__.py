"""Which of the possible places is best for one job, and why the others are not possible."""

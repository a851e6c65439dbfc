"""Pure decisions on a job's life, from what a user writes to the objects on a cluster. Which job runs where: placement."""

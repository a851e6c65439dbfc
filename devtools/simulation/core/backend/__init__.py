"""Django's backend of the simulated gateway: each statement and each commit is a step of the scheduler."""

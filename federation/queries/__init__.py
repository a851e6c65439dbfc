"""Read-only queries on jobs and their attempts."""

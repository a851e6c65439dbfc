"""Questions about jobs and their attempts: read-only."""

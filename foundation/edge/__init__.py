"""The web process's edge: it reads whole requests and writes whole answers without a thread, within bounds (ADR 15)."""

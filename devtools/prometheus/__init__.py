"""A real Prometheus for tests: built once from its pinned Go module, filled by promtool, and served on loopback."""

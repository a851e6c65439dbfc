"""Wiring only: settings, URLs, Celery. Imports rooms; no room imports it."""

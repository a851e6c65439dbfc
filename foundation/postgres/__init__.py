"""Django's PostgreSQL backend with one habit changed; see `base`."""

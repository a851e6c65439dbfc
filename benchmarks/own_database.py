"""A benchmark's own PostgreSQL and database, with the gateway's schema, deleted afterwards."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import django
from django.test.utils import setup_databases, teardown_databases

from tests import servers


@contextmanager
def own_database() -> Iterator[None]:
    """Models can be imported inside."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    servers.start()
    django.setup()
    databases = setup_databases(verbosity=0, interactive=False)
    try:
        yield
    finally:
        teardown_databases(databases, verbosity=0)

"""The role that the gateway's processes run as, for tests that try raw SQL with no more rights than it has.

It is made once for all tests: to grant rights on every table makes each session learn of all tables again and plan all its
statements again.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from foundation import rights

ROLE = f"attacker_{os.getpid()}"


@pytest.fixture(scope="session")
def processes_role(django_db_setup, django_db_blocker):
    """Until the end of the session there is the role."""
    with django_db_blocker.unblock():
        assert not connection.in_atomic_block, "rows of a module that ask for the role later would take it with them"
        rights.make_role(connection, ROLE, "canary-role-7a1c")
        rights.grant(connection, ROLE)
    yield
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")


@contextmanager
def as_processes() -> Iterator[None]:
    """Meanwhile the session has the role, which the fixture `processes_role` has made."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {ROLE}")
        yield
        cursor.execute("RESET ROLE")

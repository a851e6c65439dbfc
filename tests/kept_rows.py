"""Rows that all tests of a module begin with, written once.

Each test runs in a transaction inside the module's: what it writes is undone, and what the module began with is still there.
The transaction's `now()` is that of the module's begin. What SET CONSTRAINTS says inside a savepoint that is released outlives the
test: PostgreSQL does not undo it, so a test that makes all constraints immediate defers them again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from django.db import transaction

from foundation.caches import reset_all

Made = TypeVar("Made")


@contextmanager
def written_once(blocker: Any, write: Callable[[], Made]) -> Iterator[Made]:
    """What `write` returns, and until the end the rows that it wrote. For fixtures of a module, which ask for `django_db_setup` and
    `django_db_blocker`.
    """
    whole: Any = transaction.atomic()
    whole._from_testcase = True  # as that of a test: work that begins a transaction may begin one inside
    with blocker.unblock(), whole:
        reset_all()
        made = write()
        with blocker.block():
            yield made
        transaction.set_rollback(True)


def once_a_module(write: Callable[[], Any]) -> Any:
    """Decorates a function to be a fixture of its module: what it returns, with the rows that it wrote. All other tests of the
    module see these rows too, once a test has asked for them.
    """

    @pytest.fixture(scope="module")
    def made(django_db_setup, django_db_blocker):
        with written_once(django_db_blocker, write) as found:
            yield found

    return made

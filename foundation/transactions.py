"""Retries of a transaction that the database aborted in favour of another, a limited number of times."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from django.db import OperationalError, connection
from prometheus_client import Counter

from .clock import sleep
from .host import host

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

CAUSES = {"40P01": "deadlock", "40001": "serialization"}
LOCK_WAIT = "55P03"
MOST_TRIES = 4
PAUSE_SECONDS = 0.05
"""The pause before the first retry, half of it random; it doubles before each further one."""
RETRIES = Counter("switchyard_transaction_retries", "Transactions that were retried, by cause.", ["cause"])


def retried(work: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Runs the work again if a deadlock or a serialization failure aborted its transaction.

    For the function that begins the outermost transaction. Inside another transaction it runs once, and the caller that
    began the transaction retries. Effects outside its transactions must be safe to repeat.
    """

    @wraps(work)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        for tries in range(1, MOST_TRIES):
            try:
                return work(*args, **kwargs)
            except OperationalError as error:
                cause = CAUSES.get(getattr(error.__cause__, "sqlstate", ""), "")
                if not cause or connection.in_atomic_block:
                    raise
                RETRIES.labels(cause).inc()
                sleep(PAUSE_SECONDS * 2 ** (tries - 1) * host().chance().uniform(0.5, 1))
        return work(*args, **kwargs)

    return run


def is_contention(error: OperationalError) -> bool:
    """Whether the transaction was aborted because of others that change the same rows: a later one may succeed."""
    return getattr(error.__cause__, "sqlstate", "") in {*CAUSES, LOCK_WAIT}

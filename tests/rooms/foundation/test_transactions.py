"""A transaction that was broken off so that another could go on is begun anew, a few times, by whoever began it."""

import pytest
from django.db import IntegrityError, OperationalError, transaction
from prometheus_client import REGISTRY
from psycopg import errors

from foundation import transactions
from foundation.transactions import MOST_TRIES, retried


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(transactions, "PAUSE_SECONDS", 0)


def broken(cause):
    raised = OperationalError("broken off")
    raised.__cause__ = cause
    return raised


def failing(times, error):
    """A piece of work that fails so often, and how often it was tried."""
    tries = []

    @retried
    def work(answer):
        tries.append(answer)
        if len(tries) <= times:
            raise error
        return answer

    return work, tries


def counted(cause):
    return REGISTRY.get_sample_value("switchyard_transaction_retries_total", {"cause": cause}) or 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("error", "cause"), [(errors.DeadlockDetected(), "deadlock"), (errors.SerializationFailure(), "serialization")]
)
def test_what_was_broken_off_is_done_again_and_counted(error, cause):
    before = counted(cause)
    work, tries = failing(2, broken(error))
    assert (work("done"), len(tries), counted(cause) - before) == ("done", 3, 2)


@pytest.mark.django_db(transaction=True)
def test_it_is_given_up_after_a_few_tries():
    work, tries = failing(99, broken(errors.DeadlockDetected()))
    with pytest.raises(OperationalError):
        work("done")
    assert len(tries) == MOST_TRIES


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "error", [broken(errors.LockNotAvailable()), broken(None), IntegrityError("taken"), ValueError()]
)
def test_nothing_else_is_done_twice(error):
    work, tries = failing(1, error)
    with pytest.raises(type(error)):
        work("done")
    assert len(tries) == 1


@pytest.mark.django_db(transaction=True)
def test_inside_of_anothers_transaction_it_is_for_that_other_to_begin_anew():
    work, tries = failing(1, broken(errors.DeadlockDetected()))
    with pytest.raises(OperationalError), transaction.atomic():
        work("done")
    assert len(tries) == 1

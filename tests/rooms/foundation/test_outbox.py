import psycopg
import pytest
from django.db import connection, transaction

from foundation.models import OutboxMessage
from foundation.outbox import CHANNEL, announce


@pytest.mark.django_db(transaction=True)
def test_an_announcement_needs_a_transaction():
    with pytest.raises(RuntimeError, match="inside the transaction"):
        announce("cycle")
    assert not OutboxMessage.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_an_announcement_is_heard_when_its_transaction_commits_and_not_before():
    parameters = {**connection.get_connection_params(), "autocommit": True}
    parameters.pop("cursor_factory", None)
    parameters.pop("context", None)
    with psycopg.connect(**parameters) as listener:
        listener.execute(f"LISTEN {CHANNEL}")
        with transaction.atomic():
            announce("cycle", "dispatch")
            assert list(listener.notifies(timeout=0.1, stop_after=1)) == []
        heard = {notice.payload for notice in listener.notifies(timeout=5, stop_after=2)}
    assert heard == {"cycle", "dispatch"}
    assert sorted(OutboxMessage.objects.values_list("topic", flat=True)) == ["cycle", "dispatch"]


@pytest.mark.django_db(transaction=True)
def test_an_announcement_goes_with_a_transaction_that_is_rolled_back():
    with transaction.atomic():
        announce("cycle")
        transaction.set_rollback(True)
    assert not OutboxMessage.objects.exists()

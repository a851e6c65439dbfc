"""Wake-ups in the same transaction as the change that they announce: both are committed, or neither."""

from django.db import connection

CHANNEL = "switchyard_outbox"
ANNOUNCED = (
    "announced AS (INSERT INTO foundation_outboxmessage (topic) SELECT unnest(%(topics)s::text[]) RETURNING topic)"
)
"""The part of a statement's WITH that writes the rows."""
NOTIFY = f"SELECT pg_notify('{CHANNEL}', topic) FROM announced"
"""The statement that follows."""


def announce(*topics: str) -> None:
    """Inserts one row per topic and notifies listeners (payload: the topic) when the surrounding
    transaction commits.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("announce() belongs inside the transaction of the change it announces")
    with connection.cursor() as cursor:
        cursor.execute(f"WITH {ANNOUNCED} {NOTIFY}", {"topics": list(topics)})

"""Wake-ups in the same transaction as the change that they announce: both are committed, or neither."""

from django.db import connection

CHANNEL = "switchyard_outbox"


def announce(*topics: str) -> None:
    """Inserts one row per topic and notifies listeners (payload: the topic) when the surrounding
    transaction commits.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("announce() belongs inside the transaction of the change it announces")
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH written AS (INSERT INTO foundation_outboxmessage (topic) SELECT unnest(%s::text[]) RETURNING topic)"
            " SELECT pg_notify(%s, topic) FROM written",
            [list(topics), CHANNEL],
        )

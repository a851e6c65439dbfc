"""Wake-ups in the same transaction as the change that they announce: both are committed, or neither."""

from django.db import connection

CHANNEL = "switchyard_outbox"
ANNOUNCING = f"""
announced AS (INSERT INTO foundation_outboxmessage (topic) SELECT unnest(%(topics)s::text[]) RETURNING topic)
SELECT pg_notify('{CHANNEL}', topic) FROM announced
"""
"""The end of a statement that begins with WITH, also for one that makes the change itself."""


def announce(*topics: str) -> None:
    """Inserts one row per topic and notifies listeners (payload: the topic) when the surrounding
    transaction commits.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("announce() belongs inside the transaction of the change it announces")
    with connection.cursor() as cursor:
        cursor.execute(f"WITH {ANNOUNCING}", {"topics": list(topics)})

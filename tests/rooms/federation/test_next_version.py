"""The next version's migrations run while processes of this one go on."""

import psycopg
import pytest
from django.db import connection, transaction

from federation.locks import lock_jobs_of, lock_to_settle
from federation.models import Attempt
from tests.live import place

pytestmark = pytest.mark.django_db(transaction=True)
TABLES = ("federation_job", "federation_attempt", "federation_podrun")
PREPARED_AFTER = 6
"""The driver prepares a statement once it has run this often."""


@pytest.fixture
def migrate():
    """Runs statements in a session of their own, as a migrator does."""
    connection.ensure_connection()
    settings = connection.get_connection_params()
    address = {key: settings[key] for key in ("dbname", "host", "port", "user", "password") if key in settings}
    with psycopg.connect(**address, autocommit=True) as session:
        yield session.execute
        for table in TABLES:
            session.execute(f"ALTER TABLE {table} DROP COLUMN IF EXISTS next_idea")


def test_a_new_column_fails_no_lock_that_a_running_process_takes(cluster, submitter, migrate):
    _, attempt = place(submitter)

    def lock():
        with transaction.atomic():
            return set(lock_jobs_of([attempt.id])), set(lock_to_settle([attempt.id]))

    before = [lock() for _ in range(PREPARED_AFTER)][-1]
    for table in TABLES:
        migrate(f"ALTER TABLE {table} ADD COLUMN next_idea text NOT NULL DEFAULT ''")
    assert lock() == before == ({attempt.job_id}, {attempt.id})
    assert Attempt.objects.get(id=attempt.id).state == "reserved"

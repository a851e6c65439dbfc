"""The next version beside this one: its tables, its messages, its processes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from celery import Celery
from kombu import Exchange, Queue

from devtools.embedded import free_port, spawn
from devtools.serve import ROLES
from tests.faults.stand import Stand

THIS = Path(__file__).resolve().parent.parent.parent
OTHER = Path(os.environ.get("SWITCHYARD_OTHER_VERSION", THIS))
"""By hand: a tree of another version, with this one's environment, whose processes run beside ours."""
NEXT_VERSION = (
    "SET lock_timeout = '5s'",
    "ALTER TABLE federation_job ADD COLUMN IF NOT EXISTS next_idea text NOT NULL DEFAULT ''",
    "ALTER TABLE federation_attempt ADD COLUMN IF NOT EXISTS next_idea bigint",
    "ALTER TABLE federation_podrun ADD COLUMN IF NOT EXISTS next_idea boolean NOT NULL DEFAULT false",
    "CREATE INDEX CONCURRENTLY IF NOT EXISTS next_index ON federation_attempt (next_idea)",
    "INSERT INTO django_migrations (app, name, applied) VALUES ('federation', '9999_next_idea', now())",
    "INSERT INTO foundation_outboxmessage (topic) VALUES ('an_idea_of_the_next_version')",
    "NOTIFY switchyard_outbox, 'an_idea_of_the_next_version'",
)
GONE_AGAIN = (
    "DROP INDEX IF EXISTS next_index",
    "ALTER TABLE federation_job DROP COLUMN IF EXISTS next_idea",
    "ALTER TABLE federation_attempt DROP COLUMN IF EXISTS next_idea",
    "ALTER TABLE federation_podrun DROP COLUMN IF EXISTS next_idea",
    "DELETE FROM django_migrations WHERE name = '9999_next_idea'",
)

BROKER_SECONDS = 5.0


def start_another_set(stand: Stand) -> list[subprocess.Popen[bytes]]:
    """One more of every process, singletons too, on the same database and broker."""
    environment = {**os.environ, **stand.gateway.environment, "PYTHONPATH": "", "SWITCHYARD_METRICS_PORT": "0"}
    environment |= {"SWITCHYARD_PORT": str(free_port()), "SWITCHYARD_HEALTH_PORT": str(free_port())}
    return [
        spawn([sys.executable, *argv[1:]], log=stand.gateway.home / f"other-{role}.log", env=environment, cwd=OTHER)
        for role, argv in ROLES.items()
    ]


def send_next_versions_message(stand: Stand) -> None:
    """A task that no process of this version knows. Raises an error if the broker does not answer."""
    with Celery(broker=stand.gateway.environment["REDIS_URL"]) as sender:
        sender.conf.broker_transport_options = {
            "global_keyprefix": "swy-broker-", "socket_timeout": BROKER_SECONDS, "socket_connect_timeout": BROKER_SECONDS,
        }  # fmt: skip
        queue: Any = Queue("cycle", Exchange("cycle"), routing_key="cycle")
        sender.send_task("federation.tasks.an_idea_of_the_next_version", queue=queue, retry=False)

"""The Celery application. Tasks carry no arguments: rows are the queue, and a message only starts a check (ADR 1)."""

import gc
import os
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from typing import Any

from celery import Celery, bootsteps, signals
from kombu import Exchange, Queue

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
# Celery runs Django's checks without reading what they report. They import every view, which no worker needs.
os.environ.setdefault("CELERY_SKIP_CHECKS", "true")

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections
from kombu.transport import TRANSPORT_ALIASES

from config.redis_url import broker_url
from foundation import figures
from foundation.processes import demand, die_with_parent
from foundation.sessions import demand_sessions


class Gateway(Celery):
    """Celery whose workers share counters with the processes of their pool."""

    @cached_property
    def Worker(self) -> Any:  # noqa: N802 - Celery's name; asked for by a worker alone, before it imports a task
        figures.share()
        return super().Worker


app = Gateway("switchyard")
ALIVE_SECONDS = 20
QUEUES = ("cycle", "dispatch", "observe", "bill", "notify")
TRANSPORT_ALIASES["rings"] = "foundation.rings:Transport"
app.conf.update(
    broker_url=broker_url(settings.REDIS_URL, "rings"),
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={
        # Separate from the cache, which may be cleared at any time.
        "global_keyprefix": "swy-broker-",
        # Redis does not keep the messages of a killed worker: the bell rings again.
        "ack_emulation": False,
        "socket_timeout": 5,
        "socket_connect_timeout": 5,
        # The bell must detect a broker failure quickly: it then does the work itself.
        "max_retries": 1,
    },
    task_serializer="json",
    result_serializer="json",
    event_serializer="json",
    accept_content=["json"],
    result_accept_content=["json"],
    # Commands to workers carry no sender: anyone who can write to Redis could stop them or read their settings.
    worker_enable_remote_control=False,
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_time_limit=120,
    task_soft_time_limit=90,
    task_default_queue="cycle",
    # Each has its own key: under the default key, every queue would get every message.
    task_queues=[Queue(name, Exchange(name), routing_key=name) for name in QUEUES],
    task_create_missing_queues=False,
    worker_prefetch_multiplier=1,
    worker_cancel_long_running_tasks_on_connection_loss=True,
    # SIGTERM (REMAP_SIGTERM=SIGQUIT): tasks have this long to finish, then return to the queue.
    worker_soft_shutdown_timeout=10.0,
    worker_max_tasks_per_child=20_000,
    worker_hijack_root_logger=False,
    worker_send_task_events=False,
    # Celery would close the database connection after each task; `_tidy_connections` closes only broken or old ones.
    CELERY_DB_REUSE_MAX=2**62,
)
app.autodiscover_tasks()


_MAIN = os.getpid()
"""In the forks of a worker's pool, the worker's."""


@signals.celeryd_init.connect
def _have_what_it_takes(**_: Any) -> None:
    try:
        demand("worker", "REDIS_URL", "KEY_RING")
        demand_sessions()
    except ImproperlyConfigured as lack:
        # Celery would log any other exception of a signal's receiver and continue.
        raise SystemExit(str(lack)) from None


@signals.celeryd_after_setup.connect
def _spare_the_forks(**_: Any) -> None:
    """Celery collects garbage before each fork, a tenth of a second for all that was imported: so much is never garbage.

    A fork leaves it frozen, until a large cycle (`placement.cycle.garbage`): to walk it would copy its memory as well. And each fork
    begins with a declaration in C (`billiard.util.set_pdeathsig`), for which the first one in a process makes a parser.
    """
    import_module("clusters.drivers.kubernetes.driver")  # else each fork would, at its first call
    with suppress(ImportError):
        import_module("cffi").FFI().cdef("int prctl(int option);")
    gc.collect()
    gc.freeze()


@signals.task_prerun.connect
@signals.task_postrun.connect
def _tidy_connections(**_: Any) -> None:
    close_old_connections()


@signals.worker_process_init.connect
def _die_with_the_parent(**_: Any) -> None:
    """A worker killed with SIGKILL cannot stop its pool; the kernel then does."""
    die_with_parent(_MAIN)


class Alive(bootsteps.StartStopStep):
    """Touches a file while the worker's loop runs: a probe checks the file's age."""

    requires = ("celery.worker.components:Timer",)

    def start(self, parent: Any) -> None:
        """Called by the worker when it starts."""
        _touch_alive()
        parent.timer.call_repeatedly(ALIVE_SECONDS, _touch_alive)


def _touch_alive() -> None:
    # A worker continues if it cannot write the file; it only appears dead to a probe.
    with suppress(OSError):
        (settings.HOME / "worker.alive").touch()


app.steps["worker"].add(Alive)


class Scraped(bootsteps.StartStopStep):
    """Serves the counters of the pool's processes, once they are forked, so that none of them inherits the port."""

    requires = ("celery.worker.components:Pool",)

    def start(self, parent: Any) -> None:  # noqa: ARG002 - Celery passes it
        """Called by the worker when it starts."""
        from foundation.scraping import serve_metrics  # noqa: PLC0415 - it needs Django, which the worker has set up by now

        serve_metrics("worker")


app.steps["worker"].add(Scraped)

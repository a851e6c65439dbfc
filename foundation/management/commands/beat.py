"""`manage.py beat`: the bell that rings every routine."""

import os
import signal
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from foundation.bell import Bell, ensure_rows
from foundation.commands import GatewayCommand
from foundation.processes import demand
from foundation.schedule import Schedule
from foundation.scraping import serve_metrics
from foundation.sessions import demand_sessions


class Command(GatewayCommand):
    help = "Triggers the gateway's routines on announcements and on schedule, and runs them itself while no worker answers."

    def handle(self, **options: Any) -> None:
        # The key ring: while no worker responds, the bell itself calls clusters (ADR 3).
        demand("beat", "REDIS_URL", "KEY_RING")
        demand_sessions()
        routines: dict[str, dict[str, Any]] = settings.ROUTINES
        schedules = [Schedule(name, **entry) for name, entry in routines.items()]
        bell = Bell(schedules, import_string(settings.CELERY_APP))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: bell.stopping.set())
        ensure_rows(schedules)
        serve_metrics("beat")
        self.stdout.write(f"beat: ringing {', '.join(routines)}")
        if not bell.run():
            # Calls that still wait for a cluster end here: their claims expire, and another process continues.
            self.stdout.write("beat: stopped before a cluster had answered")
            self.stdout.flush()
            os._exit(0)

"""`manage.py observer`: follows every cluster and records what it sees."""

import asyncio
import signal
from typing import Any

from federation.observer.process import Observer
from foundation.commands import GatewayCommand
from foundation.processes import demand
from foundation.scraping import serve_metrics
from foundation.sessions import demand_sessions


class Command(GatewayCommand):
    help = "Watches every registered cluster and records its state. Several can run; leases divide the clusters among them."

    def handle(self, *args: Any, **options: Any) -> None:
        demand("observer", "KEY_RING")
        demand_sessions()
        serve_metrics("observer")
        asyncio.run(_observe())


async def _observe() -> None:
    task = asyncio.create_task(Observer().run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return

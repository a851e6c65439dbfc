"""Quota holds taken a second by clients at the same time, each in its own transactions.

The clients are threads of one process: with 16 and 64 of them, the figures are those of one process that all share.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any

from benchmarks import report

BATCHES_OF, CLIENTS = (1, 500), (1, 16, 64)
SECONDS = 5.0
PLACES = ("within_guarantees", "borrowing")


def measure(scale: float) -> dict[str, float]:
    """Holds taken a second by place, size of batches and number of clients."""
    from quotas.queries import discrepancies

    figures: dict[str, float] = {}
    for place in PLACES:
        teams = _teams(place)
        for size in BATCHES_OF:
            for clients in CLIENTS:
                rate = _rate(teams[:clients], size, max(0.5, SECONDS * scale))
                figures[f"{place}_{size}_x_{clients}"] = round(rate, 1)
    assert discrepancies() == ()
    report.table([{"holds a second": name, "value": value} for name, value in figures.items()])
    return figures


def _teams(place: str) -> Sequence[Any]:
    """A team for each client. Their limits guarantee all that they hold, or nothing, so that they borrow all of it."""
    from quotas.engine.holds import Borrowing
    from quotas.operations import put_limit
    from tenancy.queries import SYSTEM
    from tests.builders import make_tenant

    organisation = f"org-{place.replace('_', '-')}"
    teams = [make_tenant(f"{organisation}/team-{number}") for number in range(max(CLIENTS))]
    put_limit(SYSTEM, organisation, "gpu", nominal=10**13)
    own, lent = (10**11, Borrowing(0, 0)) if place == PLACES[0] else (0, Borrowing(None, None))
    for team in teams:
        put_limit(SYSTEM, team.path, "gpu", nominal=own, borrowing=lent)
    return teams


def _rate(teams: Sequence[Any], size: int, seconds: float) -> float:
    from django.db import connection

    from foundation.ids import new_id
    from quotas.operations import HoldRequest, take_holds

    barrier, taken = threading.Barrier(len(teams) + 1), [0] * len(teams)
    errors: list[BaseException] = []

    def client(number: int, team: Any) -> None:
        try:
            connection.ensure_connection()
            barrier.wait()
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                batch = [
                    HoldRequest(new_id(), team.id, team.path, "north", {"gpu": 1000, "jobs": 1}) for _ in range(size)
                ]
                assert not any(take_holds(batch).values())
                taken[number] += size
        except BaseException as error:
            errors.append(error)
            raise
        finally:
            connection.close()

    threads = [threading.Thread(target=client, args=each) for each in enumerate(teams)]
    for thread in threads:
        thread.start()
    barrier.wait()
    begun = time.perf_counter()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return sum(taken) / (time.perf_counter() - begun)

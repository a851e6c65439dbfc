"""The number of quota holds per second that are taken and ended: `make bench-holds`.

Batches of 500, each hold under limits at three levels of the tree for two resources, with real commits, on the benchmark's own
PostgreSQL and database. A proof of the ledger runs at the end.
"""

import argparse
import time
from collections.abc import Sequence
from typing import Any

from benchmarks import report
from benchmarks.own_database import own_database

BATCH = 500
BATCHES = 20


def main() -> None:
    """Prints conditions, a table, and one JSON object."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    report.conditions(batches=BATCHES, holds_a_batch=BATCH, journal_lines_a_hold=4)
    with own_database():
        figures = _measure()
    report.table([{"figure": name, "value": value} for name, value in figures.items()])
    report.last_line(figures)


def _measure() -> dict[str, int]:
    from quotas.operations import end_holds, take_holds
    from quotas.queries import discrepancies

    batches = _batches()
    begun = time.perf_counter()
    for batch in batches:
        assert not any(take_holds(batch).values())
    taken = time.perf_counter()
    for batch in batches:
        assert end_holds({request.holder_id: "posted" for request in batch}) == BATCH
    ended = time.perf_counter()
    assert discrepancies() == ()
    return {
        "holds_taken_per_second": round(BATCH * BATCHES / (taken - begun)),
        "holds_ended_per_second": round(BATCH * BATCHES / (ended - taken)),
    }


def _batches() -> Sequence[Sequence[Any]]:
    from foundation.ids import new_id
    from quotas.operations import HoldRequest
    from tests.builders import make_limit, make_tenant

    teams = [make_tenant(f"acme/research/team-{number}") for number in range(20)]
    for path in ("acme", "acme/research", *(team.path for team in teams)):
        make_limit(path, "gpu", "1000000")
        make_limit(path, "cpu", "10000000")
    amounts = {"gpu": 8000, "cpu": 64_000, "memory": 1024}
    return [
        [
            HoldRequest(new_id(), team.id, team.path, "north", amounts)
            for team in (teams[number % len(teams)] for number in range(BATCH))
        ]
        for _ in range(BATCHES)
    ]


if __name__ == "__main__":
    main()

"""How fast the observer sees a change on an honest member, alone and beside hostile members: `make bench-hostile`.

One observer process follows them all. A node's label changes on the honest member, and the time until the change is in
the database is measured; the memory is the observer's peak.
"""

import argparse
import json
import statistics
import subprocess
import time
from contextlib import ExitStack
from typing import Any

from benchmarks import report
from benchmarks.own_database import own_database

CHANGES = 40
SETTLE_SECONDS = 20.0
PATIENCE_SECONDS = 120.0


def main() -> None:
    """Prints conditions, a table, and one JSON object."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    report.conditions(changes=CHANGES)
    with own_database():
        from tests.hostile_member import LIES

        rows = [_measure(()), _measure(tuple(LIES))]
    report.table(rows)
    alone, beside = rows
    ratio = float(beside["p50_ms"]) / float(alone["p50_ms"])
    report.last_line({"ratio_of_medians": ratio, **{f"beside_{name}": value for name, value in beside.items()}})


def _measure(lies: tuple[str, ...]) -> dict[str, Any]:
    from clusters.models import Cluster, Node
    from tests import hostile_run
    from tests.hostile_member import Member, node_of, peak_mib

    with ExitStack() as stack:
        honest = stack.enter_context(Member("honest"))
        cluster = hostile_run.registered(honest)
        if lies:
            stack.enter_context(hostile_run.liars(lies))
        honest.put("nodes", node_of("n0"))
        observer: subprocess.Popen[bytes] = stack.enter_context(hostile_run.process("manage.py", "observer"))
        _wait(lambda: Node.objects.filter(cluster=cluster).exists())
        time.sleep(SETTLE_SECONDS)
        took = []
        for number in range(1, CHANGES + 1):
            began = time.monotonic()
            honest.put("nodes", node_of(f"n{number}"))
            _wait(lambda name=f"n{number}": Node.objects.filter(cluster=cluster, name=name).exists())
            took.append((time.monotonic() - began) * 1000)
            time.sleep(0.2)
        peak = peak_mib(observer.pid)
    Cluster.everything.all().delete()
    return {
        "hostile_members": len(lies),
        "p50_ms": round(statistics.median(took)),
        "p95_ms": round(report.percentile(took, 0.95)),
        "observer_peak_mib": peak,
    }


def _wait(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(json.dumps({"not within seconds": PATIENCE_SECONDS}))
        time.sleep(0.005)


if __name__ == "__main__":
    main()

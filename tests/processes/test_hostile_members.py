"""Members that lie in every way at once: each process stays within its stated memory, and the honest ones are followed."""

import sys
import time

import psutil
import pytest

from clusters.models import Cluster, Node
from tests.hostile_member import LIES, Member, node_of, peak_mib
from tests.hostile_run import liars, process, registered

from .conftest import wait_for

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]
PATIENCE_SECONDS = 240
MORE_CPU_SECONDS = 4
MOST_OBSERVER_MIB = 800
MOST_CALLER_MIB = 400
"""As docs/explanation/memory.md states them; the chart's limits are above."""


def test_an_observer_beside_members_that_lie_in_every_way_stays_within_its_memory_and_follows_the_honest_one():
    with Member("honest") as honest, liars() as lying:
        cluster = registered(honest)
        for number in range(20):
            honest.put("nodes", node_of(f"n{number}"))
        with process("manage.py", "observer") as observer:
            wait_for(
                lambda: Node.objects.filter(cluster=cluster).count() == 20,
                "the honest member's nodes are known",
                PATIENCE_SECONDS,
            )
            too_large = {lying[name].id for name in ("endless nodes", "one page again and again")}
            told = Cluster.objects.filter(id__in=too_large, reasons__contains=[{"code": "too_large"}])
            wait_for(lambda: told.count() == len(too_large), "those that say too much are told of", PATIENCE_SECONDS)
            for number in range(20, 25):
                honest.put("nodes", node_of(f"n{number}"))
                seen = Node.objects.filter(cluster=cluster, name=f"n{number}")
                wait_for(seen.exists, "a change on the honest member is seen while the others lie", PATIENCE_SECONDS)
            # Counted in the observer's own seconds: what it hears meanwhile does not depend on the host's load.
            until = _seconds(observer.pid) + MORE_CPU_SECONDS
            wait_for(lambda: _seconds(observer.pid) > until, "some more lies", PATIENCE_SECONDS)
            peak = peak_mib(observer.pid)
            assert observer.poll() is None
        cluster.refresh_from_db()
        sys.stdout.write(f"\nan observer beside {len(LIES)} hostile members: {peak} MiB at most\n")
        assert (cluster.health, cluster.reasons) == ("ready", [])
        assert peak < MOST_OBSERVER_MIB


def test_a_process_that_asks_members_that_lie_stays_within_its_memory():
    with (
        liars() as lying,
        process("-m", "tests.hostile_caller", *(str(cluster.id) for cluster in lying.values())) as asking,
    ):
        peak = 0
        deadline = time.monotonic() + 2 * PATIENCE_SECONDS
        while asking.poll() is None:
            assert time.monotonic() < deadline
            peak = max(peak, _peak(asking.pid))
            time.sleep(0.05)
        assert asking.returncode == 0
    sys.stdout.write(f"\na process asking {len(LIES)} hostile members: {peak} MiB at most\n")
    assert peak < MOST_CALLER_MIB


def _seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def _peak(pid: int) -> int:
    try:
        return peak_mib(pid)
    except (OSError, TypeError):
        return 0

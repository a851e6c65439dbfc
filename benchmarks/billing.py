"""A month of usage at the size of a large fleet: `make bench-billing`.

Each pod runs on one flavor of a cluster for two and a half hours and is metered every 15 minutes. All segments are written through
all triggers, 2,000 a transaction, as metering writes them: the meters run on, the segments follow, and every stored sum moves
with them. Then the pages and the report of usage are asked, the month is exported, and the ledger posts a sample of its days.
ARGS="--segments 10000000" sets the size, "--days-posted 2000" the sample.
"""

import os
import random
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.own_database import own_database

TEAMS, CLUSTERS = 200, 50
CLUSTERS_A_TEAM = 5
FLAVORS = ("a100", "h100", "h200")
FLAVORS_A_TEAM = 2
PARTS = 10
"""Segments of a pod, of 15 minutes each."""
PODS_AT_ONCE = 2_000
DAYS = 30
ASKED = 20
PAGES = (
    "/", "/months/", "/budgets/", "/prices/", "/usage/?month={month}", "/usage/?month={month}&group_by=flavor",
    "/usage/?month={month}&group_by=cluster", "/usage/?month={month}&group_by=day",
    "/usage/?month={month}&group_by=tenant&group_by=flavor",
)  # fmt: skip
WORDS = ("tenant", "flavor", "day")
TEN_MILLION = 10_000_000
MONTH = datetime(2026, 9, 1, tzinfo=UTC)
UNTIL = MONTH + timedelta(days=DAYS)


def main() -> None:
    """Prints conditions, a table, and one JSON object."""
    parser = ArgumentParser()
    parser.add_argument("--segments", type=int, default=1_000_000)
    parser.add_argument("--days-posted", type=int, default=300)
    asked = parser.parse_args()
    with own_database():
        figures = _measure(asked.segments, asked.days_posted)
    report.table([{"figure": name, "value": value} for name, value in figures.items()])
    report.last_line(figures)


def _measure(segments: int, days_posted: int) -> dict[str, float]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
        before = _cpu_seconds(cursor)
        seconds = _write(cursor, segments)
        cpu_seconds = _cpu_seconds(cursor) - before
        cursor.execute("SELECT count(*) FROM billing_usagesegment")
        written = cursor.fetchone()[0]
        cursor.execute("SELECT count(*) FROM billing_tenantday")
        sums = cursor.fetchone()[0]
        cursor.execute("VACUUM (ANALYZE)")
        cursor.execute("SELECT pg_total_relation_size('billing_usagesegment')")
        size = cursor.fetchone()[0]
        cursor.execute(
            "SELECT pg_total_relation_size('billing_meterday') + pg_total_relation_size('billing_tenantday')"
        )
        size_of_sums = cursor.fetchone()[0]
        cursor.execute("RESET statement_timeout")
    report.conditions(
        segments=f"{written:,}", sums_of_days=f"{sums:,}", teams=TEAMS, clusters=CLUSTERS, written_in=f"{seconds:.0f} s"
    )
    return {
        "segments": written,
        "segments_per_second": round(written / seconds),
        "segments_per_server_cpu_second": round(written / cpu_seconds),
        "bytes_per_segment": round(size / written),
        "bytes_of_sums_per_segment": round(size_of_sums / written),
        **_reading(),
        **_exporting(),
        **_closing(days_posted, sums * TEN_MILLION / written),
    }


def _write(cursor: Any, segments: int) -> float:
    """Seconds of all transactions that meter."""
    places = _places()
    chosen = random.Random(1)
    waves = max(segments // (PODS_AT_ONCE * PARTS), 1)
    took = 0.0
    for wave in range(waves):
        begins = MONTH + timedelta(minutes=15) * round(wave * (DAYS * 96 - PARTS) / waves)
        pods = [chosen.choice(places) for _ in range(PODS_AT_ONCE)]
        known = {"begins": begins, "wave": wave, "parts": PARTS, **_columns(pods)}
        cursor.execute(OPEN, known)
        for part in range(PARTS):
            start = begins + timedelta(minutes=15) * part
            known |= {"start": start, "until": start + timedelta(minutes=15), "is_last": part == PARTS - 1}
            began = time.perf_counter()
            cursor.execute("BEGIN")
            cursor.execute(RUN_ON, known)
            cursor.execute(METER, known)
            cursor.execute("COMMIT")
            took += time.perf_counter() - began
    return took


def _cpu_seconds(cursor: Any) -> float:
    """Of the server process of this connection: what other work on the host leaves out."""
    cursor.execute("SELECT pg_backend_pid()")
    fields = Path(f"/proc/{cursor.fetchone()[0]}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _places() -> Sequence[tuple[Any, ...]]:
    from billing.models import Price
    from billing.operations import create_price
    from billing.operations.prices import NewPrice
    from tenancy.queries import SYSTEM
    from tests.builders import make_cluster, make_flavor, make_tenant, make_user

    clusters = [make_cluster(name=f"c{number:02d}") for number in range(CLUSTERS)]
    for cluster in clusters:
        for flavor in FLAVORS:
            make_flavor(cluster, flavor)
            new = NewPrice(cluster.name, flavor, Decimal(2), effective_from=MONTH - timedelta(days=1))
            create_price(SYSTEM, new)
    prices = {(each.rate.cluster_id, each.rate.flavor): each.id for each in Price.objects.select_related("rate")}
    chosen = random.Random(2)
    places = []
    for number in range(TEAMS):
        team, user = make_tenant(f"acme/group-{number % 10}/team-{number:03d}"), make_user()
        for cluster in chosen.sample(clusters, CLUSTERS_A_TEAM):
            flavors = chosen.sample(FLAVORS, FLAVORS_A_TEAM)
            places += [(team.id, user.id, cluster.id, flavor, prices[cluster.id, flavor]) for flavor in flavors]
    return places


def _columns(pods: Sequence[tuple[Any, ...]]) -> dict[str, list[Any]]:
    names = ("tenants", "users", "clusters", "flavors", "prices")
    return dict(zip(names, (list(column) for column in zip(*pods, strict=True)), strict=True))


def _reading() -> dict[str, float]:
    from django.conf import settings
    from django.test import Client

    from billing.queries import usage_report
    from tests.builders import actor_for, bind, make_user

    settings.ALLOWED_HOSTS = ["testserver"]
    finance = make_user()
    bind(finance, "acme", "finance")
    client = Client()
    client.force_login(finance)

    def get(path: str) -> None:
        assert client.get(path.format(month=f"{MONTH:%Y-%m}")).status_code == 200

    pages = {path: _seconds(partial(get, path)) for path in PAGES}
    reports = _seconds(lambda: usage_report(actor_for(finance), "acme", MONTH, UNTIL, WORDS))
    rows = [
        {"page": path, "p50_ms": report.median(took) * 1000, "p95_ms": _p95_ms(took)} for path, took in pages.items()
    ]
    report.table(
        [
            *rows,
            {
                "page": f"report by {', '.join(WORDS)}",
                "p50_ms": report.median(reports) * 1000,
                "p95_ms": _p95_ms(reports),
            },
        ]
    )
    return {"finance_p95_ms": max(_p95_ms(took) for took in pages.values()), "report_p95_ms": _p95_ms(reports)}


def _seconds(work: Callable[[], object]) -> list[float]:
    work()
    took = []
    for _ in range(ASKED):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return took


def _p95_ms(took: Sequence[float]) -> float:
    return report.percentile(took, 0.95) * 1000


def _exporting() -> dict[str, float]:
    """The FOCUS file of the month, as the API writes it."""
    from billing.api.focus_files import pieces
    from tenancy.queries import SYSTEM

    peak, rows, before = 0.0, -1, _memory_mib()
    began = time.perf_counter()
    for piece in _watched(pieces(SYSTEM, "cost-and-usage", "1.2", "acme", MONTH.date())):
        rows += piece.count(b"\n")
        peak = max(peak, _memory_mib())
    seconds = time.perf_counter() - began
    return {
        "export_rows": rows, "export_s": seconds, "export_rows_per_second": round(rows / seconds),
        "export_peak_mib": peak, "memory_before_export_mib": before,
    }  # fmt: skip


def _watched(pieces: Iterator[bytes]) -> Iterator[bytes]:
    yield from pieces


def _memory_mib() -> float:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


def _closing(sample: int, sums_of_ten_million: float) -> dict[str, float]:
    """Days are posted one by one, so a sample says how long all of them take; the checklist reads the sums."""
    from billing.operations.posting import post_day
    from billing.queries.charges import days_to_post
    from billing.queries.ledger_proof import money_discrepancies

    keys = days_to_post(sample)
    began = time.perf_counter()
    posted = sum(post_day(key) for key in keys)
    a_day = (time.perf_counter() - began) / max(posted, 1)
    began = time.perf_counter()
    assert money_discrepancies() == []
    proof = time.perf_counter() - began
    return {
        "days_posted": posted, "ms_a_day_posted": a_day * 1000, "money_proof_s": proof,
        "close_10m_s": a_day * min(sums_of_ten_million, TEAMS * CLUSTERS_A_TEAM * FLAVORS_A_TEAM * DAYS) + proof,
    }  # fmt: skip


OPEN = """
INSERT INTO billing_meter (cluster_id, source_uid, tenant_id, user_id, user_name, workload_id, workload_name, run_id, flavor,
    capacity_type, unit, gpu_units, cpu_millicores, memory_mib, metered_from, metered_until, is_closed)
SELECT cluster, %(wave)s || '-' || number, tenant, of_user, 'someone', gen_random_uuid(), 'train', gen_random_uuid(), flavor,
    'on_demand', 'gpu', 1, 2000, 65536, %(begins)s, %(begins)s, false
FROM unnest(%(tenants)s::uuid[], %(users)s::uuid[], %(clusters)s::uuid[], %(flavors)s::text[])
    WITH ORDINALITY AS pod(tenant, of_user, cluster, flavor, number)
"""
RUN_ON = """
UPDATE billing_meter AS m SET metered_until = %(until)s, is_closed = %(is_last)s
FROM unnest(%(clusters)s::uuid[]) WITH ORDINALITY AS pod(cluster, number)
WHERE m.cluster_id = pod.cluster AND m.source_uid = %(wave)s || '-' || pod.number
"""
METER = """
INSERT INTO billing_usagesegment (meter_id, period, gpu_milliseconds, cpu_millicore_milliseconds, price_id, cost, currency, is_estimated)
SELECT m.id, tstzrange(%(start)s, %(until)s), 900000, 1800000000, pod.price, 0.5, 'USD', false
FROM unnest(%(clusters)s::uuid[], %(prices)s::uuid[]) WITH ORDINALITY AS pod(cluster, price, number)
JOIN billing_meter AS m ON m.cluster_id = pod.cluster AND m.source_uid = %(wave)s || '-' || pod.number
ORDER BY m.id
"""


if __name__ == "__main__":
    main()

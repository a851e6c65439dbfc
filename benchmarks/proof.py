"""How long `manage.py prove_ledger` takes over a large ledger, and the nightly proof over its changes:
`make bench-proof`.

The ledger is written with SQL past its triggers, which would judge each row, into a PostgreSQL of the benchmark's own:
attempts of two pods that ran for an hour each, ten segments a pod, and a hold that took and gave back at three limits;
and attempts that run. It is right, and both proofs must find nothing. ARGS="--segments 10000000" sets the size.
"""

import threading
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.db import connection

from benchmarks import report
from benchmarks.own_database import own_database

PODS = 2
SEGMENTS = 10
TEAMS = 1_000
RUNNING = 10_000
STEP = 50_000
"""Attempts per statement."""
SAMPLE_SECONDS = 0.05


def main() -> None:
    """Prints conditions, a row for each question, and one JSON object."""
    parser = ArgumentParser()
    parser.add_argument("--segments", type=int, default=1_000_000)
    segments = parser.parse_args().segments
    with own_database():
        began = time.perf_counter()
        _write(segments // (PODS * SEGMENTS))
        report.conditions(**_sizes(), written_in=f"{time.perf_counter() - began:.0f} s", **_settings())
        figures = _measure()
    report.last_line({"segments": segments, **figures})


def _write(attempts: int) -> None:
    from billing.models import Price
    from billing.operations import create_price
    from billing.operations.prices import NewPrice
    from foundation.clock import now
    from tenancy.queries import SYSTEM
    from tests.builders import make_cluster, make_flavor, make_limit, make_user

    cluster = make_cluster(name="north")
    make_flavor(cluster)
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(PRICE), effective_from=now().replace(year=now().year - 1)))
    teams = [f"acme/research/team-{number}" for number in range(TEAMS)]
    limits = [make_limit(path, "gpu", "1000000") for path in ("acme", "acme/research", *teams)]
    known: dict[str, Any] = {
        "cluster": cluster.id, "teams": [limit.tenant_id for limit in limits[2:]], "user": make_user().id,
        "price": Price.objects.get().id, "attempts": attempts, "at": now(),
    }  # fmt: skip
    every = attempts + RUNNING
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("SET statement_timeout = 0")
        for first in range(1, every + 1, STEP):
            for statement in STATEMENTS:
                cursor.execute(RUNS + statement, {**known, "first": first, "last": min(first + STEP - 1, every)})
        for statement in (COUNT_HELD, *SUMS):
            cursor.execute(statement)
        cursor.execute("SET session_replication_role = origin")
        cursor.execute("VACUUM (ANALYZE)")


def _measure() -> dict[str, float]:
    import billing.queries.proof as of_billing
    import federation.queries.proof as of_federation
    import quotas.queries.proofs as of_quotas
    from federation.operations import prove_books
    from foundation.proofs import findings

    rooms = (
        ("billing", of_billing.FULL_PROOFS, {"meter": 0, "segment": 0}),
        ("quotas", of_quotas.FULL_PROOFS, {"since": 0}),
        ("federation", of_federation.PROOFS, {"since": "-infinity"}),
    )
    rows = []
    for room, proofs, given in rooms:
        for proof in proofs:
            with _watched() as seen:
                assert findings([proof], given) == []
            rows.append({"room": room, "question": proof[0][:60], **seen})
    report.table(rows)
    figures: dict[str, float] = {}
    for name, is_full in (("full", True), ("nightly", False)):
        with _watched() as seen:
            proven = prove_books(full=is_full)
        assert (proven.found, proven.is_full) == (0, is_full)
        figures |= {f"{name}_{what}": value for what, value in seen.items()}
    return figures


@contextmanager
def _watched() -> Iterator[dict[str, float]]:
    """Filled at the end: seconds, the most private memory that the server process had, and what
    it wrote into files.
    """
    seen: dict[str, float] = {}
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        status = Path(f"/proc/{cursor.fetchone()[0]}/status")
    peaks, done = [_private_mib(status)], threading.Event()

    def sample() -> None:
        while not done.wait(SAMPLE_SECONDS):
            peaks.append(_private_mib(status))

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    before, began = _temporary_mib(), time.perf_counter()
    try:
        yield seen
    finally:
        seen["seconds"] = time.perf_counter() - began
        done.set()
        sampler.join()
        seen |= {"memory_mib": max(peaks), "files_mib": _temporary_mib() - before}


def _private_mib(status: Path) -> float:
    with suppress(OSError):
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
    return 0.0


def _temporary_mib() -> float:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT temp_bytes FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0]) / 2**20


def _sizes() -> dict[str, str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT " + ", ".join(f"(SELECT count(*) FROM {table})" for table in COUNTED))
        return {
            table.partition("_")[2] + "s": f"{count:,}" for table, count in zip(COUNTED, cursor.fetchone(), strict=True)
        }


def _settings() -> dict[str, str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, current_setting(name) FROM unnest(%s::text[]) AS name", [list(SHOWN_SETTINGS)])
        return dict(cursor.fetchall())


COUNTED = ("federation_attempt", "federation_podrun", "billing_meter", "billing_usagesegment", "quotas_holdmovement")
SHOWN_SETTINGS = ("server_version", "shared_buffers", "work_mem", "max_parallel_workers_per_gather")
PRICE = "2.333333"
RUNS = """
WITH run AS (
    SELECT n, lpad(to_hex(n), 32, '0')::uuid AS id, n > %(attempts)s AS runs,
           (%(teams)s::uuid[])[1 + n %% cardinality(%(teams)s::uuid[])] AS tenant,
           date_trunc('hour', %(at)s - interval '91 days' + n * (interval '90 days' / %(attempts)s)) AS began
      FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
), dated AS (
    SELECT run.*, CASE WHEN NOT runs THEN began + interval '1 hour' END AS ended FROM run
), pod AS (
    SELECT dated.*, number, 2 * n + number AS pod FROM dated, generate_series(0, 1) AS number
)
"""
STATEMENTS = (
    """
    INSERT INTO federation_job (id, tenant_id, created_by_id, name, spec, shape, labels, priority, state, reason_code,
        reason_message, explanation, attempts_made, created_at, started_at, finished_at)
    SELECT id, tenant, %(user)s, 'history', '{}', 's', '{}', 0, CASE WHEN runs THEN 'running' ELSE 'succeeded' END, '', '',
        '{}', 1, began, began, ended FROM dated
    """,
    """
    INSERT INTO federation_attempt (id, job_id, number, cluster_id, state, state_before_unknown, flavor, domain, currency,
        namespace, spec_hash, claim_token, next_action_at, tries, reserved_at, sent_at, created_at, starting_at, released_at,
        started_at, finished_at, end_reason, end_message, stop_reason, stop_message, settled_at, removed_at)
    SELECT id, id, 1, %(cluster)s, CASE WHEN runs THEN 'running' ELSE 'succeeded' END, '', 'h100', '', 'USD', 'n', 'h', 0,
        NULL, 1, began, began, began, began, began, began, ended, CASE WHEN runs THEN '' ELSE 'completed' END, '', '', '',
        ended + interval '1 second', ended + interval '1 second' FROM dated
    """,
    """
    INSERT INTO federation_podrun (attempt_id, cluster_id, index, place, uid, name, position, node, phase, reason, started_at,
        finished_at, exit_code, is_gone, observed_at)
    SELECT id, %(cluster)s, number, NULL, 'p' || pod, 'p', 0, 'n', 'Running', '', began, ended, NULL, NOT runs,
        coalesce(ended, began) FROM pod
    """,
    """
    INSERT INTO billing_meter (id, cluster_id, source_uid, tenant_id, tenant_path, user_id, user_name, workload_id,
        workload_name, run_id, flavor, capacity_type, unit, gpu_units, cpu_millicores, metered_from, metered_until, is_closed)
    SELECT pod, %(cluster)s, 'p' || pod, tenant, 'acme/research/team', %(user)s, 'u', id, 'history', id, 'h100', 'on_demand',
        'gpu', 1, 2000, began, ended, true FROM pod WHERE NOT runs
    """,
    """
    INSERT INTO billing_usagesegment (meter_id, period, gpu_milliseconds, cpu_millicore_milliseconds, price_id, cost, currency,
        is_estimated)
    SELECT pod, period, 360000, 720000000, price.id, billing_cost(
            false, 1, 2000, 0, began, price.unit_price, NULL, NULL, price.valid, period), 'USD', false
      FROM pod, generate_series(0, 9) AS part, billing_price AS price,
           LATERAL (SELECT tstzrange(began + part * interval '6 minutes', began + (part + 1) * interval '6 minutes') AS period)
           AS cut
     WHERE price.id = %(price)s AND NOT runs
    """,
    """
    INSERT INTO quotas_hold (holder_id, tenant_id, cluster_name, amounts, state, created_at, ended_at)
    SELECT id, tenant, 'north', '{"gpu": 2000}', CASE WHEN runs THEN 'pending' ELSE 'posted' END, began, ended FROM dated
    """,
    """
    INSERT INTO quotas_holdmovement (hold_id, limit_id, kind, amount, at)
    SELECT run.id, l.id, kind, CASE kind WHEN 'take' THEN 2000 ELSE -2000 END, began
      FROM run JOIN quotas_quotalimit AS l ON l.tenant_id = run.tenant,
           unnest(ARRAY['take', 'end']) AS kind
     WHERE NOT runs OR kind = 'take'
    """,
)
COUNT_HELD = """
UPDATE quotas_quotalimit AS l SET held = taken.amount
  FROM (SELECT above.id, sum(lines.amount) AS amount
          FROM (SELECT limit_id, sum(amount) AS amount FROM quotas_holdmovement GROUP BY limit_id) AS lines
          JOIN quotas_quotalimit AS own ON own.id = lines.limit_id
          JOIN quotas_quotalimit AS above ON above.tenant_id IN (SELECT id FROM quotas_tenants_above(own.tenant_id))
         GROUP BY above.id) AS taken
 WHERE taken.id = l.id
"""
SUMS = (
    """
    INSERT INTO billing_meterday (meter_id, day, price_id, currency, milliseconds, cost)
    SELECT meter_id, (lower(period) AT TIME ZONE 'UTC')::date, price_id, currency,
        sum(extract(epoch FROM upper(period) - lower(period)) * 1000), sum(cost)
    FROM billing_usagesegment GROUP BY 1, 2, 3, 4
    """,
    """
    INSERT INTO billing_tenantday (organisation_id, tenant_id, tenant_path, cluster_id, flavor, day, currency, gpu_numerator,
        gpu_denominator, cost, gpu_milliseconds, cpu_millicore_milliseconds, memory_mib_milliseconds, segments)
    SELECT root.id, m.tenant_id, m.tenant_path, m.cluster_id, m.flavor, (lower(s.period) AT TIME ZONE 'UTC')::date, s.currency,
        m.gpu_numerator, m.gpu_denominator, sum(s.cost), sum(s.gpu_milliseconds), sum(s.cpu_millicore_milliseconds),
        sum(m.memory_mib * extract(epoch FROM upper(s.period) - lower(s.period)) * 1000), count(*)
    FROM billing_usagesegment AS s JOIN billing_meter AS m ON m.id = s.meter_id
    JOIN tenancy_tenant AS root ON root.path = split_part(m.tenant_path, '/', 1)
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9
    """,
    """
    INSERT INTO billing_tenantmonth (tenant_id, month, currency, gpu_numerator, gpu_denominator, cost, gpu_milliseconds)
    SELECT tenant_id, date_trunc('month', day)::date, currency, gpu_numerator, gpu_denominator, sum(cost), sum(gpu_milliseconds)
    FROM billing_tenantday GROUP BY 1, 2, 3, 4, 5
    """,
)


if __name__ == "__main__":
    main()

"""Many attempts, copied from one that was really placed: some that wait for dispatch, others that have long ended."""

from collections.abc import Sequence
from typing import Any

from django.db import connection, transaction

from clusters.models import Cluster
from federation.engine.names import object_name
from federation.models import Attempt
from foundation.ids import new_id

COPY = """
WITH pattern AS (
    SELECT attempt.id, attempt.job_id FROM federation_attempt AS attempt WHERE attempt.id = %(pattern)s
), copies AS MATERIALIZED (
    SELECT gen_random_uuid() AS job_id, attempt_id, cluster_id
      FROM unnest(%(clusters)s::uuid[], %(attempts)s::uuid[]) AS made(cluster_id, attempt_id)
), jobs AS (
    INSERT INTO federation_job
    SELECT (jsonb_populate_record(job, jsonb_build_object('id', copies.job_id))).*
      FROM copies, federation_job AS job WHERE job.id = (SELECT job_id FROM pattern)
    RETURNING id
)
INSERT INTO federation_attempt
SELECT (jsonb_populate_record(attempt, jsonb_build_object(
           'id', copies.attempt_id, 'job_id', copies.job_id, 'cluster_id', copies.cluster_id,
           'reserved_at', now(), 'next_action_at', now()))).*
  FROM copies, federation_attempt AS attempt WHERE attempt.id = (SELECT id FROM pattern)
"""
COPY_OBJECTS = """
INSERT INTO federation_remoteobject
SELECT (jsonb_populate_record(object, jsonb_build_object(
           'id', nextval(pg_get_serial_sequence('federation_remoteobject', 'id')), 'attempt_id', copies.attempt_id,
           'name', copies.name))).*
  FROM unnest(%(attempts)s::uuid[], %(names)s::text[]) AS copies(attempt_id, name), federation_remoteobject AS object
 WHERE object.attempt_id = %(pattern)s
"""
"""In a statement of its own: what an object was promised is read from its attempt, which has to be there by then."""


OFFER = """
INSERT INTO clusters_flavor
SELECT (jsonb_populate_record(flavor, jsonb_build_object('id', gen_random_uuid(), 'cluster_id', member.id))).*
  FROM (SELECT DISTINCT unnest(%(clusters)s::uuid[]) AS id) AS member, clusters_flavor AS flavor
 WHERE flavor.cluster_id = (SELECT cluster_id FROM federation_attempt WHERE id = %(pattern)s)
    ON CONFLICT (cluster_id, name) DO NOTHING
"""
"""An attempt keeps the flavor that its cluster offered when it was made, and is taken back where there was none."""


def pile_up(pattern: Attempt, clusters: Sequence[Cluster], count: int) -> None:
    """So many attempts on each of the clusters, due at once and alike but for their names."""
    made = [(one.id, new_id()) for one in clusters for _ in range(count)]
    asked: dict[str, Any] = {
        "pattern": pattern.id,
        "clusters": [cluster_id for cluster_id, _ in made],
        "attempts": [attempt_id for _, attempt_id in made],
        "names": [object_name(attempt_id, 0) for _, attempt_id in made],
    }
    # A dispatcher that runs meanwhile must not see attempts without their objects.
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 0")  # on a busy host thousands of rows take their time
        cursor.execute(OFFER, asked)
        cursor.execute(COPY, asked)
        cursor.execute(COPY_OBJECTS, asked)
        if len(made) > 1:
            cursor.execute("ANALYZE federation_attempt")


def left_to_release(clusters: Sequence[Cluster] = ()) -> int:
    """How many attempts have not been released yet."""
    rows = Attempt.objects.filter(released_at=None)
    return (rows.filter(cluster__in=clusters) if clusters else rows).count()


HISTORY = """
WITH pattern AS (SELECT * FROM federation_attempt WHERE id = %(pattern)s),
jobs AS (
    INSERT INTO federation_job (id, tenant_id, created_by_id, name, spec, shape, labels, priority, state, reason_code,
                                reason_message, explanation, attempts_made, created_at, started_at, finished_at)
    SELECT lpad(to_hex(n), 32, '0')::uuid, job.tenant_id, job.created_by_id, 'history', '{}', job.shape, '{}', 0, 'succeeded', '',
           '', '{}', 1, now() - interval '30 days', now() - interval '30 days', now() - interval '29 days'
      FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n, federation_job AS job WHERE job.id = (SELECT job_id FROM pattern)
    RETURNING id
), attempts AS (
    INSERT INTO federation_attempt (id, job_id, number, cluster_id, state, state_before_unknown, flavor, domain, currency,
                                    namespace, spec_hash, claim_token, next_action_at, tries, reserved_at, sent_at, created_at,
                                    starting_at, released_at, started_at, finished_at, end_reason, end_message, stop_reason,
                                    stop_message, settled_at, removed_at)
    SELECT lpad(to_hex(n), 32, '0')::uuid, lpad(to_hex(n), 32, '0')::uuid, 1, (%(clusters)s::uuid[])[1 + n %% %(count)s::bigint], 'succeeded',
           '', pattern.flavor, '', 'USD', pattern.namespace, pattern.spec_hash, 0, NULL, 1, at, at, at, at, at, at,
           at + interval '1 day', 'completed', '', '', '', at + interval '1 day', at + interval '2 days'
      FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n, pattern,
           LATERAL (SELECT now() - interval '30 days' AS at) AS then_
    RETURNING id, cluster_id
)
INSERT INTO federation_remoteobject (attempt_id, position, name, flavor, capacity_type, pods, gpu_units, cpu_millicores,
                                     memory_mib, assumed_nodes, domain_selectors, topology_label, stretches, cluster_id, uid,
                                     outcome, promised)
SELECT id, 0, 'swy-' || left(id::text, 8), 'cpu', 'on_demand', 1, 0, 100, 64, '{}', '[]', '', '[]', cluster_id, id::text, 'succeeded',
       (SELECT promised FROM federation_remoteobject WHERE attempt_id = %(pattern)s LIMIT 1)
  FROM attempts
"""
"""Ids grow with time, as the gateway's own do: rows of one time stand together in every index."""
STEP = 50_000


def long_ago(pattern: Attempt, clusters: Sequence[Cluster], count: int) -> None:
    """So many jobs that ended a month ago on these clusters, each with its attempt and object. Loaded as a dump is
    restored: without triggers and checks of foreign keys, which takes a third of the time.
    """
    ids = [one.id for one in clusters]
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
        cursor.execute("SET session_replication_role = replica")
        for first in range(1, count + 1, STEP):
            last = min(first + STEP - 1, count)
            asked: dict[str, Any] = {"pattern": pattern.id, "clusters": ids, "count": len(ids)}
            cursor.execute(HISTORY, {**asked, "first": first, "last": last})
        cursor.execute("RESET session_replication_role")
        for table in ("job", "attempt", "remoteobject"):
            cursor.execute(f"VACUUM (ANALYZE) federation_{table}")
        cursor.execute("RESET statement_timeout")

"""What must hold while administrators change things: tenants, whole clusters, the ledger's proof."""

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from .promises import judging

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World


@judging
def promise_16_no_proof_of_the_running_ledger_finds_anything(world: "World") -> list[str]:
    """Proofs that ran beside everything else found nothing."""
    rows = world.watch.rows("SELECT began_at, found FROM federation_bookproof WHERE found > 0 ORDER BY id")
    return [f"the proof of {began_at} found {count} errors" for began_at, count in rows]


@judging
def promise_22_what_administrators_did_is_in_the_audit_trail(world: "World") -> list[str]:
    """Each action that was acknowledged has its entry, unless its commit was lost with a restore."""
    entries = dict(world.watch.rows("SELECT action, count(*) FROM tenancy_auditentry GROUP BY 1"))
    done = Counter(action for at_us, action in world.fulfilled if not world.lost_commits.overlap(at_us, at_us))
    return [
        f"{action} was acknowledged {times} times and has {entries.get(action, 0)} entries"
        for action, times in sorted(done.items())
        if entries.get(action, 0) < times
    ]


@judging
def nothing_starts_that_could_run_into_maintenance(world: "World") -> list[str]:
    """After operators have learned that a window is planned, the gateway commits to no attempt that could run, by its
    deadline, into the window on its nodes, until that has ended or is cancelled.
    """
    if world.lost_commits.spans:
        return []
    return [
        f"attempt {attempt} was committed to on {node}, which the maintenance {window} concerns"
        for attempt, at_us, node, window in world.watch.rows(STARTED_INTO_MAINTENANCE)
        if at_us > world.planned.get(window, at_us) + STATEMENT_US
    ]


STATEMENT_US = 1_000_000
"""The longest that the commitment takes, which may not have seen the window: its rows are locked before it begins."""
STARTED_INTO_MAINTENANCE = """
SELECT attempt.id, (extract(epoch FROM change.at) * 1000000)::bigint, used.node, planned.id
  FROM simulation.changes AS change
  JOIN federation_attempt AS attempt ON attempt.id::text = change.id
  JOIN federation_job AS job ON job.id = attempt.job_id
  JOIN federation_remoteobject AS object ON object.attempt_id = attempt.id
 CROSS JOIN LATERAL jsonb_object_keys(object.assumed_nodes) AS used(node)
  JOIN clusters_maintenancewindow AS planned ON planned.cluster_id = attempt.cluster_id
 WHERE change.what = 'attempt' AND change.before = 'created' AND change.after = 'starting'
   AND change.at < least(planned.ends_at, planned.cancelled_at)
   AND change.at + make_interval(secs => (job.spec->>'deadline_seconds')::float) > planned.starts_at
   AND (planned.nodes = '[]' AND planned.flavor = '' OR planned.nodes ? used.node
        OR object.flavor = planned.flavor
           AND EXISTS (SELECT FROM clusters_node AS node
                        WHERE node.cluster_id = planned.cluster_id AND node.name = used.node
                          AND node.devices @> jsonb_build_array(jsonb_build_object('flavor', planned.flavor))))
 ORDER BY 1, 3, 4
"""


@judging
def only_maintenance_stops_attempts_as_maintenance(world: "World") -> list[str]:
    """When an attempt was asked to stop for maintenance, its cluster had a window that was not cancelled; for what had
    begun, one that had begun and drains. A minute is what lies between reading that and writing it.
    """
    if world.lost_commits.spans:
        return []
    return [
        f"attempt {attempt} was stopped as {reason}, and its cluster had no such maintenance"
        for attempt, reason in world.watch.rows(STOPPED_WITHOUT_MAINTENANCE)
    ]


STOPPED_WITHOUT_MAINTENANCE = """
SELECT attempt.id, attempt.stop_reason FROM federation_attempt AS attempt
 WHERE attempt.stop_reason IN ('maintenance_ahead', 'maintenance_began')
   AND NOT EXISTS (
       SELECT FROM clusters_maintenancewindow AS planned
        WHERE planned.cluster_id = attempt.cluster_id AND planned.created_at <= attempt.stop_requested_at
          AND attempt.stop_requested_at < least(planned.ends_at, planned.cancelled_at) + interval '1 minute'
          AND (attempt.stop_reason = 'maintenance_ahead' OR planned.drain AND planned.starts_at <= attempt.stop_requested_at))
 ORDER BY 1
"""


@judging
def a_cluster_is_removed_only_when_nothing_lives_there(world: "World") -> list[str]:
    """No attempt was live on a cluster when it was removed, or came later."""
    return [
        f"attempt {attempt} lived on {name} when it was removed" for attempt, name in world.watch.rows(LIVED_ON_REMOVED)
    ]


LIVED_ON_REMOVED = """
SELECT attempt.id, cluster.name FROM federation_attempt AS attempt
  JOIN clusters_cluster AS cluster ON cluster.id = attempt.cluster_id
 WHERE cluster.removed_at IS NOT NULL
   AND (attempt.finished_at IS NULL OR attempt.finished_at > cluster.removed_at OR attempt.reserved_at > cluster.removed_at)
 ORDER BY 1
"""


@judging
def only_attested_attempts_are_lost(world: "World") -> list[str]:
    """An attempt ends as lost only on a cluster that an administrator declared destroyed, or to have lost its runs."""
    attested = world.vanished | {name for name, link in world.links.items() if link.is_destroyed}
    return [f"attempt {attempt} on {name} is lost" for attempt, name in world.watch.rows(LOST) if name not in attested]


@judging
def promise_18_too_many_unknown_objects_are_left_alone(world: "World") -> list[str]:
    """Of more unknown objects than it dares to delete, the gateway deletes none; if it sees fewer, it may."""
    if any(world.faults.happened[kind] for kind in TAKE_ORPHANS_AWAY):
        return []
    return [
        f"{cluster.name} lacks {len(missing)} planted objects"
        for cluster in world.clusters.values()
        if (missing := cluster.orphans - {job.uid for job in cluster.jobs.values()})
    ]


TAKE_ORPHANS_AWAY = (
    "list_lacks", "restored", "emptied", "stranger_deletes", "stranger_edits", "database_restored", "dispatch_closed",
)  # fmt: skip
"""In a standstill, which the last two begin, the gateway deletes every suspended object of an unknown attempt."""


LOST = """
SELECT attempt.id, cluster.name FROM federation_attempt AS attempt
  JOIN clusters_cluster AS cluster ON cluster.id = attempt.cluster_id WHERE attempt.state = 'lost' ORDER BY 1
"""


@judging
def budgets_hold_only_for_what_runs(world: "World") -> list[str]:
    """A pending hold of money belongs to an attempt that is not settled; when all has ended, budgets hold nothing."""
    found = [f"the budget hold of {holder} is pending" for (holder,) in world.watch.rows(STRAY_BUDGET_HOLDS)]
    if not world.watch.rows("SELECT 1 FROM federation_attempt WHERE settled_at IS NULL LIMIT 1"):
        found += [f"budget {id_} still holds {held}" for id_, held in world.watch.rows(STILL_HELD)]
    return found


STRAY_BUDGET_HOLDS = """
SELECT holder_id FROM billing_budgethold WHERE state = 'pending'
   AND NOT EXISTS (SELECT FROM federation_attempt a WHERE a.id = holder_id AND a.settled_at IS NULL) ORDER BY 1
"""
STILL_HELD = "SELECT budget_id, held FROM billing_budgetperiod WHERE held <> 0 ORDER BY 1, 2"


@judging
def promise_14_a_take_never_goes_beyond_a_stopping_budget(world: "World") -> list[str]:
    """After each take, what is spent and held is within the amounts that the budget had until then, and its overrides."""
    return [
        f"run {run} took {held} of budget period {period}, of which {used} was used then and which never allowed more than {most}"
        for run, period, held, used, most in world.watch.rows(TAKEN_BEYOND)
    ]


TAKEN_BEYOND = """
SELECT line.run_id, line.period_id, line.held, line.used, line.most FROM (
    SELECT m.run_id, m.period_id, m.kind, m.held, sum(m.held + m.spent) OVER (PARTITION BY m.period_id ORDER BY m.id) AS used,
           (SELECT coalesce(sum(amount), 0) FROM billing_budgetoverride
             WHERE period_id = p.id AND approved_at IS NOT NULL) +
           (SELECT max(audit.amount) FROM (
                SELECT (detail -> 'budget' ->> 'amount')::numeric AS amount, (detail -> 'budget' ->> 'stops_admission')::boolean AS stops
                  FROM tenancy_auditentry WHERE action = 'budget.put' AND object_id = p.budget_id::text
           ) AS audit HAVING bool_and(audit.stops)) AS most
      FROM billing_budgetmovement AS m JOIN billing_budgetperiod AS p ON p.id = m.period_id
) AS line WHERE line.kind = 'take' AND line.held > 0 AND line.used > line.most ORDER BY 1, 2
"""
"""Of budgets that always stopped admission; only the end of a world removes them."""


@judging
def a_moved_team_takes_its_limits_along(world: "World") -> list[str]:
    """Each pending hold counts at the limits on the path on which its tenant is now, and nowhere else."""
    return [f"the hold {holder} counts at a limit of {path}" for holder, path in world.watch.rows(STRAY_HOLDS)]


STRAY_HOLDS = """
SELECT hold.holder_id, above.path FROM quotas_hold AS hold
  JOIN quotas_holdmovement AS movement ON movement.hold_id = hold.holder_id
  JOIN quotas_quotalimit AS quota ON quota.id = movement.limit_id
  JOIN tenancy_tenant AS above ON above.id = quota.tenant_id
  JOIN tenancy_tenant AS tenant ON tenant.id = hold.tenant_id
 WHERE hold.state = 'pending' AND tenant.path <> above.path AND NOT starts_with(tenant.path, above.path || '/')
 GROUP BY hold.holder_id, quota.id, above.path HAVING sum(movement.amount) <> 0 ORDER BY 1
"""


@judging
def promise_12_limits_count_what_is_held_and_guaranteed(world: "World") -> list[str]:
    """Each limit counts the pending holds below it, and instead of a limit's own at least what that guarantees. Counted
    here from the tenants' paths and the holds alone.
    """
    limits = [_Limit(*row) for row in world.watch.rows(LIMITS)]
    holds = [_Hold(*row) for row in world.watch.rows(HOLDS)]
    return [
        f"the limit of {limit.path} on {limit.resource} counts {limit.held}, but {due} is held or guaranteed below it"
        for limit in limits
        if limit.held != (due := _due(limit, limits, holds))
    ]


class _Limit(NamedTuple):
    path: str
    resource: str
    clusters: list[str]
    held: int
    guaranteed: int


class _Hold(NamedTuple):
    path: str
    cluster: str
    amounts: dict[str, int]


def _due(limit: _Limit, limits: list[_Limit], holds: list[_Hold]) -> int:
    alike = [one for one in limits if (one.resource, one.clusters) == (limit.resource, limit.clusters)]
    below = [one for one in alike if one.path.startswith(f"{limit.path}/")]
    next_below = [one for one in below if not any(one.path.startswith(f"{other.path}/") for other in below)]
    own = [
        hold.amounts.get(limit.resource, 0)
        for hold in holds
        if f"{hold.path}/".startswith(f"{limit.path}/")
        and (not limit.clusters or hold.cluster in limit.clusters)
        and not any(f"{hold.path}/".startswith(f"{one.path}/") for one in next_below)
    ]
    return sum(own) + sum(max(_due(one, limits, holds), one.guaranteed) for one in next_below)


LIMITS = """
SELECT tenant.path, quota.resource, quota.clusters, quota.held,
       greatest(0, quota.nominal - coalesce(quota.lending_limit, quota.nominal))
  FROM quotas_quotalimit AS quota JOIN tenancy_tenant AS tenant ON tenant.id = quota.tenant_id
 WHERE quota.removed_at IS NULL ORDER BY quota.id
"""
HOLDS = """
SELECT tenant.path, hold.cluster_name, hold.amounts FROM quotas_hold AS hold
  JOIN tenancy_tenant AS tenant ON tenant.id = hold.tenant_id WHERE hold.state = 'pending' ORDER BY hold.holder_id
"""


@judging
def promise_12_no_class_holds_more_than_it_may(world: "World") -> list[str]:
    """By a count beside the gateway's, at each commit that added to what a class holds, where it has a limit."""
    rows = world.watch.rows(
        "SELECT id, before, after FROM simulation.changes WHERE what = 'class_limit' ORDER BY number"
    )
    return [f"the class {limit} may hold {most} and held {held}" for limit, most, held in rows]

"""What must hold of preemption: who is stopped for whom, once, and that every claim on nodes ends."""

from typing import TYPE_CHECKING

from devtools.simulation.setting.stage import GPUS_PER_NODE, NODES, SHIELD_SECONDS

from .promises import judging

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World


@judging
def only_a_more_urgent_job_of_the_organisation_replaces_one(world: "World") -> list[str]:
    """Each attempt that was stopped as preempted for a job has its decision; the beneficiary had higher priority, or the
    attempt had borrowed. Those of lowered limits have no beneficiary.
    """
    return [
        f"attempt {attempt} was stopped for another job: {why}" for attempt, why in world.watch.rows(WRONGLY_STOPPED)
    ]


WRONGLY_STOPPED = """
SELECT attempt.id, CASE WHEN victim.attempt_id IS NULL THEN 'no decision says so' ELSE 'that is not more urgent' END
  FROM federation_attempt AS attempt
  JOIN federation_job AS job ON job.id = attempt.job_id
  LEFT JOIN federation_preemptionvictim AS victim ON victim.attempt_id = attempt.id
  LEFT JOIN federation_preemption AS preemption ON preemption.id = victim.preemption_id
  LEFT JOIN federation_job AS beneficiary ON beneficiary.id = preemption.beneficiary_id
 WHERE attempt.stop_reason = 'preempted_for_job' AND (
       victim.attempt_id IS NULL OR beneficiary.id IS NULL OR victim.loan IS NULL AND beneficiary.priority <= job.priority)
    OR victim.attempt_id IS NOT NULL AND victim.loan IS NULL AND beneficiary.priority <= job.priority
 ORDER BY 1
"""


@judging
def the_beneficiary_fits_when_its_victims_have_ended(world: "World") -> list[str]:
    """At the decision, what else ran on the cluster left enough GPUs for it, of all that the cluster has. What runs on
    devices that were renamed since is counted by its old flavor, so it is not known.
    """
    if world.faults.happened["flavor_renamed"]:
        return []
    return [
        f"jobs were stopped for {job}, which wanted {wanted} GPUs of {GPUS_PER_NODE * NODES} beside {others} in use"
        for job, wanted, others in world.watch.rows(WITHOUT_ROOM, GPUS_PER_NODE * NODES)
    ]


WITHOUT_ROOM = """
SELECT * FROM (
    SELECT preemption.beneficiary_id,
           (SELECT sum(CASE WHEN beneficiary.spec->'elastic'->>'pod_set' = pods->>'name'
                            THEN (beneficiary.spec->'elastic'->>'min_count')::int ELSE (pods->>'count')::int END
                       * (pods->'gpu'->>'count')::int)
              FROM jsonb_array_elements(beneficiary.spec->'pod_sets') AS pods) AS wanted,
           coalesce((SELECT sum(object.gpu_units * object.pods)
              FROM federation_attempt AS attempt
              JOIN federation_remoteobject AS object ON object.attempt_id = attempt.id
             WHERE attempt.cluster_id = preemption.cluster_id AND attempt.starting_at < preemption.created_at
               AND (attempt.finished_at IS NULL OR attempt.finished_at > preemption.created_at)
               AND object.outcome = '' AND attempt.state NOT IN ('succeeded', 'failed')
               AND attempt.id NOT IN (SELECT attempt_id FROM federation_preemptionvictim AS victim
                                       WHERE victim.preemption_id = preemption.id)), 0) AS others
      FROM federation_preemption AS preemption
      JOIN federation_job AS beneficiary ON beneficiary.id = preemption.beneficiary_id
) AS decided WHERE wanted + others > %s ORDER BY 1
"""


@judging
def a_job_runs_as_long_as_its_class_shields_it(world: "World") -> list[str]:
    """No attempt was stopped for another job sooner after its start."""
    return [
        f"attempt {attempt} was stopped for another job after {ran} s"
        for attempt, ran in world.watch.rows(SHIELD_BROKEN, SHIELD_SECONDS)
    ]


SHIELD_BROKEN = "SELECT attempt_id, ran_seconds FROM federation_preemptionvictim WHERE ran_seconds < %s ORDER BY 1"


@judging
def no_tenant_loses_what_is_its_own(world: "World") -> list[str]:
    """A job that was stopped for what it borrowed would not fit again in its tenant's own quota, beside what continued."""
    return [
        f"attempt {attempt} was stopped, but {path} kept room for it within its own quota"
        for attempt, path in world.watch.rows(OWN_LOST)
    ]


OWN_LOST = """
SELECT victim.attempt_id, victim.loan->>'tenant' FROM federation_preemptionvictim AS victim
 WHERE victim.loan IS NOT NULL
   AND ((victim.loan->>'held')::numeric - (victim.loan->>'nominal')::numeric) * 1000 + victim.gpu_milli <= (
       SELECT sum(other.gpu_milli) FROM federation_preemptionvictim AS other
         JOIN federation_job AS job ON job.id = other.job_id JOIN tenancy_tenant AS tenant ON tenant.id = job.tenant_id
        WHERE other.preemption_id = victim.preemption_id
          AND starts_with(tenant.path || '/', (victim.loan->>'tenant') || '/'))
 ORDER BY 1
"""


@judging
def what_is_beyond_a_limit_is_taken_back_only_as_its_manager_said(world: "World") -> list[str]:
    """Each attempt that was stopped for a lowered limit has its decision, which names a limit above its tenant. The limit had been
    set with that delay before, by an act that the audit trail has. When, is what the database's clock said: that of the act's host
    may be ahead.
    """
    return [f"attempt {attempt} was stopped for a lowered limit: {why}" for attempt, why in world.watch.rows(NOT_DUE)]


NOT_DUE = """
SELECT attempt.id, CASE WHEN preemption.id IS NULL THEN 'no decision says so' ELSE 'its delay had not passed' END
  FROM federation_attempt AS attempt
  JOIN federation_job AS job ON job.id = attempt.job_id
  LEFT JOIN federation_preemptionvictim AS victim ON victim.attempt_id = attempt.id
  LEFT JOIN federation_preemption AS preemption ON preemption.id = victim.preemption_id AND preemption.beneficiary_id IS NULL
 WHERE (attempt.stop_reason = 'limit_lowered' OR victim.attempt_id IS NOT NULL AND preemption.id IS NOT NULL)
   AND (preemption.id IS NULL OR NOT EXISTS (
       SELECT 1 FROM jsonb_array_elements(preemption.limits) AS named
         JOIN simulation.enforced ON enforced.limit_id = named->>'limit'
         JOIN tenancy_auditentry AS act ON act.action = 'quota.put' AND act.object_id = enforced.limit_id
              AND (act.detail->>'reclaim_after')::int = enforced.reclaim_after
        WHERE enforced.at + make_interval(secs => enforced.reclaim_after) <= preemption.created_at))
 ORDER BY 1
"""


@judging
def no_job_is_stopped_for_a_limit_in_vain(world: "World") -> list[str]:
    """Without the smallest victim of a decision, what the limit held would not have sufficed, unless guarantees keep a part of
    what victims return. So only limits of organisations are judged here; the database judges all.
    """
    return [f"decision {id_} stopped more than {over} GPUs" for id_, over in world.watch.rows(IN_VAIN)]


IN_VAIN = """
SELECT * FROM (
    SELECT preemption.id, (preemption.limits->0->>'held')::numeric - (preemption.limits->0->>'most')::numeric AS over,
           (SELECT (sum(gpu_milli) - min(gpu_milli)) / 1000.0 FROM federation_preemptionvictim AS victim
             WHERE victim.preemption_id = preemption.id) AS without_one
      FROM federation_preemption AS preemption
     WHERE preemption.beneficiary_id IS NULL AND jsonb_array_length(preemption.limits) = 1
       AND preemption.limits->0->>'resource' = 'gpu'
       AND NOT EXISTS (SELECT 1 FROM quotas_quotalimit AS lent JOIN tenancy_tenant AS tenant ON tenant.id = lent.tenant_id
                        WHERE lent.lending_limit IS NOT NULL
                          AND starts_with(tenant.path, (preemption.limits->0->>'tenant') || '/'))
) AS decided WHERE without_one >= over ORDER BY 1
"""


@judging
def each_victim_gets_one_event(world: "World") -> list[str]:
    """The timeline of its job has one event about it."""
    return [f"attempt {attempt} has {count} events" for attempt, count in world.watch.rows(EVENTS)]


EVENTS = """
SELECT victim.attempt_id, count(event.id) FROM federation_preemptionvictim AS victim
  LEFT JOIN federation_jobevent AS event
    ON event.attempt_id = victim.attempt_id AND event.kind = 'interrupted' AND (event.message LIKE 'Preempted for job %%' OR event.message LIKE 'Limit of %% lowered by %%')
 GROUP BY victim.attempt_id HAVING count(event.id) <> 1 ORDER BY 1
"""


@judging
def no_two_jobs_replace_each_other(world: "World") -> list[str]:
    """Of two jobs, at most one was ever stopped for the other."""
    return [f"jobs {one} and {other} were stopped for each other" for one, other in world.watch.rows(IN_TURN)]


IN_TURN = """
SELECT victim.job_id, preemption.beneficiary_id
  FROM federation_preemptionvictim AS victim
  JOIN federation_preemption AS preemption ON preemption.id = victim.preemption_id
  JOIN federation_preemption AS back ON back.beneficiary_id = victim.job_id
  JOIN federation_preemptionvictim AS other ON other.preemption_id = back.id AND other.job_id = preemption.beneficiary_id
 ORDER BY 1
"""


@judging
def every_claim_on_nodes_ends(world: "World") -> list[str]:
    """In the healed world no nodes are kept for a job any more."""
    rows = world.watch.rows("SELECT id, beneficiary_id FROM federation_preemption WHERE ended_at IS NULL ORDER BY id")
    return [f"claim {id_} of job {job} has not ended" for id_, job in rows]

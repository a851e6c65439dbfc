-- Whether a running attempt uses quota that its tenants borrowed from those of the beneficiary: the highest limit on its path
-- below the lowest one that both share holds more than its nominal amount even when all others that are being stopped have
-- ended. So the attempt would not fit again within that amount.
CREATE OR REPLACE FUNCTION federation_is_borrowed(wanted uuid, beneficiary_tenant uuid) RETURNS boolean LANGUAGE sql STABLE
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
    SELECT EXISTS (
        SELECT 1 FROM quotas_hold AS hold
          JOIN tenancy_tenant AS own ON own.id = hold.tenant_id
          JOIN tenancy_tenant AS its ON its.id = beneficiary_tenant
          JOIN quotas_quotalimit AS top ON top.removed_at IS NULL AND (hold.amounts ->> top.resource)::bigint > 0
           AND (cardinality(top.clusters) = 0 OR hold.cluster_name = ANY (top.clusters))
          JOIN tenancy_tenant AS at_top ON at_top.id = top.tenant_id
          JOIN quotas_quotalimit AS shared ON shared.id = top.parent_id
          JOIN tenancy_tenant AS at_shared ON at_shared.id = shared.tenant_id
         WHERE hold.holder_id = wanted AND hold.state = 'pending'
           AND starts_with(own.path || '/', at_top.path || '/') AND NOT starts_with(its.path || '/', at_top.path || '/')
           AND starts_with(its.path || '/', at_shared.path || '/')
           AND top.held - top.nominal > (
               SELECT coalesce(sum((going.amounts ->> top.resource)::bigint), 0) FROM federation_attempt AS attempt
                 JOIN quotas_hold AS going ON going.holder_id = attempt.id AND going.state = 'pending'
                 JOIN tenancy_tenant AS tenant ON tenant.id = going.tenant_id
                WHERE attempt.finished_at IS NULL AND attempt.stop_requested_at IS NOT NULL AND attempt.id <> wanted
                  AND starts_with(tenant.path || '/', at_top.path || '/')
                  AND (cardinality(top.clusters) = 0 OR going.cluster_name = ANY (top.clusters)))
    )
$$;

-- Only jobs of the beneficiary's organisation are stopped for it, and only for one that waits: those of strictly lower priority,
-- and those that use borrowed quota. A job is never stopped for one that was stopped for it.
CREATE OR REPLACE FUNCTION federation_check_victim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM federation_preemption AS preemption
       JOIN federation_job AS beneficiary ON beneficiary.id = preemption.beneficiary_id
       JOIN tenancy_tenant AS its_tenant ON its_tenant.id = beneficiary.tenant_id
       JOIN federation_attempt AS attempt ON attempt.id = NEW.attempt_id AND attempt.job_id = NEW.job_id
       JOIN federation_job AS victim ON victim.id = NEW.job_id
       JOIN tenancy_tenant AS tenant ON tenant.id = victim.tenant_id
      WHERE preemption.id = NEW.preemption_id AND preemption.ended_at IS NULL AND beneficiary.state = 'queued'
        AND attempt.finished_at IS NULL
        AND CASE WHEN NEW.loan IS NULL THEN victim.priority < beneficiary.priority
                 ELSE federation_is_borrowed(attempt.id, its_tenant.id) END
        AND split_part(tenant.path, '/', 1) = split_part(its_tenant.path, '/', 1);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'job % must not be stopped for this one', NEW.job_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'a_victim_is_less_urgent_or_borrows';
    END IF;
    IF EXISTS (
        SELECT 1 FROM federation_preemption AS now_made
          JOIN federation_preemptionvictim AS before ON before.job_id = now_made.beneficiary_id
          JOIN federation_preemption AS made ON made.id = before.preemption_id
         WHERE now_made.id = NEW.preemption_id AND made.beneficiary_id = NEW.job_id
    ) THEN
        RAISE EXCEPTION 'job % was stopped for this one before', NEW.job_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'jobs_are_not_stopped_in_turn';
    END IF;
    RETURN NEW;
END $$;

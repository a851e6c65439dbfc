-- Who may be stopped for whom.

-- Only jobs of the beneficiary's organisation are stopped for it, and only for one that waits: those of strictly lower priority,
-- and those that use borrowed quota. A job is never stopped for one that was stopped for it. Without a beneficiary, jobs are stopped
-- only for a lowered limit, and none of them in vain.
CREATE OR REPLACE FUNCTION federation_check_victim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM federation_preemption WHERE id = NEW.preemption_id AND beneficiary_id IS NULL) THEN
        PERFORM FROM federation_preemption AS preemption
           JOIN federation_attempt AS attempt ON attempt.id = NEW.attempt_id AND attempt.job_id = NEW.job_id
           JOIN federation_job AS victim ON victim.id = NEW.job_id
           JOIN tenancy_tenant AS tenant ON tenant.id = victim.tenant_id
          WHERE preemption.id = NEW.preemption_id AND attempt.finished_at IS NULL AND NEW.loan IS NULL
            AND split_part(tenant.path, '/', 1) = preemption.organisation AND federation_is_beyond(attempt.id, now());
        IF NOT FOUND THEN
            RAISE EXCEPTION 'no lowered limit needs the end of job %', NEW.job_id
                USING ERRCODE = 'check_violation', CONSTRAINT = 'a_victim_of_a_limit_is_needed';
        END IF;
        RETURN NEW;
    END IF;
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
CREATE OR REPLACE TRIGGER a_victim_is_less_urgent BEFORE INSERT ON federation_preemptionvictim
    FOR EACH ROW EXECUTE FUNCTION federation_check_victim();

-- A decision never changes; only its end is written, once.
CREATE OR REPLACE FUNCTION federation_keep_preemption() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.ended_at IS NOT NULL
       OR to_jsonb(NEW) - 'ended_at' - 'outcome' <> to_jsonb(OLD) - 'ended_at' - 'outcome' THEN
        RAISE EXCEPTION 'the preemption % is decided', OLD.id
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'a_preemption_ends_once';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER a_preemption_ends_once BEFORE UPDATE ON federation_preemption
    FOR EACH ROW EXECUTE FUNCTION federation_keep_preemption();

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

-- Whether a lowered limit, whose delay has passed at that time, needs the end of a running attempt: it would hold more than it may even when all
-- others that are being stopped, or have ended, have given back what they hold, and less without this one.
CREATE OR REPLACE FUNCTION federation_is_beyond(wanted uuid, at timestamptz) RETURNS boolean LANGUAGE sql STABLE
    SET enable_hashjoin = off
    SET enable_mergejoin = off AS $$
    SELECT EXISTS (
        SELECT 1 FROM quotas_hold AS hold
          JOIN tenancy_tenant AS own ON own.id = hold.tenant_id
          JOIN quotas_quotalimit AS lowered ON lowered.reclaim_at <= at AND (hold.amounts ->> lowered.resource)::bigint > 0
           AND (cardinality(lowered.clusters) = 0 OR hold.cluster_name = ANY (lowered.clusters))
          JOIN tenancy_tenant AS at_lowered ON at_lowered.id = lowered.tenant_id
         CROSS JOIN LATERAL (
             SELECT coalesce(array_agg(attempt.id), '{}') AS others FROM quotas_hold AS other
               JOIN federation_attempt AS attempt ON attempt.id = other.holder_id
              WHERE other.state = 'pending' AND attempt.id <> wanted
                AND (attempt.stop_requested_at IS NOT NULL OR attempt.finished_at IS NOT NULL)) AS going
         CROSS JOIN LATERAL (SELECT quotas_held_without(lowered.id, going.others) AS held) AS with_it
         WHERE hold.holder_id = wanted AND hold.state = 'pending'
           AND starts_with(own.path || '/', at_lowered.path || '/')
           AND with_it.held > quotas_bound(lowered.nominal, lowered.parent_id, lowered.borrowing_limit)
           AND with_it.held > quotas_held_without(lowered.id, going.others || wanted)
    )
$$;

-- Only jobs of the beneficiary's organisation with strictly lower priority are stopped for it, and only for one that waits.
CREATE OR REPLACE FUNCTION federation_check_victim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM federation_preemption AS preemption
       JOIN federation_job AS beneficiary ON beneficiary.id = preemption.beneficiary_id
       JOIN tenancy_tenant AS its_tenant ON its_tenant.id = beneficiary.tenant_id
       JOIN federation_attempt AS attempt ON attempt.id = NEW.attempt_id AND attempt.job_id = NEW.job_id
       JOIN federation_job AS victim ON victim.id = NEW.job_id
       JOIN tenancy_tenant AS tenant ON tenant.id = victim.tenant_id
      WHERE preemption.id = NEW.preemption_id AND preemption.ended_at IS NULL AND beneficiary.state = 'queued'
        AND victim.priority < beneficiary.priority AND attempt.finished_at IS NULL
        AND split_part(tenant.path, '/', 1) = split_part(its_tenant.path, '/', 1);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'job % must not be stopped for this one', NEW.job_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'a_victim_is_less_urgent';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_victim_is_less_urgent BEFORE INSERT ON federation_preemptionvictim
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
CREATE TRIGGER a_preemption_ends_once BEFORE UPDATE ON federation_preemption
    FOR EACH ROW EXECUTE FUNCTION federation_keep_preemption();

-- What is kept idle for a tenant counts as used by it from its beginning to its end. A row begins open and ends once; then it is
-- added to the past use as an ended hold is.
CREATE OR REPLACE FUNCTION quotas_guard_idle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.ended_at IS NULL AND NEW.created_at BETWEEN transaction_timestamp() AND clock_timestamp() THEN
            RETURN NEW;
        END IF;
        RAISE EXCEPTION 'what is kept idle begins now'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'kept_idle_begins_now';
    END IF;
    IF TG_OP = 'DELETE' OR OLD.ended_at IS NOT NULL OR NEW.ended_at IS NULL
       OR (NEW.id, NEW.holder_id, NEW.tenant_id, NEW.amounts, NEW.created_at, NEW.until_at)
          IS DISTINCT FROM (OLD.id, OLD.holder_id, OLD.tenant_id, OLD.amounts, OLD.created_at, OLD.until_at) THEN
        RAISE EXCEPTION 'what was kept idle only ends, once'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'kept_idle_only_ends';
    END IF;
    -- Nobody chooses when: it counts until now, and never beyond its bound.
    NEW.ended_at := greatest(OLD.created_at, least(statement_timestamp(), OLD.until_at));
    RETURN NEW;
END $$;
CREATE TRIGGER quotas_guard_kept_idle BEFORE INSERT OR UPDATE OR DELETE ON quotas_keptidle
    FOR EACH ROW EXECUTE FUNCTION quotas_guard_idle();
CREATE TRIGGER quotas_kept_idle_is_past_use AFTER UPDATE ON quotas_keptidle
    REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION quotas_add_past_use();

-- The past use of every tenant by its ended holds and what was kept idle for it, each as of its last end.
CREATE OR REPLACE FUNCTION quotas_past_use_of_holds()
    RETURNS TABLE(tenant_id uuid, resource text, level double precision, at timestamptz) LANGUAGE sql STABLE AS $$
    WITH life AS MATERIALIZED (SELECT quotas_half_life() AS seconds), used AS (
        SELECT h.tenant_id, h.amounts, h.created_at, h.ended_at FROM quotas_hold AS h WHERE h.state <> 'pending'
        UNION ALL
        SELECT k.tenant_id, k.amounts, k.created_at, k.ended_at FROM quotas_keptidle AS k WHERE k.ended_at IS NOT NULL
    ), counted AS (
        SELECT u.tenant_id, asked.resource, asked.amount, u.created_at, u.ended_at,
            max(u.ended_at) OVER (PARTITION BY u.tenant_id, asked.resource) AS at
        FROM used AS u CROSS JOIN LATERAL quotas_counted(u.amounts) AS asked
        WHERE isfinite(u.created_at) AND isfinite(u.ended_at)
    )
    SELECT c.tenant_id, c.resource, sum(c.amount * (
            quotas_left_after(extract(epoch FROM c.at - c.ended_at)::double precision, life.seconds)
            - quotas_left_after(extract(epoch FROM c.at - c.created_at)::double precision, life.seconds))), c.at
    FROM counted AS c CROSS JOIN life GROUP BY c.tenant_id, c.resource, c.at
$$;

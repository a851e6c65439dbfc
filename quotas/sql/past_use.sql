-- What each tenant held in the past, as exponentially weighted means that move in the statement that ends a hold.

-- The part that is left of something after `seconds`. Below e^-700 a float has no numbers, so that is the least.
CREATE OR REPLACE FUNCTION quotas_left_after(seconds double precision, half_life double precision)
    RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
    SELECT exp(-least(700.0, ln(2.0::double precision) * greatest(0.0, seconds) / half_life))
$$;

CREATE OR REPLACE FUNCTION quotas_half_life() RETURNS double precision LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT half_life_seconds FROM quotas_pasthalflife WHERE id = 1), 86400)::double precision
$$;

-- The amounts of a hold that count. Proofs read them from rows that violate constraints, so nothing here fails.
CREATE OR REPLACE FUNCTION quotas_counted(amounts jsonb)
    RETURNS TABLE(resource text, amount double precision) LANGUAGE sql IMMUTABLE AS $$
    SELECT asked.key, CASE jsonb_typeof(asked.value) WHEN 'number'
            THEN least(greatest(asked.value::numeric, 0), 1e15)::double precision ELSE 0 END
    FROM jsonb_each(CASE jsonb_typeof(amounts) WHEN 'object' THEN amounts ELSE '{}' END) AS asked
    WHERE asked.key IN ('gpu', 'cpu', 'memory')
$$;

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

CREATE OR REPLACE FUNCTION quotas_add_past_use() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    half_life double precision;
BEGIN
    -- Waits for a change of the half-life, which counts all holds again, and keeps it out until commit.
    SELECT half_life_seconds INTO half_life FROM quotas_pasthalflife WHERE id = 1 FOR SHARE;
    half_life := coalesce(half_life, 86400);
    INSERT INTO quotas_pastuse AS past (tenant_id, resource, level, at)
        SELECT c.tenant_id, c.resource, sum(c.amount * (
            quotas_left_after(extract(epoch FROM c.at - c.ended_at)::double precision, half_life)
            - quotas_left_after(extract(epoch FROM c.at - c.created_at)::double precision, half_life))), c.at
        FROM (
            SELECT h.tenant_id, asked.resource, asked.amount, h.created_at, h.ended_at,
                max(h.ended_at) OVER (PARTITION BY h.tenant_id, asked.resource) AS at
            FROM ended AS h CROSS JOIN LATERAL quotas_counted(h.amounts) AS asked
        ) AS c
        GROUP BY c.tenant_id, c.resource, c.at ORDER BY c.tenant_id, c.resource
    ON CONFLICT (tenant_id, resource) DO UPDATE SET
        level = past.level
                * quotas_left_after(extract(epoch FROM greatest(past.at, excluded.at) - past.at)::double precision, half_life)
            + excluded.level
                * quotas_left_after(extract(epoch FROM greatest(past.at, excluded.at) - excluded.at)::double precision, half_life),
        at = greatest(past.at, excluded.at);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER quotas_past_use_grows AFTER UPDATE ON quotas_hold
    REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION quotas_add_past_use();

CREATE OR REPLACE FUNCTION quotas_count_past_use() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM quotas_pastuse;
    INSERT INTO quotas_pastuse (tenant_id, resource, level, at)
        SELECT tenant_id, resource, level, at FROM quotas_past_use_of_holds();
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER quotas_half_life_counts_anew AFTER INSERT OR UPDATE OF half_life_seconds ON quotas_pasthalflife
    FOR EACH ROW EXECUTE FUNCTION quotas_count_past_use();

CREATE OR REPLACE FUNCTION quotas_guard_past_use() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_trigger_depth() > 1 THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'past use moves only with the ends of holds'
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'past_use_moves_with_holds';
END $$;
CREATE OR REPLACE TRIGGER quotas_guard_past_use BEFORE INSERT OR UPDATE OR DELETE ON quotas_pastuse
    FOR EACH STATEMENT EXECUTE FUNCTION quotas_guard_past_use();

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
CREATE OR REPLACE TRIGGER quotas_guard_kept_idle BEFORE INSERT OR UPDATE OR DELETE ON quotas_keptidle
    FOR EACH ROW EXECUTE FUNCTION quotas_guard_idle();
CREATE OR REPLACE TRIGGER quotas_kept_idle_is_past_use AFTER UPDATE ON quotas_keptidle
    REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION quotas_add_past_use();
